//! How many at once, how fast, and how soon again.

use std::time::Duration;

use kv_restore::{Admission, Backoff, Digest, ErrorKind, Limiter, Options};
use pop_store::{
    Store,
    testkit::{Call, Effect},
};
use tokio::time::Instant;

use crate::kit::{Trouble, World, at, failed, leader, until_hung};

/// When each of so many chunks passed.
async fn passed(limiter: &Limiter, chunks: u32, bytes: u64) -> Vec<Instant> {
    let mut passed = Vec::new();
    for _ in 0..chunks {
        limiter.acquire(bytes).await;
        passed.push(Instant::now());
    }
    passed
}

async fn seconds(limiter: &Limiter, chunks: u32, bytes: u64) -> f64 {
    let started = Instant::now();
    passed(limiter, chunks, bytes).await;
    started.elapsed().as_secs_f64()
}

// Mutants: a bucket that is filled while nobody takes from it; one that is paid for each
// ten seconds; one that saves up whatever was overslept.
#[tokio::test(start_paused = true)]
async fn s53_any_second_sees_at_most_the_rate_a_twentieth_and_one_chunk() {
    let limiter = Limiter::new(1_000);
    tokio::time::sleep(Duration::from_secs(100)).await;
    let took = seconds(&limiter, 101, 100).await;
    assert!((9.9..10.3).contains(&took), "{took}");
    for (chunks, bytes) in [(200, 100), (200, 7), (5, 3_000)] {
        let passed = passed(&limiter, chunks, bytes).await;
        for (at, first) in passed.iter().enumerate() {
            let second = |it: &&Instant| **it - *first < Duration::from_secs(1);
            let within = passed[at..].iter().take_while(second).count();
            assert!(u64::try_from(within).unwrap() * bytes <= 1_050 + bytes);
        }
    }
    // A machine that stood still makes up for no more than a twentieth of a second.
    limiter.acquire(1).await;
    let late = tokio::spawn({
        let limiter = limiter.clone();
        async move { limiter.acquire(1).await }
    });
    tokio::task::yield_now().await;
    tokio::time::advance(Duration::from_secs(100)).await;
    late.await.unwrap();
    assert!(seconds(&limiter, 101, 100).await > 9.9);
    // Zero is no limit, at once.
    limiter.set(0);
    assert!(seconds(&limiter, 100, 1 << 30).await < 0.1);
}

// Mutant: what a timer oversleeps is lost, with which chunks of less than it can tell apart
// pass at a fifth of the rate here.
#[tokio::test(start_paused = true)]
async fn s53_the_rate_is_reached_whatever_the_size_of_a_chunk() {
    for bytes in [1 << 20, 10_000, 300] {
        let limiter = Limiter::new(50_000_000);
        let chunks = u32::try_from(100_000_000 / bytes).unwrap();
        let took = seconds(&limiter, chunks, bytes).await;
        assert!((1.95..2.05).contains(&took), "{bytes}: {took}");
    }
}

#[tokio::test(start_paused = true)]
async fn s53_a_change_of_the_rate_reaches_those_who_wait() {
    let limiter = Limiter::new(1);
    limiter.acquire(1_000_000).await;
    let started = Instant::now();
    let waiting = tokio::spawn({
        let limiter = limiter.clone();
        async move { limiter.acquire(1).await }
    });
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert!(!waiting.is_finished());
    limiter.set(100_000_000);
    waiting.await.unwrap();
    assert!(started.elapsed() < Duration::from_secs(6));
}

// Mutants: no limit keeps what was owed before it; what a fast rate overslept passes at a
// slow one.
#[tokio::test(start_paused = true)]
async fn s53_a_rate_begins_without_the_debts_and_savings_of_another() {
    let limiter = Limiter::new(1);
    limiter.acquire(1_000_000).await;
    limiter.set(0);
    limiter.acquire(1).await;
    limiter.set(1_000);
    assert!(seconds(&limiter, 2, 100).await < 0.2);

    limiter.set(1_000_000_000);
    limiter.acquire(1).await;
    let late = tokio::spawn({
        let limiter = limiter.clone();
        async move { limiter.acquire(1).await }
    });
    tokio::task::yield_now().await;
    tokio::time::advance(Duration::from_secs(1)).await;
    late.await.unwrap();
    limiter.set(1_000);
    assert!(seconds(&limiter, 21, 100).await > 1.8);
}

