//! Loading, giving up, resetting, closing, and starting again.

use std::{
    future::poll_fn,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use pop_cache::CacheError;
use pop_model::{Mutant, Offset};
use pop_store::{
    Durability,
    testkit::{Call, Fault},
};

use crate::{
    mutants::held_against,
    sink::Answer,
    world::{HIDDEN, World, options, queue},
};

const BUFFERED: Durability = Durability::Buffered;

#[test]
fn a_group_is_subscribed_for_good_before_anything_goes_out() {
    held_against(&[Mutant::StartNotDurable], || async {
        let mut world = World::new();
        world.log_end = 7;
        world.pop(1).await;
        world.crash(0);
        let record = pop_store::table::meta::subscription(&world.store, queue(1)).await;
        assert!(record.expect("the store answers").is_some());
    });
}

#[test]
fn a_restart_gives_out_what_was_open_and_nothing_else() {
    held_against(&[Mutant::RestartIgnoresMarks], || async {
        let mut world = World::new();
        world.log_end = 5;
        let popped = world.pop(5).await;
        for identity in &popped[2..] {
            world.ack(identity, BUFFERED).await.expect("it is out");
        }
        world.cache.flush().await.expect("the store is well");
        world.crash(0);
        let again = world.pop(9).await;
        let again: Vec<u64> = again.iter().map(|it| it.offset.get()).collect();
        assert_eq!(again, [0, 1]);
        // The handle of the run before ends nothing that was handed out again.
        let acked = world.ack(&popped[0], BUFFERED).await;
        assert!(matches!(acked, Err(CacheError::Over)));
    });
}

#[test]
fn a_queue_is_not_given_up_under_a_receive() {
    held_against(&[Mutant::EvictionRacesAReceive], || async {
        let mut world = World::with(options(|options| {
            options.idle_after = Duration::from_secs(4);
        }));
        world.start();
        let cached = world.cached(queue(1)).await;
        let reserved = world.cache.reserve(&cached, 1, world.bounds());
        let mut reserved = reserved.expect("there is room");
        // The read takes longer than a queue may be idle.
        world.pass(Duration::from_secs(10)).await;
        let other = world.pop(1).await;
        assert_eq!(other[0].offset.get(), 1, "the first is somebody's");
        reserved.skip(&[Offset::ZERO]);
    });
}

#[tokio::test(start_paused = true)]
async fn an_idle_queue_is_stored_and_given_up_and_found_again() {
    let mut world = World::with(options(|options| {
        options.idle_after = Duration::from_secs(3);
        options.stay = Duration::from_secs(1_000);
    }));
    world.start();
    let popped = world.pop(2).await;
    let cached = world.cached(queue(1)).await;
    world.ack(&popped[0], BUFFERED).await.expect("it is out");
    let hidden = Duration::from_secs(100);
    let changed = world
        .cache
        .change(&cached, &popped[1], hidden, false, BUFFERED);
    changed.await.expect("it is out");
    world.pass(Duration::from_secs(6)).await;
    assert!(world.cache.loaded(queue(1)).is_none());
    assert_eq!(world.cache.lease_count(), 0);
    assert_eq!(world.row_offsets().await, [1]);
    // Whoever still holds it is told.
    let reserved = world.cache.reserve(&cached, 1, world.bounds());
    assert!(matches!(reserved, Err(CacheError::Evicted(_))));
    let acked = world.cache.ack(&cached, &popped[1], BUFFERED).await;
    assert!(matches!(acked, Err(CacheError::Evicted(_))));
    world.ack(&popped[1], BUFFERED).await.expect("it is stored");
    assert_eq!(world.pop(1).await[0].offset.get(), 2);
    world.pass(Duration::from_millis(100)).await;
    assert_eq!(world.cached(queue(1)).await.in_flight(), 1);
}

#[test]
fn a_reset_ends_what_is_out_being_written_and_stored() {
    let mutants = [Mutant::ResetKeepsTheEpoch, Mutant::ResetKeepsMarks];
    held_against(&mutants, || async {
        let mut world = World::new();
        world.sink.answer(2, Answer::Slow(Duration::from_secs(2)));
        // One stored, one acknowledged, one being decided, one just out.
        let stored = world.pop(1).await;
        world.cache.close().await.expect("the store is well");
        let done = world.pop(1).await;
        world.ack(&done[0], BUFFERED).await.expect("it is out");
        world.cache.flush().await.expect("the store is well");
        let staged = world.pop(1).await;
        world.start();
        world.pass(HIDDEN).await;
        let out = world.pop(1).await;
        let cached = world.cached(queue(1)).await;
        assert_eq!(cached.look(|leases| leases.counts().staged), 1);
        let reset = world.cache.reset(&cached, Offset::ZERO).await;
        reset.expect("the store is well");
        world.pass(Duration::from_secs(3)).await;
        // Nothing of what was settled counts, and no handle ends what goes out again.
        assert_eq!(world.pop(9).await.len(), 9);
        for identity in [stored[0], done[0], staged[0], out[0]] {
            let acked = world.ack(&identity, BUFFERED).await;
            assert!(matches!(acked, Err(CacheError::Over)), "{acked:?}");
        }
        assert_eq!(world.committed().await, 0);
        world.crash(0);
        let again = world.pop(4).await;
        assert!(again.iter().map(|it| it.offset.get()).eq(0..4));
    });
}

#[tokio::test(start_paused = true)]
async fn a_reset_that_the_store_refuses_changes_nothing() {
    let world = World::new();
    let popped = world.pop(2).await;
    let cached = world.cached(queue(1)).await;
    world.fail_write(0, Fault::Refuse);
    let reset = world.cache.reset(&cached, Offset::new(5)).await;
    assert!(matches!(reset, Err(CacheError::Store(_))));
    world.ack(&popped[0], BUFFERED).await.expect("it is out");
    assert_eq!(world.pop(1).await[0].offset.get(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_close_stores_all_that_is_out_so_that_a_restart_repeats_nothing() {
    let mut world = World::new();
    world.log_end = 6;
    let popped = world.pop(4).await;
    world.ack(&popped[3], BUFFERED).await.expect("it is out");
    world.cache.close().await.expect("the store is well");
    world.crash(0);
    assert_eq!(world.row_offsets().await, [0, 1, 2]);
    let more = world.pop(9).await;
    assert_eq!(more[0].offset.get(), 4);
    world.ack(&popped[1], BUFFERED).await.expect("it is stored");
}

#[tokio::test(start_paused = true)]
async fn a_close_of_a_queue_in_order_ends_and_its_leases_go_on() {
    let mut world = World::ordered();
    let popped = world.pop(2).await;
    // Mutant: what is stored and stays open is stored again and again.
    world.cache.close().await.expect("the store is well");
    world.crash(0);
    assert_eq!(world.row_offsets().await, [0, 1]);
    assert!(world.pop(2).await.is_empty(), "its group is out");
    for identity in &popped {
        world.ack(identity, BUFFERED).await.expect("it is its own");
    }
    assert_eq!(world.pop(1).await[0].offset.get(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_close_on_a_store_that_refuses_ends_with_its_error() {
    let world = World::new();
    let popped = world.pop(3).await;
    world.try_pop(queue(2), 3).await.expect("there is room");
    world.ack(&popped[0], BUFFERED).await.expect("it is out");
    let before = world.faults.call_count(Call::Write);
    for nth in 0..50 {
        world.fail_write(nth, Fault::Refuse);
    }
    // Mutant: it tries until the store takes it.
    world.cache.close().await.expect_err("it is refused");
    assert!(world.faults.call_count(Call::Write) - before < 10);
    world.faults.disarm();
    world.cache.close().await.expect("the store is well again");
    assert_eq!(world.row_offsets().await, [1, 2]);
}

/// A revive that hangs, and a lease that is due while the cache stops.
// Mutant: the look that is due is waited for, which is no wait at all.
#[tokio::test(start_paused = true)]
async fn a_cache_that_stops_waits_for_what_it_began_and_does_not_spin() {
    const HANGS_FOR: Duration = Duration::from_secs(60);
    let world = World::with(options(|options| options.decision_time_max = HANGS_FOR));
    world.sink.answer(0, Answer::Hang);
    world.pop(1).await;
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let polls = Arc::new(AtomicU64::new(0));
    let (cache, counted) = (world.cache.clone(), Arc::clone(&polls));
    let running = tokio::spawn(async move {
        let run = cache.run(async {
            let _ = stopped.await;
        });
        let mut run = Box::pin(run);
        poll_fn(|context| {
            counted.fetch_add(1, Ordering::Relaxed);
            run.as_mut().poll(context)
        })
        .await
    });
    world.pass(HIDDEN).await;
    let other = world.try_pop(queue(2), 1).await;
    assert_eq!(other.expect("there is room").len(), 1);
    stop.send(()).expect("it runs");
    world.clock.advance(HIDDEN);
    tokio::time::advance(HIDDEN).await;
    let before = polls.load(Ordering::Relaxed);
    for _ in 0..1_000 {
        tokio::task::yield_now().await;
    }
    let polls = polls.load(Ordering::Relaxed) - before;
    assert!(polls < 100, "polled {polls} times while nothing happened");
    tokio::time::advance(HANGS_FOR).await;
    let ended = running.await.expect("it does not panic");
    ended.expect("the store is well");
}
