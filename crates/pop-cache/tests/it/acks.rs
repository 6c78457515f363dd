//! Acknowledgements: when they count, and when they are durable.

use std::time::Duration;

use pop_cache::CacheError;
use pop_model::{Mutant, Offset};
use pop_store::{
    Durability,
    testkit::{Call, Fault},
};

use crate::{
    mutants::held_against,
    sink::Answer,
    world::{HIDDEN, World, queue},
};

const SYNCED: Durability = Durability::Synced;
const BUFFERED: Durability = Durability::Buffered;

#[tokio::test(start_paused = true)]
async fn a_synced_acknowledgement_survives_a_power_cut() {
    let mut world = World::new();
    world.start();
    let popped = world.pop(2).await;
    world.ack(&popped[1], SYNCED).await.expect("it is out");
    // Mutant: it is answered before it is synced.
    world.crash(0);
    assert_eq!(world.pop(9).await[0].offset.get(), 0);
    assert_eq!(world.pop(1).await[0].offset.get(), 10);
}

#[tokio::test(start_paused = true)]
async fn a_synced_acknowledgement_waits_for_the_sync_whoever_wrote_its_mark() {
    let mut world = World::new();
    let popped = world.pop(2).await;
    let cached = world.cached(queue(1)).await;
    let (acked, ()) = tokio::join!(world.ack(&popped[1], SYNCED), async {
        // A write that is not synced takes the mark along.
        let reserved = world.cache.reserve(&cached, 1, world.bounds());
        let mut reserved = reserved.expect("there is room");
        let offset = reserved.offsets()[0];
        let settled = reserved.settle(offset, pop_store::WriteBatch::new());
        settled.await.expect("the store is well");
        assert!(world.is_settled(1).await);
        // Mutant: that it is committed is taken for synced.
        assert_eq!(cached.look(pop_cache::LeaseQueue::acks_durable), 0);
        world.cache.flush().await.expect("the store is well");
    });
    acked.expect("it is out");
    world.crash(0);
    assert!(world.is_settled(1).await);
}

#[test]
fn a_buffered_acknowledgement_is_synced_soon_without_any_traffic() {
    held_against(&[Mutant::FlushOnlyWithTraffic], || async {
        let mut world = World::new();
        world.start();
        let popped = world.pop(1).await;
        world.pass(Duration::from_millis(500)).await;
        world.ack(&popped[0], BUFFERED).await.expect("it is out");
        assert_eq!(world.committed().await, 0, "it costs no write of its own");
        world.pass(Duration::from_millis(200)).await;
        world.crash(0);
        assert_eq!(world.committed().await, 1);
    });
}

#[tokio::test(start_paused = true)]
async fn acknowledgements_of_many_queues_share_a_sync() {
    let mut world = World::new();
    world.start();
    let mut popped = Vec::new();
    for topic in 1..=20 {
        let granted = world.try_pop(queue(topic), 2).await.expect("there is room");
        popped.extend(granted);
    }
    let before = world.faults.call_count(Call::Write);
    let acks = popped.iter().map(|it| world.ack(&it.identity, SYNCED));
    for acked in futures::future::join_all(acks).await {
        acked.expect("it is out");
    }
    // Mutant: each queue is written alone; there would be 20 writes.
    assert!(world.faults.call_count(Call::Write) - before <= 2);
}

#[tokio::test(start_paused = true)]
async fn a_flush_that_is_refused_is_flushed_with_the_next_one() {
    let mut world = World::new();
    let first = world.pop(1).await;
    let other = world.try_pop(queue(2), 1).await.expect("there is room");
    world.ack(&first[0], BUFFERED).await.expect("it is out");
    world
        .ack(&other[0].identity, BUFFERED)
        .await
        .expect("it is out");
    world.fail_write(0, Fault::Refuse);
    world.cache.flush().await.expect_err("it is refused");
    assert_eq!(world.committed().await, 0);
    world.start();
    world.pass(Duration::from_millis(500)).await;
    assert_eq!(world.committed().await, 1);
}

