//! The ancestor's first fault, from every side: an expired lease leaves memory only with
//! its successor, whatever its revive does (P1, P2, P5).

use std::{sync::Arc, time::Duration};

use pop_model::Offset;
use pop_store::{
    Durability, Outcome,
    table::quarantine,
    testkit::{Call, Effect, Fault},
};

use crate::world::{Answer, INVISIBLE, START, World};

const SECOND: Duration = Duration::from_secs(1);
const DECISION: Duration = Duration::from_secs(5);

/// Offset 0 fails to be revived and is stored for later; 1 is retried, and that does not
/// wait for it.
async fn check_failed(answer: Answer) {
    // Mutants: `StagedClearedWhateverTheOutcome`, `OneFailureAbortsTheSweep`,
    // `GateIgnoresStaged`.
    let world = World::new().await;
    world.answer(0, answer);
    world.lease(2).await;
    world.advance(INVISIBLE).await;
    assert_eq!(*world.sink.settled.lock(), [Offset::new(1)], "{answer:?}");
    let hangs = matches!(answer, Answer::Hang | Answer::Late);
    if hangs {
        assert_eq!(world.committed().await, Offset::ZERO, "{answer:?}: gated");
        assert_eq!(world.in_memory(), (1, 1));
        tokio::time::sleep(DECISION).await;
    }
    let rows = world.rows().await;
    assert_eq!(rows.len(), 1, "{answer:?}");
    let row = &rows[0];
    assert_eq!(row.identity.offset, Offset::new(0));
    assert_eq!((row.delivery_attempt, row.revive_failures), (3, 1));
    assert_eq!(row.attempt_id.as_deref(), Some("mine"));
    assert!(row.auto_renew && !row.suspend);
    let later = START.saturating_add(INVISIBLE + 10 * SECOND);
    assert_eq!(row.visible_at, later, "{answer:?}: the first back-off");
    assert_eq!(world.retried().await, [1], "{answer:?}");
    assert_eq!(world.in_memory(), (0, 0), "it is stored");
    assert_eq!(world.committed().await, Offset::new(2), "{answer:?}");
    // Nothing comes of it later.
    tokio::time::sleep(100 * SECOND).await;
    assert_eq!(world.retried().await, [1], "{answer:?}");
    assert_eq!(world.sink.asked.lock().len(), 2);
    assert!(!world.running.is_finished());
}

#[tokio::test(start_paused = true)]
async fn an_exceptional_revive_is_stored_for_later() {
    check_failed(Answer::Fail).await;
}

#[tokio::test(start_paused = true)]
async fn a_revive_that_throws_at_the_call_is_stored_for_later() {
    check_failed(Answer::ThrowAtTheCall).await;
}

#[tokio::test(start_paused = true)]
async fn a_panicking_revive_is_stored_for_later() {
    check_failed(Answer::Panic).await;
}

#[tokio::test(start_paused = true)]
async fn a_hanging_revive_is_stored_for_later_when_its_time_is_over() {
    check_failed(Answer::Hang).await;
}

#[tokio::test(start_paused = true)]
async fn a_revive_that_answers_late_is_stored_for_later_and_its_answer_is_not_heard() {
    check_failed(Answer::Late).await;
}

#[tokio::test(start_paused = true)]
async fn a_revive_that_finds_nothing_ends_its_lease_and_leaves_no_successor() {
    let world = World::new().await;
    world.answer(0, Answer::Gone);
    world.lease(2).await;
    world.advance(INVISIBLE).await;
    assert_eq!(world.retried().await, [1]);
    assert!(world.rows().await.is_empty());
    assert_eq!(world.committed().await, Offset::new(2));
    let mut settled = world.sink.settled.lock().clone();
    settled.sort();
    assert_eq!(settled, [Offset::new(0), Offset::new(1)]);
}

#[tokio::test(start_paused = true)]
async fn all_revives_of_a_sweep_are_started_before_any_is_awaited() {
    // Mutant: a loop that awaits each decision before it asks for the next.
    let world = World::new().await;
    for offset in 0..100 {
        world.answer(offset, Answer::Hang);
    }
    world.lease(100).await;
    world.advance(INVISIBLE).await;
    assert_eq!(world.sink.asked.lock().len(), 100);
    // None holds the acknowledgement of another queue's, or the time of the sweep.
    tokio::time::sleep(DECISION + SECOND).await;
    assert_eq!(world.rows().await.len(), 100);
}

