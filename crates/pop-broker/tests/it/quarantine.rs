//! A row that can't be read is put away where it can be listed, and its neighbours go on
//! (P6, BR-B01).

use bytes::Bytes;
use pop_broker::NewMessage;
use pop_model::{
    BodyChunkKey, BodyId, LeaseKey, LogKey, MessageBody, QuarantineRecord, RetryKey, StoredKey,
    SubscriptionQueue,
};
use pop_store::{
    Durability, Keyspace, Store, WriteBatch,
    table::{BODY, LEASE, LOG, RETRY, quarantine},
};

use crate::{
    audit::{all, messages},
    world::{INVISIBLE, World, ids, seen},
};

const BROKEN: &[u8] = b"not a row";

/// The key of a message in the log, and where its body is.
async fn locate(world: &World, id: &str) -> (LogKey, MessageBody) {
    let found = messages(&world.rows()).await.into_iter();
    let mut found = found.filter(|(_, message)| message.message_id == id);
    let (key, message) = found.next().expect("it was sent");
    (key, message.body)
}

/// The key of the lease that group `g` has on the first message.
async fn lease_key(world: &World, id: &str) -> Bytes {
    let (key, _) = locate(world, id).await;
    let group = world.broker.group(&crate::world::group("g")).unwrap();
    let queue = SubscriptionQueue {
        group: group.unwrap().id,
        topic: key.queue.topic,
        queue: key.queue.queue,
    };
    let offset = key.offset;
    LeaseKey { queue, offset }.encode()
}

async fn overwrite(world: &World, keyspace: Keyspace, key: Bytes) {
    let mut batch = WriteBatch::new();
    batch.put(keyspace, key, BROKEN.into());
    let written = world.rows().write(batch, Durability::Synced).await;
    written.unwrap();
}

async fn put_away(world: &World) -> Vec<QuarantineRecord> {
    let listed = quarantine::list(&world.rows(), 0, 100).await.unwrap();
    listed.into_iter().map(|(_, record)| record).collect()
}

async fn world_with(ids: &[&str]) -> World {
    let world = World::new().await;
    for id in ids {
        world.send("orders", id).await;
    }
    world
}

#[tokio::test(start_paused = true)]
async fn a_log_row_that_is_broken_goes_to_quarantine_and_its_neighbours_are_delivered() {
    let world = world_with(&["a", "b", "c"]).await;
    let (key, _) = locate(&world, "a").await;
    overwrite(&world, LOG, key.encode()).await;
    let deliveries = world.receive("g", "orders").await;
    assert_eq!(ids(&deliveries), ["b", "c"]);
    let records = put_away(&world).await;
    assert_eq!(records.len(), 1);
    assert_eq!(records[0].keyspace, LOG.name());
    assert_eq!(records[0].key, key.encode());
    assert_eq!(records[0].value, BROKEN);
    assert!(!records[0].reason.is_empty());

    // Once: a restart does not find it again, and the row itself stays where it is.
    for delivery in &deliveries {
        world.ack("g", "orders", delivery).await.unwrap();
    }
    world.rest().await;
    let world = world.crash(usize::MAX).await;
    assert!(world.receive("g", "orders").await.is_empty());
    assert_eq!(put_away(&world).await.len(), 1);
    assert_eq!(all(&world.rows(), LOG).await.len(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_message_whose_body_has_a_hole_goes_to_quarantine() {
    let world = World::new().await;
    let large = NewMessage::new("a", vec![1; 600 << 10].into());
    world.try_send("orders", large).await.unwrap();
    world.send("orders", "b").await;
    let body = locate(&world, "a").await.1;
    let MessageBody::Chunked { id, .. } = body else {
        panic!("a body of that size is in chunks: {body:?}");
    };
    lose_chunk(&world, id).await;
    assert_eq!(ids(&world.receive("g", "orders").await), ["b"]);
    let records = put_away(&world).await;
    assert_eq!(records.len(), 1);
    assert!(records[0].reason.contains("body"), "{}", records[0].reason);
}

async fn lose_chunk(world: &World, body: BodyId) {
    let mut batch = WriteBatch::new();
    batch.delete(BODY, BodyChunkKey { body, chunk: 1 }.encode());
    let written = world.rows().write(batch, Durability::Synced).await;
    written.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_body_that_gets_a_hole_while_it_is_out_goes_to_quarantine_at_its_next_delivery() {
    let world = World::new().await;
    let large = NewMessage::new("a", vec![1; 600 << 10].into());
    world.try_send("orders", large).await.unwrap();
    world.send("orders", "b").await;
    world.receive("g", "orders").await;
    let MessageBody::Chunked { id, .. } = locate(&world, "a").await.1 else {
        panic!("a body of that size is in chunks");
    };
    lose_chunk(&world, id).await;
    world.advance(INVISIBLE).await;
    assert_eq!(seen(&world.receive("g", "orders").await), [("b", 2)]);
    let records = put_away(&world).await;
    assert_eq!(records.len(), 1);
    assert_eq!(records[0].keyspace, RETRY.name());
}

#[tokio::test(start_paused = true)]
async fn a_lease_row_that_is_broken_goes_to_quarantine_and_its_neighbours_come_again() {
    let world = world_with(&["a", "b", "c"]).await;
    world.receive("g", "orders").await;
    world.stay().await;
    let key = lease_key(&world, "a").await;
    overwrite(&world, LEASE, key.clone()).await;
    world.advance(INVISIBLE).await;
    let again = world.receive("g", "orders").await;
    assert_eq!(seen(&again), [("b", 2), ("c", 2)]);
    let records = put_away(&world).await;
    assert_eq!(records.len(), 1);
    assert_eq!(records[0].keyspace, LEASE.name());
    assert_eq!(records[0].key, key);
    assert_eq!(records[0].value, BROKEN);
}

#[tokio::test(start_paused = true)]
async fn an_acknowledgement_of_a_broken_lease_row_is_an_error_and_its_neighbours_are_acked() {
    let world = world_with(&["a", "b"]).await;
    let deliveries = world.receive("g", "orders").await;
    world.stay().await;
    overwrite(&world, LEASE, lease_key(&world, "a").await).await;
    assert!(world.ack("g", "orders", &deliveries[0]).await.is_err());
    world.ack("g", "orders", &deliveries[1]).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_retry_row_that_is_broken_goes_to_quarantine_and_its_neighbours_come_again() {
    let world = world_with(&["a", "b"]).await;
    world.receive("g", "orders").await;
    world.advance(INVISIBLE).await;
    let first = all(&world.rows(), RETRY).await.remove(0);
    overwrite(&world, RETRY, first.key.clone()).await;
    assert_eq!(world.receive("g", "orders").await.len(), 1);
    let records = put_away(&world).await;
    assert_eq!(records.len(), 1);
    assert_eq!(records[0].keyspace, RETRY.name());
    assert_eq!(records[0].value, BROKEN);
    assert!(RetryKey::decode(first.key).is_ok());
    world.advance(INVISIBLE).await;
    assert_eq!(world.receive("g", "orders").await.len(), 1);
}
