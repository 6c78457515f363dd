//! Ends from outside: cancel, close, drop, at every moment.

use std::{sync::Arc, time::Duration};

use kv_restore::{Admission, ErrorKind, Options, Phase};
use pop_store::testkit::{Call, Effect, Fault};
use tokio::time::Instant;

use crate::kit::{Trouble, World, at, failed, leader, until_hung, write};

const ROUNDS: u32 = 2_000;

async fn cancelled(world: &World, session: kv_restore::Session, phase: Phase) {
    session.cancel();
    let error = failed(session.outcome().await, ErrorKind::Cancelled);
    assert_eq!(error.phase(), phase);
    world.faults.release();
    drop(session);
    world.is_quiet().await;
    world.heals(&error).await;
}

#[tokio::test(start_paused = true)]
async fn s25_a_cancel_before_the_open_while_it_runs_and_after_it() {
    let world = World::filled().await;
    let session = world.restore(at(1, 1, 10)).unwrap();
    cancelled(&world, session, Phase::Queued).await;

    let world = World::filled().await;
    let session = until_hung(&world, Call::BeginReplace, Effect::Happened).await;
    cancelled(&world, session, Phase::Opening).await;

    let world = World::filled().await;
    world.way.set(&leader(), Trouble::Silent);
    let session = world.restore(at(1, 1, 10)).unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    world.way.set(&leader(), Trouble::None);
    cancelled(&world, session, Phase::Pulling).await;
}

#[tokio::test(start_paused = true)]
async fn s25_a_cancel_in_the_middle_of_the_rows_and_after_the_last_one() {
    let small = Options::default()
        .with_chunk_bytes(100)
        .with_window_bytes(1);
    let world = World::with(small, |it| it);
    world.fill(100).await;
    let session = until_hung(&world, Call::Load, Effect::DidNotHappen).await;
    cancelled(&world, session, Phase::Receiving).await;

    // The end came while the first chunk is being loaded.
    let world = World::filled().await;
    let session = until_hung(&world, Call::Load, Effect::DidNotHappen).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    cancelled(&world, session, Phase::Verifying).await;
}

// Mutant: StopDuringCommit.
#[tokio::test(start_paused = true)]
async fn s25_a_cancel_while_committing_waits_for_the_commit_whose_outcome_wins() {
    let world = World::filled().await;
    let session = until_hung(&world, Call::Publish, Effect::DidNotHappen).await;
    session.cancel();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(session.ended().is_none());
    world.faults.release();
    session.outcome().await.unwrap();
    assert!(world.same().await);
}

/// Cancelled in every call and between any two, the target has the old content or the new
/// one, and says which.
#[tokio::test(start_paused = true)]
async fn s26_s31_a_cancel_after_any_number_of_steps_is_ok_and_switched_or_neither() {
    let mut seen = [0, 0];
    for moment in 0..120 {
        let world = World::new();
        write(&world.target, 3, 1).await;
        write(&world.source, 20, 2).await;
        world.offer(1).await;
        let before = world.target_rows().await;
        for (call, count) in [(Call::BeginReplace, 1), (Call::Load, 4), (Call::Publish, 1)] {
            for nth in 1..=count {
                world
                    .faults
                    .arm(call, nth, Fault::Delay(Duration::from_millis(700)));
            }
        }
        let session = world.restore(at(1, 1, 10)).unwrap();
        tokio::time::sleep(Duration::from_millis(50 * moment)).await;
        session.cancel();
        let outcome = session.outcome().await;
        match outcome {
            Ok(_) => assert!(world.same().await),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Cancelled);
                assert_eq!(world.target_rows().await, before);
            }
        }
        seen[usize::from(world.same().await)] += 1;
        drop(session);
        world.is_quiet().await;
    }
    assert!(seen[0] > 5 && seen[1] > 5, "{seen:?}");
}

// Mutants: StopDuringCommit; a cancel is not heard.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s26_a_cancel_that_races_with_the_end_is_never_mixed() {
    let world = World::new();
    let (mut installed, mut cancelled) = (0, 0);
    // How long the cancel waits: longer after one that won, shorter after one that lost, so
    // that it stays where both can win.
    let mut spins = 0_u32;
    for round in 1..=ROUNDS {
        let before = world.target_rows().await;
        write(&world.source, 3, if round % 2 == 0 { 2 } else { 3 }).await;
        world.offer(round.into()).await;
        let session = world.restore(at(round.into(), 1, round.into())).unwrap();
        let canceller = session.clone();
        let racer = tokio::spawn(async move {
            for _ in 0..spins {
                tokio::task::yield_now().await;
            }
            canceller.cancel();
        });
        match session.outcome().await {
            Ok(_) => {
                assert!(world.same().await);
                installed += 1;
                spins -= spins.div_ceil(4);
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Cancelled, "{error}");
                assert_eq!(world.target_rows().await, before);
                cancelled += 1;
                spins += 1 + spins / 4;
            }
        }
        racer.await.unwrap();
        drop(world.offers());
    }
    assert!(installed > 0 && cancelled > 0, "{installed} {cancelled}");
}