#[tokio::test(start_paused = true)]
async fn a_refused_write_of_a_revive_is_told_and_tried_again_and_written_once() {
    // Failed persistence. Mutant: `RefusedPlanKeepsOffsets`: the leases stay staged.
    let world = World::new().await;
    world.lease(3).await;
    world.faults.arm(Call::Write, 1, Fault::Refuse);
    world.advance(INVISIBLE).await;
    let told = world.sink.unsettled.lock().clone();
    let refused = [0, 1, 2].map(|offset| (Offset::new(offset), Outcome::Refused));
    assert_eq!(told, refused);
    assert!(world.retried().await.is_empty());
    assert_eq!(world.in_memory(), (3, 0), "back in memory");
    assert_eq!(world.committed().await, Offset::ZERO);
    world.advance(SECOND).await;
    assert_eq!(world.retried().await, [0, 1, 2]);
    assert_eq!(world.sink.settled.lock().len(), 3);
    assert_eq!(world.in_memory(), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_refused_write_that_stores_a_failed_revive_is_tried_again() {
    let world = World::new().await;
    world.answer(0, Answer::Fail);
    world.lease(1).await;
    for nth in 1..=3 {
        world.faults.arm(Call::Write, nth, Fault::Refuse);
    }
    for _ in 0..4 {
        assert!(world.rows().await.is_empty());
        assert_eq!(world.in_memory().0, 1, "nothing is lost meanwhile");
        world.advance(INVISIBLE).await;
    }
    assert_eq!(world.rows().await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_write_in_doubt_ends_the_cache_with_its_leases_staged() {
    // Opening the store anew tells what it did. Mutant: a doubt taken for a refusal
    // (`needs_reopen` that is never true): it was written a second time.
    for effect in [Effect::Happened, Effect::DidNotHappen] {
        let world = World::new().await;
        world.lease(2).await;
        world
            .faults
            .arm(Call::Write, 1, Fault::InDoubt(effect))
            .arm(Call::Write, 2, Fault::Panic(effect));
        world.advance(INVISIBLE).await;
        assert!(world.running.is_finished());
        let in_doubt = [0, 1].map(|offset| (Offset::new(offset), Outcome::InDoubt));
        assert_eq!(*world.sink.unsettled.lock(), in_doubt);
        assert_eq!(world.in_memory(), (2, 2), "they stay staged");
        assert!(world.sink.settled.lock().is_empty());
        assert_eq!(
            world.faults.injected_count(),
            1,
            "nothing is written after it"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_revive_that_failed_too_often_is_put_away_and_told() {
    // P6. Mutant: `ExhaustedIsDropped`.
    let world = World::with(|options| options.failures_max = 0).await;
    world.answer(0, Answer::Fail);
    world.lease(2).await;
    world.advance(INVISIBLE).await;
    let listed = quarantine::list(world.store.inner(), 0, 9).await.unwrap();
    assert_eq!(listed.len(), 1);
    assert!(listed[0].1.reason.contains("the log is on fire"));
    assert_eq!(*world.sink.quarantined.lock(), [Offset::new(0)]);
    assert_eq!(world.retried().await, [1]);
}

#[tokio::test(start_paused = true)]
async fn an_acknowledgement_during_a_revive_waits_for_it() {
    // The ancestor's fault 4: the lease is staged. Mutant: `AckMissesStaged`.
    for (answer, is_ok) in [(Answer::Hang, true), (Answer::Retry, false)] {
        let world = World::new().await;
        world.answer(0, answer);
        let lease = world.lease(1).await[0];
        // The decision hangs, or its write takes long.
        world.faults.arm(Call::Write, 1, Fault::Delay(3 * SECOND));
        world.advance(INVISIBLE).await;
        assert_eq!(world.in_memory(), (1, 1), "{answer:?}");
        let acked = world
            .cache
            .ack(&world.cached, &lease, Durability::Synced)
            .await;
        assert_eq!(acked.is_ok(), is_ok, "{answer:?}: {acked:?}");
        // Stored for later and then ended, or over since its successor is there.
        assert!(world.rows().await.is_empty());
        assert_eq!(world.retried().await.len(), usize::from(!is_ok));
    }
}

#[tokio::test(start_paused = true)]
async fn a_queue_writes_nothing_while_one_of_its_writes_has_no_outcome() {
    // Pages of marks are written whole: a second plan would leave out the marks of the
    // first, and the first those of the second. Mutant: `SecondWriteWhileInDoubt`: the
    // acknowledgement was answered as durable, and lost.
    let world = World::new().await;
    world.lease(1).await;
    world.advance(SECOND).await;
    let second = world.lease(1).await[0];
    let hang = Fault::Hang(Effect::DidNotHappen);
    world.faults.arm(Call::Write, 1, hang);
    world.clock.advance(INVISIBLE - SECOND);
    world.faults.until_hung(1).await;
    let writes = world.faults.call_count(Call::Write);
    let (cache, cached) = (world.cache.clone(), Arc::clone(&world.cached));
    let acked = tokio::spawn(async move { cache.ack(&cached, &second, Durability::Synced).await });
    tokio::time::sleep(SECOND).await;
    assert_eq!(world.faults.call_count(Call::Write), writes);
    assert!(!acked.is_finished());
    world.faults.release();
    acked.await.unwrap().unwrap();
    world.rest().await;
    assert_eq!(world.committed().await, Offset::new(2));
    assert_eq!(world.retried().await, [0]);
}
