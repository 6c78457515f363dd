//! Records that can't be read: put away, one by one, and their queue goes on (P5, P6).

use bytes::Bytes;
use pop_model::{LeaseKey, MarkPageKey, Offset, StoredKey};
use pop_store::{
    Durability, Keyspace, Store, WriteBatch,
    table::{LEASE, PROGRESS},
};

use crate::world::{World, queue};

async fn damage(world: &World, keyspace: Keyspace, key: Bytes) {
    let row = world.store.get(keyspace, &key).await;
    let row = row.expect("the store answers").expect("it is there");
    let mut damaged = row.to_vec();
    damaged
        .iter_mut()
        .skip(5)
        .take(1)
        .for_each(|byte| *byte ^= 1);
    let mut batch = WriteBatch::new();
    batch.put(keyspace, key, damaged.into());
    let written = world.store.write(batch, Durability::Synced).await;
    written.expect("the store is well");
}

#[tokio::test(start_paused = true)]
async fn a_row_of_an_ordered_queue_that_can_not_be_read_goes_to_quarantine_alone() {
    // Mutant: the queue can't be loaded any more.
    let mut world = World::ordered();
    let popped = world.pop(3).await;
    world.cache.close().await.expect("the store is well");
    let key = LeaseKey {
        queue: queue(1),
        offset: Offset::new(1),
    };
    damage(&world, LEASE, key.encode()).await;
    world.crash(0);
    assert!(world.pop(9).await.is_empty(), "its group is blocked");
    assert_eq!(world.quarantined().await, 1);
    assert_eq!(world.row_offsets().await, [0, 2]);
    // The others go on as their rows say.
    for identity in [&popped[0], &popped[2]] {
        let acked = world.ack(identity, Durability::Buffered).await;
        acked.expect("its row says that it is out");
    }
    let again = world.pop(9).await;
    assert_eq!(again[0].offset.get(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_page_of_marks_that_can_not_be_read_goes_to_quarantine_alone() {
    // Mutant: the queue can't be loaded any more.
    let mut world = World::new();
    world.log_end = 6;
    let cached = world.cached(queue(1)).await;
    // It holds the gate.
    let first = world.cache.reserve(&cached, 1, world.bounds());
    let popped = world.pop(3).await;
    let acked = world.ack(&popped[0], Durability::Buffered).await;
    acked.expect("it is out");
    world.cache.close().await.expect("the store is well");
    assert_eq!(world.row_offsets().await, [2, 3]);
    assert_eq!(world.committed().await, 0);
    drop(first);
    let key = MarkPageKey {
        queue: queue(1),
        page: 0,
    };
    damage(&world, PROGRESS, key.encode()).await;
    for _ in 0..2 {
        // What takes its place is there after one more start, too.
        world.crash(usize::MAX);
        world.cached(queue(1)).await;
        assert_eq!(world.quarantined().await, 1);
    }
    // What was acknowledged comes again. Mutant: so does what is stored, to a second
    // consumer.
    let again = world.pop(9).await;
    let again: Vec<_> = again.iter().map(|it| it.offset.get()).collect();
    assert_eq!(again, [0, 1, 4, 5]);
    for identity in &popped[1..] {
        let acked = world.ack(identity, Durability::Buffered).await;
        acked.expect("its row is there");
    }
}
