//! What is in quarantine goes back to work once it can be worked on, or is dropped when
//! somebody says so; it is never in two places, and never in none (P6).

use bytes::Bytes;
use pop_broker::{BrokerError, DeadLetters, NewMessage, ResetTo};
use pop_model::{BodyChunkKey, LogKey, MessageBody, QuarantineRecord, StoredKey, TopicName};
use pop_store::{
    Durability, Keyspace, Store, WriteBatch,
    table::{BODY, LEASE, LOG, QUARANTINE, RETRY, quarantine},
    testkit::{Call, Effect, Fault},
};

use crate::{
    audit::{all, messages},
    world::{INVISIBLE, World, group, ids, request, seen, topic},
};

/// The key of a message in the log, its row, and where its body is.
async fn locate(world: &World, id: &str) -> (Bytes, Bytes, MessageBody) {
    let found = messages(&world.rows()).await.into_iter();
    let mut found = found.filter(|(_, message)| message.message_id == id);
    let (key, message): (LogKey, _) = found.next().expect("it was sent");
    let row = world.rows().get(LOG, &key.encode()).await.unwrap();
    (key.encode(), row.unwrap(), message.body)
}

async fn put(world: &World, keyspace: Keyspace, key: Bytes, value: Bytes) {
    let mut batch = WriteBatch::new();
    batch.put(keyspace, key, value);
    let written = world.rows().write(batch, Durability::Synced).await;
    written.unwrap();
}

async fn records(world: &World) -> Vec<(u64, QuarantineRecord)> {
    quarantine::list(&world.rows(), 0, 100).await.unwrap()
}

/// The one record that there is.
async fn place(world: &World) -> u64 {
    let records = records(world).await;
    assert_eq!(records.len(), 1, "{records:?}");
    records[0].0
}

#[track_caller]
fn check_stays(outcome: Result<(), BrokerError>, why: &str) {
    let Err(BrokerError::NotRedriven { reason, .. }) = outcome else {
        panic!("it stays: {outcome:?}");
    };
    assert!(reason.contains(why), "{reason}");
}

/// A message that group `g` could not read, and the row that it should have.
async fn unreadable() -> (World, Bytes, Bytes) {
    let world = World::new().await;
    world.send("orders", "a").await;
    world.send("orders", "b").await;
    let (key, row, _) = locate(&world, "a").await;
    put(&world, LOG, key.clone(), "not a row".into()).await;
    assert_eq!(ids(&world.receive("g", "orders").await), ["b"]);
    (world, key, row)
}

#[tokio::test(start_paused = true)]
async fn a_message_is_delivered_to_the_group_that_could_not_read_it() {
    let (world, key, row) = unreadable().await;
    let place = place(&world).await;
    // Mutant: it is taken out whatever it is; the group would never get it.
    check_stays(world.broker.redrive(place).await, "message");
    assert_eq!(records(&world).await.len(), 1);
    put(&world, LOG, key, row).await;
    world.broker.redrive(place).await.unwrap();
    assert!(records(&world).await.is_empty());
    assert_eq!(world.broker.counts().redriven, 1);
    let world = world.crash(0).await;
    // Mutant: it is not synced.
    let again = world.receive("g", "orders").await;
    assert!(seen(&again).contains(&("a", 1)), "{again:?}");
    let twice = world.broker.redrive(place).await.unwrap_err();
    assert!(
        matches!(twice, BrokerError::QuarantineNotFound(_)),
        "{twice}"
    );
}

#[tokio::test(start_paused = true)]
async fn another_group_gets_its_message_once() {
    let (world, key, row) = unreadable().await;
    put(&world, LOG, key, row).await;
    assert_eq!(ids(&world.receive("h", "orders").await), ["a", "b"]);
    world.broker.redrive(place(&world).await).await.unwrap();
    // Mutant: every group gets it.
    assert!(world.receive("h", "orders").await.is_empty());
    assert_eq!(ids(&world.receive("g", "orders").await), ["a"]);
}

#[tokio::test(start_paused = true)]
async fn a_retry_entry_goes_on_with_its_attempt() {
    let world = World::new().await;
    let large = NewMessage::new("a", vec![1; 600 << 10].into());
    world.try_send("orders", large).await.unwrap();
    world.receive_one("g", "orders").await;
    let MessageBody::Chunked { id, .. } = locate(&world, "a").await.2 else {
        panic!("a body of that size is in chunks");
    };
    let chunk = BodyChunkKey { body: id, chunk: 1 }.encode();
    let content = world.rows().get(BODY, &chunk).await.unwrap().unwrap();
    put(&world, BODY, chunk.clone(), Bytes::new()).await;
    world.advance(INVISIBLE).await;
    assert!(world.receive("g", "orders").await.is_empty());
    let place = place(&world).await;
    check_stays(world.broker.redrive(place).await, "body");
    put(&world, BODY, chunk, content).await;
    world.broker.redrive(place).await.unwrap();
    assert_eq!(seen(&world.receive("g", "orders").await), [("a", 2)]);
    assert!(records(&world).await.is_empty());
}

