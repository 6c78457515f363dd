//! The gate (P2): what the store says is committed never passes an offset that is not
//! settled, whatever the order in which offsets are settled and wherever the power goes.

use pop_broker::{BrokerError, Delivery, Filter, NewMessage, ReceiveRequest};
use pop_model::{Offset, StoredValue};
use pop_store::{
    Durability, MemStore, Scan, Store, WriteBatch,
    table::{LOG, META, PROGRESS, meta, progress},
    testkit::{Call, Effect, Fault},
};

use crate::{
    audit::{Place, all, assert_each_in_one_place, audit},
    world::{INVISIBLE, World, ids, message, request, topic},
};

/// The committed offset of the one subscription queue.
async fn committed(store: &MemStore) -> Offset {
    let (queue, record) = meta::subscriptions(store).await.unwrap().remove(0);
    let (stored, _) = progress::load(store, queue).await.unwrap();
    stored.map_or(record.start, |stored| stored.committed)
}

/// Two receives of two messages each, of which the first hangs in its next `call` while the
/// second is done. Returns what the second got, and the first.
async fn overtake(world: &World, call: Call) -> (Vec<Delivery>, Taking) {
    let two = || ReceiveRequest {
        batch_size: 2,
        ..request("g", "orders")
    };
    world.faults.arm(call, 1, Fault::Hang(Effect::DidNotHappen));
    let broker = world.broker.clone();
    let first = tokio::spawn(async move { broker.receive(two()).await.map(|it| it.take()) });
    world.faults.until_hung(1).await;
    let second = world.broker.receive(two()).await.unwrap().take();
    (second, first)
}

type Taking = tokio::task::JoinHandle<Result<Vec<Delivery>, BrokerError>>;

