//! What a pass looks at: all that is due, at its moment, and nothing that is done.

use std::time::Duration;

use bytes::Bytes;
use pop_model::{Checkpoint, LeaseTime, StoredValue};
use pop_revive::ReviverOptions;
use pop_store::{
    Durability, Store, WriteBatch,
    table::{DUE, DueSchedule, LEASE, lease, meta, quarantine},
};

use crate::world::{QUEUE, START, World};

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test]
async fn a_delivery_is_due_at_its_deadline_and_not_a_millisecond_before() {
    let world = World::new();
    world.lease(0, SECOND).await;
    world.clock.advance(SECOND - Duration::from_millis(1));
    assert_eq!(world.pass().await.retried, 0);
    world.clock.advance(Duration::from_millis(1));
    // Mutant: "later than now" where "now or earlier" is meant (BR-D16).
    assert_eq!(world.pass().await.retried, 1);
}

#[tokio::test]
async fn many_deliveries_due_at_one_instant_are_each_revived_once_over_several_passes() {
    let mut options = ReviverOptions::default();
    options.hints_max = 64;
    let world = World::with(options);
    for offset in 0..1_000 {
        world.lease(offset, SECOND).await;
    }
    world.clock.advance(SECOND);
    let mut passes = 0;
    while world.is_due() {
        world.pass().await;
        passes += 1;
        assert!(passes <= 40, "a pass made no progress");
    }
    assert_eq!(world.retried().await, (0..1_000).collect::<Vec<_>>());
    assert_eq!(world.sink.asked.lock().len(), 1_000);
    assert_eq!(world.hint_count().await, 0);
}

#[tokio::test]
async fn a_renewal_moves_the_hint_when_it_is_due_and_the_delivery_waits_for_its_new_moment() {
    let world = World::new();
    let before = world.lease(0, SECOND).await;
    let after = Checkpoint {
        visible_at: START.saturating_add(60 * SECOND),
        ..before.clone()
    };
    let mut batch = WriteBatch::new();
    lease::postpone(&mut batch, before.encode(), &after);
    world.store.write(batch, Durability::Synced).await.unwrap();

    world.clock.advance(SECOND);
    assert_eq!(world.pass().await.moved, 1);
    assert_eq!(world.hint_count().await, 1);
    world.clock.advance(58 * SECOND);
    assert!(!world.is_due());
    world.clock.advance(SECOND);
    // Mutant: the old hint is dropped and no new one put; the lease never ends.
    assert!(world.is_due());
    assert_eq!(world.pass().await.retried, 1);
}

#[tokio::test]
async fn a_hint_of_a_delivery_that_is_over_is_dropped() {
    let world = World::new();
    let checkpoint = world.lease(0, SECOND).await;
    let mut batch = WriteBatch::new();
    batch.delete(LEASE, checkpoint.lease_key());
    world.store.write(batch, Durability::Synced).await.unwrap();
    world.clock.advance(SECOND);
    let report = world.pass().await;
    assert_eq!((report.dropped, report.retried), (1, 0));
    assert_eq!(world.hint_count().await, 0);
    assert!(world.sink.asked.lock().is_empty());
}

#[tokio::test]
async fn a_row_that_can_not_be_decoded_goes_to_quarantine_and_its_neighbour_is_revived() {
    let world = World::new();
    let checkpoint = world.lease(0, SECOND).await;
    world.lease(1, SECOND).await;
    let mut batch = WriteBatch::new();
    batch.put(
        LEASE,
        checkpoint.lease_key(),
        Bytes::from_static(b"rubbish"),
    );
    world.store.write(batch, Durability::Synced).await.unwrap();
    world.clock.advance(SECOND);
    let report = world.pass().await;
    assert_eq!((report.quarantined, report.retried), (1, 1));
    let records = quarantine::list(world.store.as_ref(), 0, 9).await.unwrap();
    assert_eq!(records[0].1.value, "rubbish");
    assert_eq!(world.hint_count().await, 0);
}

#[tokio::test]
async fn the_stored_floor_passes_what_is_done_and_nothing_that_is_not() {
    let world = World::new();
    world.lease(0, SECOND).await;
    world.lease(1, 60 * SECOND).await;
    world.clock.advance(30 * SECOND);
    world.pass().await;
    let stored = meta::due_floor(world.store.as_ref(), QUEUE.shard())
        .await
        .unwrap();
    assert!(
        stored > START.saturating_add(SECOND),
        "it passes the hint at 1 s"
    );
    // Mutant: the floor is the last hint that was read, whatever became of it.
    assert!(
        stored <= START.saturating_add(60 * SECOND),
        "it stays below the hint at 60 s"
    );
    world.clock.advance(30 * SECOND - Duration::from_millis(1));
    assert!(!world.is_due());
    world.clock.advance(Duration::from_millis(1));
    assert!(world.is_due());
    let restored = DueSchedule::restore(|_| stored);
    assert_eq!(restored.earliest(), Some(stored));
    assert_ne!(stored, LeaseTime::ZERO);
    assert_eq!(
        world
            .store
            .scan(DUE, pop_store::Scan::all())
            .await
            .unwrap()
            .len(),
        1
    );
}