#[tokio::test(start_paused = true)]
async fn s27_a_close_while_queued_or_receiving_ends_the_session_in_its_time() {
    for call in [Call::BeginReplace, Call::Load] {
        let world = World::filled().await;
        let session = until_hung(&world, call, Effect::DidNotHappen).await;
        let started = Instant::now();
        let closed = world.restorer.close().await;
        assert_eq!(closed, kv_restore::Closed::Clean);
        assert!(started.elapsed() < Duration::from_secs(10));
        failed(session.outcome().await, ErrorKind::Closed);
        let refused = world.restore(at(1, 1, 10)).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Closed);
    }
}

// Mutant: who waits for its turn does not hear of the close.
#[tokio::test(start_paused = true)]
async fn s27_a_close_while_others_have_the_room_ends_the_session_that_waits_for_it() {
    let room = Admission::new(1);
    let filled = async || {
        let room = room.clone();
        let world = World::in_room(Options::default(), room, |it| it);
        world.fill(10).await;
        world
    };
    let (holder, world) = (filled().await, filled().await);
    let _held = until_hung(&holder, Call::Load, Effect::DidNotHappen).await;
    let session = world.restore(at(1, 1, 10)).unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let started = Instant::now();
    assert_eq!(world.restorer.close().await, kv_restore::Closed::Clean);
    let error = failed(session.outcome().await, ErrorKind::Closed);
    assert_eq!((error.phase(), world.begins()), (Phase::Queued, 0));
    assert!(started.elapsed() < Duration::from_secs(1));
}

// Mutants: StopDuringCommit, TurnNotTaken.
#[tokio::test(start_paused = true)]
async fn s28_a_close_while_committing_waits_for_the_commit() {
    let world = Arc::new(World::filled().await);
    let session = until_hung(&world, Call::Publish, Effect::DidNotHappen).await;
    let closing = tokio::spawn({
        let world = Arc::clone(&world);
        async move { world.restorer.close().await }
    });
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert!(!closing.is_finished());
    world.faults.release();
    assert_eq!(closing.await.unwrap(), kv_restore::Closed::Clean);
    session.outcome().await.unwrap();
    assert!(world.same().await);
}

#[tokio::test(start_paused = true)]
async fn s28_a_close_does_not_wait_for_ever_for_a_commit_that_hangs() {
    let world = World::filled().await;
    let session = until_hung(&world, Call::Publish, Effect::DidNotHappen).await;
    assert_eq!(world.restorer.close().await, kv_restore::Closed::Stuck);
    failed(session.outcome().await, ErrorKind::Stalled);
}

// Mutant: TurnNotTaken.
// F17: nobody waits for ever, and nobody passes a switch that may still happen.
#[tokio::test(start_paused = true)]
async fn f17_a_commit_that_hangs_keeps_later_requests_out_until_it_is_known() {
    let world = World::filled().await;
    world.offer(2).await;
    let session = until_hung(&world, Call::Publish, Effect::DidNotHappen).await;
    failed(session.outcome().await, ErrorKind::Stalled);
    assert_eq!(world.restorer.live(), None);
    let busy = world.restore(at(2, 1, 11)).unwrap().outcome().await;
    failed(busy, ErrorKind::Busy);
    assert_eq!(world.begins(), 1);
    world.faults.release();
    world
        .restore(at(2, 1, 11))
        .unwrap()
        .outcome()
        .await
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn s29_a_close_twice_and_at_once_is_fine() {
    let world = World::filled().await;
    let _session = until_hung(&world, Call::Load, Effect::DidNotHappen).await;
    let (first, second) = tokio::join!(world.restorer.close(), world.restorer.close());
    assert_eq!(first, second);
    world.restorer.close().await;
}

#[tokio::test(start_paused = true)]
async fn s30_a_restorer_that_is_dropped_ends_its_session_and_leaves_no_task() {
    let world = World::filled().await;
    let session = until_hung(&world, Call::Load, Effect::DidNotHappen).await;
    let metrics = tokio::runtime::Handle::current().metrics();
    drop(world.restorer);
    failed(session.outcome().await, ErrorKind::Closed);
    world.dumper.close();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(metrics.num_alive_tasks(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_session_that_ended_leaves_no_task_and_no_timer() {
    let world = World::with(Options::default(), |it| it);
    world.fill(10).await;
    world.restored().await.unwrap();
    let metrics = tokio::runtime::Handle::current().metrics();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(metrics.num_alive_tasks(), 0);
    world.faults.arm(Call::Load, 1, Fault::Refuse);
    let error = world.restore(at(9, 2, 10)).unwrap().outcome().await;
    failed(error, ErrorKind::SourceGone);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(metrics.num_alive_tasks(), 0);
}