#[tokio::test(start_paused = true)]
async fn the_committed_offset_waits_for_the_lowest_offset_that_is_not_settled() {
    // The first receive reads; what a second one got from above is acknowledged. Mutant:
    // `GateIgnoresReserved` commits 4 and loses two messages.
    for power_goes in [false, true] {
        let world = World::new().await;
        world.try_receive("g", "orders").await.unwrap();
        for id in ["a", "b", "c", "d"] {
            world.send("orders", id).await;
        }
        let (second, first) = overtake(&world, Call::Scan).await;
        assert_eq!(ids(&second), ["c", "d"]);
        ack_all(&world, &second).await;
        assert_eq!(committed(&world.rows()).await, Offset::new(0));
        assert_each_in_one_place(&audit(&world.rows()).await, &["c", "d"]);
        if power_goes {
            let world = world.crash(usize::MAX).await;
            assert_eq!(ids(&world.receive("g", "orders").await), ["a", "b"]);
        } else {
            world.faults.release();
            let first = first.await.unwrap().unwrap();
            assert_eq!(ids(&first), ["a", "b"]);
            ack_all(&world, &first).await;
            assert_eq!(committed(&world.rows()).await, Offset::new(4));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_committed_offset_waits_for_a_lease_that_is_out_and_not_for_a_stored_one() {
    // Mutant: `GateIgnoresBuffered` loses `a`.
    let world = World::new().await;
    for id in ["a", "b"] {
        world.send("orders", id).await;
    }
    let deliveries = world.receive("g", "orders").await;
    ack_all(&world, &deliveries[1..]).await;
    assert_eq!(committed(&world.rows()).await, Offset::new(0));
    world.stay().await;
    assert_eq!(committed(&world.rows()).await, Offset::new(2));
    assert_each_in_one_place(&audit(&world.rows()).await, &["b"]);
    let world = world.crash(usize::MAX).await;
    assert!(world.receive("g", "orders").await.is_empty());
    world.advance(INVISIBLE).await;
    assert_eq!(ids(&world.receive("g", "orders").await), ["a"]);
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_stored_above_the_committed_offset_has_its_mark_in_the_same_batch() {
    // The lowest offset is being read, so the mark is all that tells. Mutant:
    // `MarkLeftOut`: stored and ready, it was in two places.
    let world = World::new().await;
    world.try_receive("g", "orders").await.unwrap();
    for id in ["a", "b", "c", "d"] {
        world.send("orders", id).await;
    }
    let (second, _first) = overtake(&world, Call::Scan).await;
    assert_eq!(ids(&second), ["c", "d"]);
    world.stay().await;
    assert_eq!(committed(&world.rows()).await, Offset::new(0));
    assert_each_in_one_place(&audit(&world.rows()).await, &[]);
    let world = world.crash(usize::MAX).await;
    assert_eq!(ids(&world.receive("g", "orders").await), ["a", "b"]);
}

#[tokio::test(start_paused = true)]
async fn the_committed_offset_of_a_retry_queue_waits_for_the_lowest_entry_that_is_out() {
    // The gate of a retry queue is that of any other. Mutant: `GateIgnoresReserved`: `a`
    // and `b` were below it at the restart, and never seen again.
    let world = World::new().await;
    for id in ["a", "b", "c", "d"] {
        world.send("orders", id).await;
    }
    world.receive("g", "orders").await;
    world.advance(INVISIBLE).await;
    let (second, _first) = overtake(&world, Call::MultiGet).await;
    assert_eq!(second.len(), 2);
    ack_all(&world, &second).await;
    let done = ids(&second);
    assert_each_in_one_place(&audit(&world.rows()).await, &done);
    let world = world.crash(usize::MAX).await;
    let rest = world.receive("g", "orders").await;
    assert_eq!(rest.len(), 2, "{rest:?}");
    assert!(rest.iter().all(|it| it.delivery_attempt == 2));
    assert!(ids(&rest).iter().all(|id| !done.contains(id)));
}

/// Acknowledges, and lets a flush pass.
async fn ack_all(world: &World, deliveries: &[Delivery]) {
    for delivery in deliveries {
        world.ack("g", "orders", delivery).await.unwrap();
    }
    world.rest().await;
}

#[tokio::test(start_paused = true)]
async fn wherever_the_power_goes_every_message_is_in_one_place() {
    // BR-A02. Runs a script whose writes are not synced, and looks at every prefix of them
    // that a power cut can leave. Mutant: `DeleteBeforeWrite`, a committed offset in a
    // batch before that of its leases: a message was in no place.
    for keep in 0.. {
        // Nothing is flushed, because a flush syncs what was written before.
        let world = World::with(|options| {
            options.cache.flush_every = std::time::Duration::from_secs(3_600);
        })
        .await;
        world.create_group("g", 2).await;
        world.create_topic("orders", 2).await;
        world.try_receive("h", "orders").await.unwrap();
        // Makes the dead-letter topic, which is a synced write.
        world.send("orders", "early").await;
        for _ in 0..2 {
            world.receive_one("g", "orders").await;
            world.advance(INVISIBLE).await;
        }
        for id in ["a", "b", "c", "d", "e"] {
            world.send("orders", id).await;
        }
        let skip = NewMessage {
            tag: Some("noise".into()),
            ..message("noise")
        };
        world.try_send("orders", skip).await.unwrap();
        world.try_receive("g", "orders").await.unwrap();
        world.send("orders", "last").await;
        let synced = audit(&world.rows()).await;
        assert_each_in_one_place(&synced, &[]);

        // Stored, and revived from the rows.
        world.stay().await;
        world.advance(INVISIBLE).await;
        let again = world.receive("g", "orders").await;
        for delivery in again.iter().take(2) {
            world.ack("g", "orders", delivery).await.unwrap();
        }
        world
            .change("g", "orders", &again[3], INVISIBLE * 2)
            .await
            .unwrap();
        drop(world.broker.receive(request("h", "orders")).await.unwrap());
        world.receive("h", "orders").await;
        // Some are dead letters from memory, one is stored once more.
        world.advance(INVISIBLE).await;
        world.stay().await;
        let unsynced = world.rows().unsynced_count();
        let acked: Vec<String> = again.iter().take(2).map(|it| id(it).to_owned()).collect();

        let left = world.cut(keep).await;
        for ((group, id), places) in audit(&left).await {
            // An acknowledgement may be lost with the suffix; nothing else may.
            let may_be_done = group == "g" && acked.contains(&id);
            let fits = places.len() == 1 || (places.is_empty() && may_be_done);
            assert!(fits, "keep {keep}: {id} of {group} is in {places:?}");
            assert_ne!(places, [Place::Litter], "keep {keep}: {id} of {group}");
        }
        if keep > unsynced {
            assert!(unsynced > 10, "the script writes something: {unsynced}");
            return;
        }
    }
}

fn id(delivery: &Delivery) -> &str {
    &delivery.message.message_id
}

#[tokio::test(start_paused = true)]
async fn a_group_is_subscribed_durably_before_it_gets_anything() {
    // P1: a message that a subscribed group was not given yet waits for it. Mutant:
    // `StartNotDurable`, of a group that starts at the end.
    let world = World::with(|options| {
        options.catalog.start = pop_model::StartPosition::Latest;
    })
    .await;
    world.send("orders", "before").await;
    assert!(world.receive("g", "orders").await.is_empty());
    let world = world.crash(0).await;
    world.send("orders", "after").await;
    assert_eq!(ids(&world.receive("g", "orders").await), ["after"]);
}

#[tokio::test(start_paused = true)]
async fn a_committed_offset_above_the_end_of_the_log_is_brought_back_to_it() {
    // BR-A08.
    let world = World::new().await;
    world.send("orders", "a").await;
    let delivery = world.receive_one("g", "orders").await;
    world.ack("g", "orders", &delivery).await.unwrap();
    let rows = world.rows();
    let (queue, record) = meta::subscriptions(&rows).await.unwrap().remove(0);
    let mut batch = WriteBatch::new();
    let far = pop_model::Progress {
        committed: Offset::new(1_000),
        epoch: record.epoch,
    };
    progress::put(&mut batch, queue, &far);
    rows.write(batch, Durability::Synced).await.unwrap();
    let world = world.crash(usize::MAX).await;
    assert!(world.receive("g", "orders").await.is_empty());
    world.send("orders", "b").await;
    assert_eq!(ids(&world.receive("g", "orders").await), ["b"]);
}

#[tokio::test(start_paused = true)]
async fn an_offset_that_consumers_passed_is_never_given_to_another_message() {
    // P1: refused appends leave holes at the end of a queue, and consumers pass them. After
    // a restart the rows alone say that the queue ends below. Mutant: `LogEndGoesBack`:
    // `later` got an offset that is committed already, was answered OK, and never
    // delivered.
    let world = World::new().await;
    for id in ["a", "b", "c"] {
        world.send("orders", id).await;
    }
    let rows = world.rows();
    let mut batch = WriteBatch::new();
    for hole in all(&rows, LOG).await.into_iter().skip(1) {
        batch.delete(LOG, hole.key);
    }
    rows.write(batch, Durability::Synced).await.unwrap();
    let deliveries = world.receive("g", "orders").await;
    assert_eq!(ids(&deliveries), ["a"]);
    ack_all(&world, &deliveries).await;
    let passed = committed(&world.rows()).await;
    assert_eq!(passed, Offset::new(3));
    let world = world.crash(usize::MAX).await;
    let sent = world.try_send("orders", message("later")).await.unwrap();
    assert!(sent.offset >= passed, "{} is below {passed}", sent.offset);
    assert_eq!(ids(&world.receive("g", "orders").await), ["later"]);
}

#[tokio::test(start_paused = true)]
async fn marks_are_dropped_once_the_committed_offset_has_passed_them() {
    let world = World::new().await;
    let picky = ReceiveRequest {
        filter: Filter::tags("none").unwrap(),
        ..request("g", "orders")
    };
    for _ in 0..70 {
        let batch = (0..64).map(|number| message(&number.to_string()));
        world
            .broker
            .send(&topic("orders"), batch.collect())
            .await
            .unwrap();
    }
    loop {
        let handout = world.broker.receive(picky.clone()).await.unwrap();
        assert!(handout.is_empty());
        world.rest().await;
        if committed(&world.rows()).await == Offset::new(70 * 64) {
            break;
        }
    }
    let rows = all(&world.rows(), PROGRESS).await;
    assert!(
        rows.len() <= 2,
        "one row and at most one page: {}",
        rows.len()
    );
    let places = audit(&world.rows()).await;
    assert!(places.values().all(|places| *places == Vec::<Place>::new()));
    // The metadata stays small, too.
    let metadata = world.rows().scan(META, Scan::all()).await.unwrap();
    assert!(metadata.len() < 100, "{}", metadata.len());
    assert!(pop_model::Progress::decode(rows[0].value.clone()).is_ok());
}