#[tokio::test(start_paused = true)]
async fn a_queue_whose_write_is_slow_holds_up_the_acknowledgements_of_no_other() {
    let world = World::new();
    let busy = world.try_pop(queue(2), 2).await.expect("there is room");
    let first = world.pop(1).await;
    let cached = world.cached(queue(2)).await;
    for identity in [&busy[1].identity, &first[0]] {
        world.ack(identity, BUFFERED).await.expect("it is out");
    }
    world.fail_write(0, Fault::Delay(Duration::from_secs(3)));
    let mut reserved = world
        .cache
        .reserve(&cached, 1, world.bounds())
        .expect("there is room");
    let offset = reserved.offsets()[0];
    let slow = reserved.settle(offset, pop_store::WriteBatch::new());
    let (settled, flushed, ()) = tokio::join!(slow, world.cache.flush(), async {
        // Mutant: the flush waits for the turn of the second queue before it takes the next.
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert_eq!(world.committed().await, 1);
    });
    settled.expect("it is written in the end");
    flushed.expect("nothing is refused");
    assert!(!cached.look(|leases| leases.is_dirty()));
}

#[tokio::test(start_paused = true)]
async fn a_queue_that_waits_for_its_turn_is_not_forgotten_by_a_refused_flush() {
    let world = World::new();
    let first = world.pop(1).await;
    let busy = world.try_pop(queue(2), 2).await.expect("there is room");
    let cached = world.cached(queue(2)).await;
    world.ack(&first[0], BUFFERED).await.expect("it is out");
    world
        .ack(&busy[1].identity, BUFFERED)
        .await
        .expect("it is out");
    // A write of the second queue runs; the flush writes what it has before it waits, and
    // that is refused.
    world.fail_write(0, Fault::Delay(Duration::from_secs(1)));
    world.fail_write(1, Fault::Refuse);
    let mut reserved = world
        .cache
        .reserve(&cached, 1, world.bounds())
        .expect("there is room");
    let offset = reserved.offsets()[0];
    let settled = reserved.settle(offset, pop_store::WriteBatch::new());
    let (settled, flushed) = tokio::join!(settled, async {
        tokio::task::yield_now().await;
        world.cache.flush().await
    });
    settled.expect("it is late, and written");
    flushed.expect_err("it is refused");
    world
        .ack(&busy[0].identity, BUFFERED)
        .await
        .expect("it is out");
    // Mutant: the queue was taken off the list and not put back; it is never flushed again.
    world.cache.flush().await.expect("the store is well");
    assert_eq!(cached.look(|leases| leases.committed().get()), 3);
    assert_eq!(world.committed().await, 1);
}

#[tokio::test(start_paused = true)]
async fn an_acknowledgement_waits_for_the_outcome_that_is_being_written() {
    // Revived: the handle is over. Refused: it counts.
    for (fault, is_over) in [
        (Fault::Delay(Duration::from_secs(1)), true),
        (Fault::Refuse, false),
    ] {
        let mut world = World::new();
        world.sink.answer(0, Answer::Slow(Duration::from_secs(1)));
        world.start();
        let popped = world.pop(1).await;
        world.pass(HIDDEN).await;
        world.fail_write(0, fault);
        let (acked, ()) = tokio::join!(
            world.ack(&popped[0], BUFFERED),
            world.pass(Duration::from_secs(3))
        );
        // Mutant: it is answered at once, and the message comes again.
        assert_eq!(matches!(acked, Err(CacheError::Over)), is_over, "{acked:?}");
        assert_eq!(acked.is_ok(), !is_over);
        world.pass(Duration::from_secs(3)).await;
        assert_eq!(world.committed().await, 1);
    }
}

