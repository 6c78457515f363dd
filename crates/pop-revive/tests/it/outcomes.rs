//! Each outcome of a revive is its own, and a delivery ends only with its successor (P1, P5).

use std::time::Duration;

use pop_model::{Checkpoint, Offset};
use pop_revive::{PassReport, ReviverOptions};
use pop_store::{
    Durability, Outcome, Store, WriteBatch,
    table::{lease, quarantine},
    testkit::{Call, Effect, Fault},
};

use crate::world::{Answer, START, World};

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn whatever_one_revive_does_the_others_are_revived_and_it_is_stored_for_later() {
    for bad in [
        Answer::Fail,
        Answer::PanicAtOnce,
        Answer::PanicLater,
        Answer::Hang,
    ] {
        let world = World::new();
        let mut kept = None;
        for offset in 0..5 {
            let checkpoint = world.lease(offset, SECOND).await;
            if offset == 2 {
                kept = Some(checkpoint);
            }
        }
        world.answer(2, bad);
        world.clock.advance(SECOND);
        let report = world.pass().await;
        // Mutant: outcomes are awaited together; one failure then ends the pass for all.
        assert_eq!(
            (report.retried, report.backed_off, report.left),
            (4, 1, 0),
            "{bad:?}"
        );
        assert_eq!(world.retried().await, [0, 1, 3, 4], "{bad:?}");
        // Mutant: a rewrite that leaves a field to a default (BR-E02).
        let now = START.saturating_add(SECOND);
        let expected = Checkpoint {
            popped_at: now,
            invisible_for: 10 * SECOND,
            visible_at: now.saturating_add(10 * SECOND),
            revive_failures: 1,
            ..kept.unwrap()
        };
        assert_eq!(world.rows().await, [expected], "{bad:?}");
        assert_eq!(world.hint_count().await, 1, "{bad:?}");
    }
}

#[tokio::test]
async fn a_failing_revive_waits_longer_each_time_and_goes_to_quarantine_in_the_end() {
    let mut options = ReviverOptions::default();
    options.failures_max = 3;
    let world = World::with(options);
    // After a start everything may be due; the first look says that nothing is.
    world.pass().await;
    world.lease(0, SECOND).await;
    world.answer(0, Answer::Fail);
    for delay in [1, 10, 30, 60] {
        world
            .clock
            .advance(delay * SECOND - Duration::from_millis(1));
        assert!(!world.is_due(), "not before {delay} s");
        world.clock.advance(Duration::from_millis(1));
        assert!(world.is_due(), "after {delay} s");
        world.pass().await;
    }
    assert!(world.rows().await.is_empty());
    assert_eq!(world.hint_count().await, 0);
    // Mutant: the record is dropped with a log line (P6).
    let records = quarantine::list(world.store.as_ref(), 0, 9).await.unwrap();
    assert_eq!(records.len(), 1);
    assert!(
        records[0].1.reason.contains("4 times"),
        "{}",
        records[0].1.reason
    );
}

#[tokio::test]
async fn a_message_that_is_gone_ends_its_delivery_and_nothing_comes_in_its_place() {
    let world = World::new();
    world.lease(0, SECOND).await;
    world.answer(0, Answer::Gone);
    world.clock.advance(SECOND);
    assert_eq!(world.pass().await.gone, 1);
    assert!(world.rows().await.is_empty() && world.retried().await.is_empty());
    assert_eq!(*world.sink.settled.lock(), [Offset::new(0)]);
}

#[tokio::test]
async fn an_acknowledgement_during_the_revive_wins_and_nothing_is_delivered_again() {
    let world = World::new();
    let checkpoint = world.lease(0, SECOND).await;
    world.clock.advance(SECOND);
    // The ack lands between the decision and its commit: its row is gone by then.
    let row = world
        .store
        .get(pop_store::table::LEASE, &checkpoint.lease_key())
        .await
        .unwrap()
        .unwrap();
    world.faults.arm(Call::Write, 1, Fault::Delay(SECOND));
    let pass = world.pass();
    let ack = async {
        let mut batch = WriteBatch::new();
        lease::remove(&mut batch, row, &checkpoint);
        world
            .store
            .inner()
            .write(batch, Durability::Synced)
            .await
            .unwrap();
    };
    let (report, ()) = tokio::join!(pass, ack);
    // Mutant: the commit does not require the row unchanged; the acked message comes again.
    assert_eq!((report.retried, report.left), (0, 1));
    assert!(world.retried().await.is_empty());
    assert_eq!(
        *world.sink.unsettled.lock(),
        [(Offset::new(0), Outcome::Refused)]
    );
}

#[tokio::test]
async fn a_store_that_refuses_leaves_the_delivery_due_and_the_next_pass_revives_it() {
    let world = World::new();
    world.lease(0, SECOND).await;
    world.clock.advance(SECOND);
    world.faults.arm(Call::Write, 1, Fault::Refuse);
    assert_eq!(world.pass().await.left, 1);
    // Mutant: the floor passes what was left; it is then never looked at again.
    assert!(world.is_due());
    assert_eq!(world.pass().await.retried, 1);
    assert_eq!(world.retried().await, [0]);
}

#[tokio::test]
async fn a_commit_in_doubt_ends_the_pass_and_says_so_to_the_sink() {
    let world = World::new();
    world.lease(0, SECOND).await;
    world.clock.advance(SECOND);
    world
        .faults
        .arm(Call::Write, 1, Fault::InDoubt(Effect::DidNotHappen));
    let shard = crate::world::QUEUE.shard();
    assert!(world.reviver.pass(shard).await.is_err());
    assert_eq!(
        *world.sink.unsettled.lock(),
        [(Offset::new(0), Outcome::InDoubt)]
    );
}

#[tokio::test]
async fn a_pass_with_nothing_due_does_nothing() {
    let world = World::new();
    world.lease(0, 10 * SECOND).await;
    assert_eq!(world.pass().await, PassReport::default());
    assert_eq!(world.rows().await.len(), 1);
}
