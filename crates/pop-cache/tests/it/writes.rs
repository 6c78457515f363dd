//! What is written, together and alone, and what a refusal leaves.

use std::time::Duration;

use pop_cache::LeaseQueue;
use pop_model::Mutant;
use pop_store::{
    Durability, Outcome,
    testkit::{Call, Effect, Fault},
};

use crate::{
    mutants::held_against,
    sink::{Answer, Told},
    world::{HIDDEN, World, queue},
};

#[test]
fn a_lease_that_stays_is_stored_with_its_deadline() {
    held_against(&[Mutant::SpillRestartsTheDeadline], || async {
        let mut world = World::new();
        world.start();
        let popped = world.pop(1).await;
        let cached = world.cached(queue(1)).await;
        let hidden = Duration::from_secs(60);
        let changed = world
            .cache
            .change(&cached, &popped[0], hidden, false, Durability::Buffered);
        changed.await.expect("it is out");
        let rows = world.rows().await;
        assert!(rows.is_empty(), "the common case writes nothing");
        world.pass(Duration::from_secs(11)).await;
        let rows = world.rows().await;
        assert_eq!(rows[0].identity, popped[0]);
        assert_eq!(rows[0].visible_at.as_millis(), 1_060_000);
        // Mutant: the row is written and its mark is not; both would be delivered.
        assert_eq!(world.committed().await, 1);
        assert_eq!(world.sink.asked(0), 0);
        // Its handle is as good as before.
        let acked = world.ack(&popped[0], Durability::Buffered).await;
        acked.expect("it is stored and its own");
        assert!(world.rows().await.is_empty());
        let again = world.ack(&popped[0], Durability::Buffered).await;
        assert!(matches!(again, Err(pop_cache::CacheError::Over)));
    });
}

#[tokio::test(start_paused = true)]
async fn of_a_batch_that_is_refused_each_is_written_alone() {
    let mut world = World::new();
    world.sink.answer(0, Answer::Retry);
    world.sink.answer(1, Answer::Impossible);
    world.sink.answer(2, Answer::Retry);
    world.pop(3).await;
    world.start();
    world.pass(HIDDEN + Duration::from_millis(300)).await;
    // Mutant: the batch is refused as a whole until one of it changes.
    assert!(world.is_retried(0).await && world.is_retried(2).await);
    assert!(world.sink.was_told(Told::Unsettled(0, Outcome::Refused)));
    assert_eq!(world.row_offsets().await, [1]);
    assert_eq!(world.sink.asked(1), 2);
}

#[tokio::test(start_paused = true)]
async fn what_the_store_refuses_stays_and_is_tried_again() {
    let mut world = World::new();
    world.sink.answer(0, Answer::Retry);
    world.start();
    world.pop(1).await;
    world.fail_write(0, Fault::Refuse);
    world.pass(HIDDEN + Duration::from_millis(300)).await;
    let cached = world.cached(queue(1)).await;
    assert_eq!(cached.look(|leases| leases.counts().buffered), 1);
    assert_eq!(world.committed().await, 0);
    // Mutant: it is tried again at once, in a spin.
    assert_eq!(world.sink.asked(0), 1);
    world.pass(Duration::from_millis(600)).await;
    assert!(world.is_retried(0).await);
    assert_eq!(world.committed().await, 1);
}

#[test]
fn the_end_of_a_delivery_is_written_with_its_successor() {
    held_against(&[Mutant::DeleteBeforeWrite], || async {
        let mut world = World::new();
        world.sink.answer(0, Answer::Retry);
        world.start();
        world.pop(1).await;
        // Whichever write comes second is refused for now.
        world.fail_write(1, Fault::Refuse);
        world.pass(HIDDEN + Duration::from_millis(200)).await;
        assert_eq!(world.is_settled(0).await, world.is_retried(0).await);
    });
}