/// A delivery whose dead letter could not be written, from this attempt on, and the row
/// that its message should have.
async fn undead(attempts: u32) -> (World, Bytes, Bytes) {
    let world = World::with(|options| {
        options.cache.failures_max = 0;
        options.reviver.failures_max = 0;
    })
    .await;
    world.create_group("g", attempts).await;
    world.send("orders", "a").await;
    let (key, row, _) = locate(&world, "a").await;
    for _ in 1..attempts {
        world.receive_one("g", "orders").await;
        world.advance(INVISIBLE).await;
    }
    world.receive_one("g", "orders").await;
    put(&world, LOG, key.clone(), "not a row".into()).await;
    world.advance(INVISIBLE).await;
    (world, key, row)
}

async fn dead_letters(world: &World) -> usize {
    let mut dead = request("undertakers", "orders");
    dead.topic = TopicName::dead_letter(&group("g"));
    if world.broker.topic(&dead.topic).unwrap().is_none() {
        return 0;
    }
    world.broker.receive(dead).await.unwrap().take().len()
}

#[tokio::test(start_paused = true)]
async fn a_lease_is_looked_at_again() {
    // Of the topic's own queue, and of the retry queue.
    for attempts in [1, 2] {
        let (world, key, row) = undead(attempts).await;
        let place = place(&world).await;
        assert_eq!(records(&world).await[0].1.keyspace, LEASE.name());
        put(&world, LOG, key, row).await;
        world.broker.redrive(place).await.unwrap();
        world.advance(INVISIBLE).await;
        // Mutant: the row has no hint; nobody looks at it again.
        assert_eq!(dead_letters(&world).await, 1, "{attempts}");
        assert!(records(&world).await.is_empty());
        assert!(all(&world.rows(), LEASE).await.is_empty());
        assert!(all(&world.rows(), RETRY).await.is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_dropped_is_gone_with_what_was_kept_for_it() {
    for attempts in [1, 2] {
        let (world, ..) = undead(attempts).await;
        let place = place(&world).await;
        let dropped = world.broker.drop_quarantined(place).await.unwrap();
        assert_eq!(dropped.keyspace, LEASE.name());
        assert!(records(&world).await.is_empty());
        // Mutant: the retry entry stays, and nobody will ever look at it.
        assert!(all(&world.rows(), RETRY).await.is_empty());
        assert_eq!(world.broker.counts().quarantine_dropped, 1);
        let world = world.crash(0).await;
        assert!(records(&world).await.is_empty());
        let again = world.broker.drop_quarantined(place).await.unwrap_err();
        assert!(
            matches!(again, BrokerError::QuarantineNotFound(_)),
            "{again}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn what_nobody_waits_for_stays_until_it_is_dropped() {
    let (world, key, row) = undead(1).await;
    put(&world, LOG, key, row).await;
    let (by, of) = (group("g"), topic("orders"));
    let reset = world.broker.reset_offset(&by, &of, ResetTo::Latest).await;
    reset.unwrap();
    let place = place(&world).await;
    check_stays(world.broker.redrive(place).await, "reset");
    let keep = DeadLetters::Keep;
    world.broker.delete_group(&group("g"), keep).await.unwrap();
    check_stays(world.broker.redrive(place).await, "deleted");
    world.broker.drop_quarantined(place).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_record_that_nobody_can_read_stays() {
    let (world, ..) = unreadable().await;
    let at = place(&world).await;
    let (row, mut record) = quarantine::get(&world.rows(), at).await.unwrap().unwrap();
    for keyspace in [LEASE.name(), RETRY.name(), "meta"] {
        let mut batch = WriteBatch::new();
        record.keyspace = keyspace.into();
        quarantine::put_copy(&mut batch, at + 1, record.clone());
        world.rows().write(batch, Durability::Synced).await.unwrap();
        check_stays(world.broker.redrive(at + 1).await, "");
        world.broker.drop_quarantined(at + 1).await.unwrap();
    }
    assert_eq!(
        quarantine::get(&world.rows(), at).await.unwrap().unwrap().0,
        row
    );
}

#[tokio::test(start_paused = true)]
async fn a_record_is_in_one_place_whatever_fails() {
    for fault in [
        Fault::Refuse,
        Fault::InDoubt(Effect::Happened),
        Fault::InDoubt(Effect::DidNotHappen),
        Fault::Hang(Effect::DidNotHappen),
        Fault::Panic(Effect::Happened),
        Fault::Crash {
            effect: Effect::Happened,
            keep: usize::MAX,
        },
        Fault::Crash {
            effect: Effect::DidNotHappen,
            keep: usize::MAX,
        },
    ] {
        let (world, key, row) = unreadable().await;
        put(&world, LOG, key, row).await;
        let place = place(&world).await;
        world.faults.arm(Call::Write, 1, fault);
        let _ = world.broker.redrive(place).await;
        world.faults.disarm();
        world.faults.release();
        world.rest().await;
        world.until_serving().await;
        let away = all(&world.rows(), QUARANTINE).await.len();
        // Mutant: two writes instead of one.
        assert_eq!(away + all(&world.rows(), RETRY).await.len(), 1, "{fault:?}");
        if away == 1 {
            world.broker.redrive(place).await.unwrap();
        }
        let again = world.receive("g", "orders").await;
        assert!(seen(&again).contains(&("a", 1)), "{fault:?}: {again:?}");
    }
}