#[tokio::test(start_paused = true)]
async fn an_acknowledgement_of_a_lease_that_is_being_stored_ends_it() {
    let mut world = World::new();
    let popped = world.pop(1).await;
    let cached = world.cached(queue(1)).await;
    let hidden = Duration::from_secs(60);
    let changed = world
        .cache
        .change(&cached, &popped[0], hidden, false, BUFFERED);
    changed.await.expect("it is out");
    world.start();
    world.pass(Duration::from_millis(9_900)).await;
    world.fail_write(0, Fault::Delay(Duration::from_secs(1)));
    world.pass(Duration::from_millis(200)).await;
    assert_eq!(cached.look(|leases| leases.counts().staged), 1);
    let (acked, ()) = tokio::join!(
        world.ack(&popped[0], BUFFERED),
        world.pass(Duration::from_secs(2))
    );
    acked.expect("it is its own");
    // Mutant: the row that is being written stays, and the message comes again.
    assert!(world.rows().await.is_empty());
    assert_eq!(cached.in_flight(), 0);
}

#[test]
fn a_change_brings_nothing_back_that_is_over() {
    held_against(&[Mutant::ChangeRevivesTheDead], || async {
        let world = World::new();
        let popped = world.pop(1).await;
        let cached = world.cached(queue(1)).await;
        world.ack(&popped[0], BUFFERED).await.expect("it is out");
        let changed = world
            .cache
            .change(&cached, &popped[0], HIDDEN, false, BUFFERED);
        assert!(matches!(changed.await, Err(CacheError::Over)));
        assert!(world.rows().await.is_empty());
    });
}

#[test]
fn a_handle_ends_no_other_delivery_of_a_stored_message() {
    held_against(&[Mutant::AckByOffsetAlone], || async {
        let mut world = World::new();
        let popped = world.pop(1).await;
        world.cache.close().await.expect("the store is well");
        assert_eq!(world.row_offsets().await, [0]);
        let forged = pop_model::DeliveryIdentity {
            generation: pop_model::Generation::new(7),
            ..popped[0]
        };
        world.crash(usize::MAX);
        let acked = world.ack(&forged, BUFFERED).await;
        assert!(matches!(acked, Err(CacheError::Over)), "{acked:?}");
        world
            .ack(&popped[0], BUFFERED)
            .await
            .expect("it is its own");
    });
}

#[tokio::test(start_paused = true)]
async fn a_delivery_that_reached_nobody_is_given_back_wherever_it_is() {
    let world = World::new();
    let popped = world.pop(1).await;
    world.cache.give_back(&popped[0]).await.expect("it is out");
    let again = world.pop(1).await;
    assert_eq!(again[0].offset, Offset::ZERO);
    world.cache.close().await.expect("the store is well");
    world
        .cache
        .give_back(&again[0])
        .await
        .expect("it is stored");
    let rows = world.rows().await;
    // Due at once, and not counted as an attempt.
    assert!(rows[0].suspend && rows[0].visible_at.as_millis() == 1_000_000);
}

#[tokio::test(start_paused = true)]
async fn a_synced_acknowledgement_does_not_outwait_a_reset() {
    let world = World::new();
    let popped = world.pop(1).await;
    let cached = world.cached(queue(1)).await;
    // Nobody flushes here, and the reset makes it void.
    let (acked, reset) = tokio::join!(world.ack(&popped[0], SYNCED), async {
        tokio::task::yield_now().await;
        world.cache.reset(&cached, Offset::ZERO).await
    });
    reset.expect("the store is well");
    // Mutant: acknowledgements are counted anew; it would wait until its limit.
    acked.expect("nothing is left to wait for");
}

#[tokio::test(start_paused = true)]
async fn an_acknowledgement_that_is_not_synced_in_time_says_so_and_ends_nothing() {
    let world = World::new();
    let popped = world.pop(1).await;
    let acked = world.ack(&popped[0], SYNCED).await;
    // Nobody flushes here. Mutant: it is in doubt, and the store is opened anew for it.
    assert!(matches!(acked, Err(CacheError::Busy(_))), "{acked:?}");
    world.cache.flush().await.expect("the store is well");
    assert_eq!(world.committed().await, 1);
}