#[tokio::test(start_paused = true)]
async fn s53_a_slow_limit_is_no_silence_of_the_source() {
    let world = World::filled().await;
    // One chunk takes longer than any clock of the session.
    world.limiter.set(10);
    let started = Instant::now();
    world.restored().await.unwrap();
    assert!(started.elapsed() > Duration::from_secs(400));
}

// Mutant: a permit that is not given back.
#[tokio::test(start_paused = true)]
async fn s54_s55_sessions_wait_for_room_and_all_of_them_finish() {
    let admission = Admission::new(1);
    let mut worlds = Vec::new();
    for _ in 0..10 {
        let room = admission.clone();
        let options = Options::default().with_chunk_bytes(1_000);
        let world = World::in_room(options, room, |it| it);
        world.fill(50).await;
        worlds.push(world);
    }
    let first = until_hung(&worlds[0], Call::Load, Effect::Happened).await;
    let others: Vec<_> = worlds[1..]
        .iter()
        .map(|world| world.restore(at(1, 1, 10)).unwrap())
        .collect();
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert!(worlds[1..].iter().all(|world| world.begins() == 0));
    worlds[0].faults.release();
    first.outcome().await.unwrap();
    for session in others {
        session.outcome().await.unwrap();
    }
    assert_eq!(admission.free(), 1);
}

#[tokio::test(start_paused = true)]
async fn s54_who_does_not_get_its_turn_in_time_fails_early_and_a_small_snapshot_passes() {
    let admission = Admission::new(1);
    let world = |room: Admission| {
        let options = Options::default();
        World::in_room(options, room, |it| {
            it.with_queue_within(Duration::from_secs(8))
        })
    };
    let (holder, waiting) = (world(admission.clone()), world(admission.clone()));
    holder.fill(10).await;
    waiting.fill(10).await;
    let _held = until_hung(&holder, Call::Load, Effect::DidNotHappen).await;
    let started = Instant::now();
    failed(waiting.restored().await, ErrorKind::Busy);
    assert_eq!(started.elapsed().as_secs(), 8);
    assert_eq!(waiting.begins(), 0);
    let small = at(1, 1, 10).with_totals(waiting.source_rows().await);
    waiting.restore(small).unwrap().outcome().await.unwrap();
}

// Mutant: ToldBeforeReleased.
#[tokio::test(start_paused = true)]
async fn s55_room_is_given_back_before_anybody_is_told() {
    let admission = Admission::new(1);
    let room = admission.clone();
    let world = World::in_room(Options::default(), room, |it| it);
    world.fill(10).await;
    // Also while the source may still be told.
    world.way.set(&leader(), Trouble::Silent);
    let session = world.restore(at(1, 1, 10)).unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    session.cancel();
    failed(session.outcome().await, ErrorKind::Cancelled);
    assert_eq!(admission.free(), 1);
    drop(world.target.begin_replace(&[crate::kit::A]).await.unwrap());
    for fails in [false, true] {
        world.way.set(
            &leader(),
            if fails {
                Trouble::Refused
            } else {
                Trouble::None
            },
        );
        let request = at(1, 1, 10 + u64::from(fails));
        let mut request = request;
        request.id = kv_restore::SnapshotId(if fails { 2 } else { 1 });
        let session = world.restore(request).unwrap();
        assert_eq!(session.outcome().await.is_err(), fails);
        assert_eq!(admission.free(), 1);
        drop(world.target.begin_replace(&[crate::kit::A]).await.unwrap());
    }
}

#[tokio::test(start_paused = true)]
async fn s56_pauses_double_up_to_the_cap_with_jitter_and_begin_anew_after_a_success() {
    let mut backoff = Backoff::default();
    let pauses: Vec<_> = (0..12)
        .map(|_| backoff.next(u64::MAX).as_millis())
        .collect();
    assert_eq!(pauses[..4], [100, 200, 400, 800]);
    assert_eq!(pauses[11], 30_000);
    assert_eq!(backoff.next(0).as_millis(), 15_000);
    backoff.reset();
    assert_eq!(backoff.next(u64::MAX).as_millis(), 100);

    let world = World::filled().await;
    world.way.set(&leader(), Trouble::Refused);
    let error = failed(world.restored().await, ErrorKind::Transport);
    assert!(backoff.after(&error, 0).is_some_and(|it| !it.is_zero()));
    let gone = world.dumper.clone();
    gone.close();
    world.way.set(&leader(), Trouble::None);
    let error = world
        .restore(at(8, 1, 11).with_totals(Digest::default()))
        .unwrap();
    let error = error.outcome().await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::PeerAborted(_)), "{error}");
}
