//! What is bounded and counted, and what must not be held up by it (P5).

use pop_broker::{BrokerError, ReceiveRequest, ResetTo};
use pop_store::testkit::{Call, Effect, Fault};

use crate::{
    audit::{assert_each_in_one_place, audit},
    world::{INVISIBLE, World, group, ids, request, seen, topic},
};

fn one(from: &str) -> ReceiveRequest {
    ReceiveRequest {
        batch_size: 1,
        ..request("g", from)
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_deleted_topic_or_a_reset_ended_counts_no_longer() {
    // BR-C02. Mutant: a state that is given up takes its count along.
    for is_deleted in [true, false] {
        let world = World::with(|options| options.cache.in_flight_per_group_max = 2).await;
        for id in ["a", "b"] {
            world.send("orders", id).await;
            world.send("payments", id).await;
        }
        // One is stored, and one is in memory.
        let _ = world.broker.receive(one("orders")).await.unwrap().take();
        world.stay().await;
        let _ = world.broker.receive(one("orders")).await.unwrap().take();
        let full = world.try_receive("g", "payments").await;
        assert!(matches!(full, Err(BrokerError::TooManyInFlight(_))));
        if is_deleted {
            world.broker.delete_topic(&topic("orders")).await.unwrap();
        } else {
            let (by, of) = (group("g"), topic("orders"));
            let reset = world.broker.reset_offset(&by, &of, ResetTo::Latest).await;
            reset.unwrap();
        }
        world.rest().await;
        let payments = world.receive("g", "payments").await;
        assert_eq!(ids(&payments), ["a", "b"], "deleted: {is_deleted}");
    }
}

#[tokio::test(start_paused = true)]
async fn memory_holds_no_more_leases_than_allowed_and_none_is_lost() {
    // BR-J01. Mutant: a receive that does not store as many as it adds.
    let world = World::with(|options| options.cache.leases_max = 10).await;
    let names: Vec<String> = (0..100).map(|number| format!("m{number:02}")).collect();
    for name in &names {
        world.send("orders", name).await;
    }
    loop {
        let deliveries = world.receive("g", "orders").await;
        if deliveries.is_empty() {
            break;
        }
        let count = world.broker.lease_count().unwrap();
        assert!(count <= 10, "{count} leases are in memory");
    }
    world.advance(INVISIBLE).await;
    let mut again = Vec::new();
    for _ in 0..8 {
        again.extend(world.receive("g", "orders").await);
    }
    again.sort_by(|left, right| left.message.message_id.cmp(&right.message.message_id));
    let expected: Vec<_> = names.iter().map(|name| (name.as_str(), 2)).collect();
    assert_eq!(seen(&again), expected);
    assert_each_in_one_place(&audit(&world.rows()).await, &[]);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_refuses_turns_receives_away_at_the_bound_and_no_acknowledgement() {
    // BR-J02. Mutant: what could not be stored is handed out all the same.
    let world = World::with(|options| options.cache.leases_max = 2).await;
    for id in ["a", "b", "c", "d"] {
        world.send("orders", id).await;
    }
    let mut out = world.broker.receive(one("orders")).await.unwrap().take();
    out.extend(world.broker.receive(one("orders")).await.unwrap().take());
    for nth in 1..=50 {
        world.faults.arm(Call::Write, nth, Fault::Refuse);
    }
    for _ in 0..5 {
        let full = world.broker.receive(one("orders")).await;
        assert!(full.is_err(), "{full:?}");
        assert!(world.broker.lease_count().unwrap() <= 2);
    }
    world.ack("g", "orders", &out[0]).await.unwrap();
    world.faults.disarm();
    world.rest().await;
    let rest = world.receive("g", "orders").await;
    assert_eq!(seen(&rest), [("c", 1), ("d", 1)]);
    world.advance(INVISIBLE).await;
    let again = world.receive("g", "orders").await;
    assert_eq!(seen(&again), [("b", 2), ("c", 2), ("d", 2)]);
}

#[tokio::test(start_paused = true)]
async fn a_message_with_one_attempt_is_never_counted_as_revived() {
    // BR-I04. Mutant: each delivery whose time is up counts as made ready again.
    let world = World::new().await;
    world.create_group("g", 1).await;
    for id in ["a", "b", "c"] {
        world.send("orders", id).await;
    }
    world.receive("g", "orders").await;
    world.advance(INVISIBLE).await;
    let counts = world.broker.counts();
    assert_eq!(
        (counts.received, counts.revived, counts.dead_lettered),
        (3, 0, 3)
    );
}

#[tokio::test(start_paused = true)]
async fn a_change_that_failed_can_be_repeated() {
    // BR-D15. The first try is refused, or is done and repeated. Mutant: a change that
    // counts from the deadline and not from the call.
    for is_refused in [true, false] {
        let world = World::new().await;
        world.send("orders", "a").await;
        let delivery = world.receive_one("g", "orders").await;
        world.stay().await;
        if is_refused {
            world.faults.arm(Call::Write, 1, Fault::Refuse);
        }
        let first = world.change("g", "orders", &delivery, INVISIBLE * 2).await;
        assert_eq!(first.is_err(), is_refused, "{first:?}");
        let second = world.change("g", "orders", &delivery, INVISIBLE * 2).await;
        second.unwrap();
        world.advance(INVISIBLE).await;
        assert!(world.receive("g", "orders").await.is_empty());
        world.advance(INVISIBLE).await;
        assert_eq!(seen(&world.receive("g", "orders").await), [("a", 2)]);
        assert_each_in_one_place(&audit(&world.rows()).await, &[]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_queue_that_loads_slowly_holds_up_no_other_group() {
    // BR-K09.
    let world = World::new().await;
    world.send("orders", "a").await;
    for by in ["g", "h"] {
        world.receive_one(by, "orders").await;
    }
    let world = world.restart().await;
    world.send("orders", "b").await;
    let hang = Fault::Hang(Effect::DidNotHappen);
    world.faults.arm(Call::Get, 1, hang);
    let broker = world.broker.clone();
    let slow = tokio::spawn(async move { broker.receive(request("g", "orders")).await });
    world.faults.until_hung(1).await;
    let others = world.receive("h", "orders").await;
    assert_eq!(ids(&others), ["b"]);
    world.ack("h", "orders", &others[0]).await.unwrap();
    assert!(!slow.is_finished());
    world.faults.release();
    let slow = slow.await.unwrap().unwrap().take();
    assert_eq!(ids(&slow), ["b"]);
}
