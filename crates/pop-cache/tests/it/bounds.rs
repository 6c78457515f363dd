//! How much may be out and in memory, and who is told when there is room again.

use std::{collections::BTreeSet, time::Duration};

use pop_cache::CacheError;
use pop_model::Mutant;
use pop_store::{Durability, testkit::Fault};

use crate::{
    mutants::held_against,
    world::{HIDDEN, World, options, queue},
};

fn few_per_queue() -> World {
    World::with(options(|options| options.in_flight_per_queue_max = 4))
}

fn few_per_group() -> World {
    World::with(options(|options| options.in_flight_per_group_max = 4))
}

#[test]
fn no_more_of_a_queue_is_out_than_is_allowed() {
    held_against(&[Mutant::BoundIgnored], || async {
        let world = few_per_queue();
        assert_eq!(world.pop(3).await.len(), 3);
        assert_eq!(world.pop(3).await.len(), 1);
        let full = world.try_pop(queue(1), 1).await;
        assert!(matches!(full, Err(CacheError::Full { in_flight: 4, .. })));
        let other = world.try_pop(queue(2), 1).await.expect("it is another");
        assert_eq!(other.len(), 1);
    });
}

#[test]
fn no_more_of_a_group_is_out_than_is_allowed() {
    held_against(&[Mutant::BoundIgnored], || async {
        let world = few_per_group();
        let first = world.try_pop(queue(1), 3).await.expect("there is room");
        let second = world.try_pop(queue(2), 3).await.expect("there is room");
        assert_eq!((first.len(), second.len()), (3, 1));
        let full = world.try_pop(queue(3), 1).await;
        assert!(matches!(full, Err(CacheError::Full { in_flight: 4, .. })));
    });
}

#[test]
fn a_receive_that_was_held_back_is_woken_when_there_is_room() {
    held_against(&[Mutant::WakeUpLost], || async {
        let mut world = few_per_queue();
        let popped = world.pop(4).await;
        world.try_pop(queue(1), 1).await.expect_err("it is full");
        world.sink.take_ready();
        world
            .ack(&popped[0], Durability::Buffered)
            .await
            .expect("it is out");
        assert!(world.sink.take_ready().contains(&queue(1)));
        // The rest is freed at once.
        world.pop(1).await;
        world.try_pop(queue(1), 1).await.expect_err("it is full");
        world.start();
        world.pass(HIDDEN + Duration::from_millis(300)).await;
        // Mutant: only a change from exactly as many as are allowed wakes anybody.
        assert!(world.sink.take_ready().contains(&queue(1)));
        assert_eq!(world.pop(9).await.len(), 4);
    });
}

#[tokio::test(start_paused = true)]
async fn whoever_frees_a_group_wakes_every_queue_of_it_that_was_held_back() {
    let world = few_per_group();
    let popped = world.pop(4).await;
    for topic in [2, 3] {
        let full = world.try_pop(queue(topic), 1).await;
        full.expect_err("it is full");
    }
    world.sink.take_ready();
    world
        .ack(&popped[0], Durability::Buffered)
        .await
        .expect("it is out");
    // Mutant: only the queue of the message that was acknowledged is told.
    let woken = BTreeSet::from([queue(2), queue(3)]);
    assert_eq!(world.sink.take_ready(), woken);
}

#[tokio::test(start_paused = true)]
async fn whoever_found_nothing_is_woken_when_a_receive_comes_to_nothing() {
    let mut world = World::new();
    world.log_end = 1;
    let cached = world.cached(queue(1)).await;
    let reserved = world.cache.reserve(&cached, 1, world.bounds());
    assert!(world.pop(1).await.is_empty());
    world.sink.take_ready();
    drop(reserved.expect("there is room"));
    assert!(world.sink.take_ready().contains(&queue(1)));
    assert_eq!(world.pop(1).await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn what_is_stored_counts_after_a_restart_too() {
    let mut world = few_per_queue();
    let popped = world.pop(4).await;
    world.cache.close().await.expect("the store is well");
    world.crash(0);
    world.start();
    let cached = world.cached(queue(1)).await;
    // One of them ends while they are being counted.
    world
        .ack(&popped[0], Durability::Buffered)
        .await
        .expect("it is stored");
    world.pass(Duration::from_millis(300)).await;
    // Mutant: only what this run stored is counted.
    assert_eq!(cached.in_flight(), 3);
    assert_eq!(world.pop(9).await.len(), 1);
    world.try_pop(queue(1), 1).await.expect_err("it is full");
    // After a reset nothing is out, whatever rows are left.
    world
        .cache
        .reset(&cached, pop_model::Offset::new(100))
        .await
        .expect("the store is well");
    assert_eq!(cached.in_flight(), 0);
    world.cache.stored_ended(&popped[1]);
    assert_eq!(cached.in_flight(), 0);
    assert_eq!(world.pop(9).await.len(), 4);
}

#[tokio::test(start_paused = true)]
async fn beyond_the_most_leases_in_memory_a_receive_stores_as_many_as_it_adds() {
    let world = World::with(options(|options| options.leases_max = 10));
    let first = world.pop(10).await;
    assert!(world.rows().await.is_empty());
    world.clock.advance(Duration::from_millis(100));
    let more = world.pop(4).await;
    // Those that have been there longest. They were handed out together, so all go.
    assert_eq!(more.len(), 4);
    assert_eq!(world.row_offsets().await, (0..10).collect::<Vec<_>>());
    assert_eq!(world.cache.lease_count(), 4);
    for identity in first.iter().chain(&more) {
        let acked = world.ack(identity, Durability::Buffered).await;
        acked.expect("each handle is good");
    }
}

#[tokio::test(start_paused = true)]
async fn memory_that_others_fill_makes_a_receive_store_its_own() {
    let world = World::with(options(|options| options.leases_max = 10));
    world.try_pop(queue(2), 10).await.expect("there is room");
    let popped = world.pop(3).await;
    assert_eq!(popped.len(), 3);
    assert_eq!(world.row_offsets().await, [0, 1, 2]);
    assert_eq!(world.cache.lease_count(), 10);
}

#[tokio::test(start_paused = true)]
async fn a_receive_whose_leases_can_not_be_stored_is_turned_away() {
    let world = World::with(options(|options| options.leases_max = 10));
    world.pop(10).await;
    world.fail_write(0, Fault::Refuse);
    let full = world.try_pop(queue(1), 4).await;
    assert!(matches!(full, Err(CacheError::Full { .. })), "{full:?}");
    // Mutant: they go out nevertheless, and nothing bounds the memory.
    assert_eq!(world.cache.lease_count(), 10);
    let popped = world.pop(1).await;
    assert_eq!(popped[0].offset.get(), 10, "they were given back");
}

#[tokio::test(start_paused = true)]
async fn a_receive_that_is_turned_away_while_the_store_refuses_everything_began_no_delivery() {
    // Mutant: they are leased first, and given back by a write that is refused, too.
    let world = World::with(options(|options| options.leases_max = 10));
    world.try_pop(queue(2), 10).await.expect("there is room");
    let cached = world.cached(queue(1)).await;
    for nth in 0..9 {
        world.fail_write(nth, Fault::Refuse);
    }
    let full = world.try_pop(queue(1), 3).await;
    assert!(matches!(full, Err(CacheError::Full { .. })), "{full:?}");
    world.faults.disarm();
    assert_eq!(cached.in_flight(), 0);
    assert!(world.rows().await.is_empty());
    let popped = world.pop(3).await;
    let popped: Vec<_> = popped.iter().map(|it| it.offset.get()).collect();
    assert_eq!(popped, [0, 1, 2]);
}