#[tokio::test(start_paused = true)]
async fn a_write_whose_run_is_dropped_comes_to_its_end() {
    let mut world = World::new();
    world.sink.answer(0, Answer::Retry);
    world.start();
    let popped = world.pop(2).await;
    world.fail_write(0, Fault::Delay(Duration::from_secs(3)));
    world.pass(HIDDEN + Duration::from_millis(200)).await;
    assert_eq!(world.sink.asked(0), 1);
    world.drop_run().await;
    world.pass(Duration::from_secs(4)).await;
    // Mutant: the plan is lost with the future, and the queue never settles anything again.
    assert!(world.sink.was_told(Told::Settled(0)));
    let acked = world.ack(&popped[1], Durability::Buffered).await;
    assert!(acked.is_err(), "it was revived, too");
    world.start();
    let more = world.pop(1).await;
    world
        .ack(&more[0], Durability::Synced)
        .await
        .expect("it is out");
    assert_eq!(world.committed().await, 3);
}

#[tokio::test(start_paused = true)]
async fn a_run_that_is_dropped_while_a_sink_thinks_loses_nothing() {
    let mut world = World::new();
    world.sink.answer(0, Answer::Slow(Duration::from_secs(3)));
    world.start();
    world.pop(1).await;
    world.pass(HIDDEN + Duration::from_millis(200)).await;
    world.drop_run().await;
    let cached = world.cached(queue(1)).await;
    // Mutant: it stays staged, which nobody ends.
    assert_eq!(cached.look(|leases| leases.counts().buffered), 1);
    world.start();
    world.pass(Duration::from_secs(4)).await;
    // Mutant: nobody looks at it again, since it is thought to be looked at.
    assert_eq!(world.committed().await, 1);
}

#[test]
fn two_writes_of_a_queue_never_run_at_a_time() {
    held_against(&[Mutant::SecondWriteWhileInDoubt], || async {
        let mut world = World::new();
        world.start();
        let popped = world.pop(2).await;
        world.fail_write(0, Fault::Hang(Effect::DidNotHappen));
        world
            .ack(&popped[1], Durability::Buffered)
            .await
            .expect("it is out");
        world.pass(HIDDEN + Duration::from_secs(1)).await;
        // The flush hangs, and the revive of the other waits for it.
        assert_eq!(world.sink.asked(0), 1);
        assert!(!world.sink.was_told(Told::Settled(0)));
        world.faults.release();
        world.pass(Duration::from_secs(1)).await;
        assert!(world.sink.was_told(Told::Settled(0)));
        assert_eq!(world.committed().await, 2);
    });
}

#[tokio::test(start_paused = true)]
async fn a_batch_of_many_ends_is_one_that_the_store_takes() {
    let mut world = World::new();
    world.log_end = 3_000_000;
    // One lease a page, so that each end brings a page of its own, beside its writes.
    let cached = world.cached(queue(1)).await;
    for page in 0..600 {
        let reserved = world.cache.reserve(&cached, 4_096, world.bounds());
        let mut reserved = reserved.expect("there is room");
        let offsets = reserved.offsets().to_vec();
        reserved.skip(&offsets[1..]);
        drop(reserved);
        assert_eq!(world.pop(1).await[0].offset.get(), page * 4_096);
        world.sink.answer(page * 4_096, Answer::Rows(5));
    }
    world.start();
    world.pass(HIDDEN + Duration::from_secs(2)).await;
    // Mutant: the keys of a batch are not counted; it is refused for ever.
    assert_eq!(world.committed().await, 600 * 4_096);
    assert!(world.faults.call_count(Call::Write) < 40);
}

#[tokio::test(start_paused = true)]
async fn a_storm_of_many_queues_leaves_room_at_the_store() {
    let mut world = World::new();
    for topic in 1..=5 {
        let popped = world.try_pop(queue(topic), 100).await;
        assert_eq!(popped.expect("there is room").len(), 100);
    }
    let before = world.faults.call_count(Call::Write);
    for write in 0..5 {
        world.fail_write(write, Fault::Hang(Effect::DidNotHappen));
    }
    world.start();
    world.pass(HIDDEN + Duration::from_secs(1)).await;
    // Mutant: each queue writes as it likes; whoever sends meanwhile waits for all five.
    assert_eq!(world.faults.call_count(Call::Write) - before, 2);
    for _ in 0..3 {
        world.faults.release();
        world.pass(Duration::from_secs(1)).await;
    }
    for topic in 1..=5 {
        let cached = world.cached(queue(topic)).await;
        assert_eq!(cached.look(LeaseQueue::committed).get(), 100);
    }
}
