//! A consumer gives a message up: it goes to the dead letters of the group, once, whatever
//! attempts are left and wherever its delivery is.

use std::time::Duration;

use pop_broker::{BrokerError, Delivery, NewMessage};
use pop_model::{MessageKind, TopicName};
use pop_store::testkit::{Call, Fault};

use crate::world::{SECOND, World, group, ids, message, request, seen, topic};

async fn give_up(world: &World, delivery: &Delivery) -> Result<(), BrokerError> {
    let handle = delivery.handle.as_str();
    let broker = &world.broker;
    broker.give_up(&group("g"), &topic("orders"), handle).await
}

/// A message of message group `a`.
fn in_order(id: &str) -> NewMessage {
    NewMessage {
        kind: MessageKind::Fifo,
        message_group: Some("a".into()),
        ..message(id)
    }
}

/// The dead letters of group `g`, read by another group.
async fn letters(world: &World) -> Vec<Delivery> {
    let mut dead = request("undertaker", "orders");
    dead.topic = TopicName::dead_letter(&group("g"));
    match world.broker.receive(dead).await {
        Ok(handout) => handout.take(),
        // The first letter makes their topic.
        Err(BrokerError::TopicNotFound(_)) => Vec::new(),
        Err(error) => panic!("{error}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_message_that_its_consumer_gave_up_is_a_dead_letter_and_comes_no_more() {
    let world = World::new().await;
    world.send("orders", "m").await;
    let delivery = world.receive_one("g", "orders").await;
    give_up(&world, &delivery).await.unwrap();
    let letter = letters(&world).await.remove(0);
    let origin = letter.message.origin.as_ref().unwrap();
    assert_eq!(origin.message_id, "m");
    assert_eq!(origin.topic, "orders");
    assert_eq!(origin.reason, "given up by its consumer at delivery 1");
    assert_eq!(letter.body, delivery.body);
    assert_eq!(world.broker.counts().dead_lettered, 1);
    let again = give_up(&world, &delivery).await.unwrap_err();
    assert!(matches!(again, BrokerError::DeliveryOver), "{again}");
    // Mutant: its lease stays, and it comes again beside its dead letter.
    world.advance(60 * SECOND).await;
    assert!(world.receive("g", "orders").await.is_empty());
}

/// P1, P4. Mutant: the mark of the message and the dead letter are two writes.
#[tokio::test(start_paused = true)]
async fn a_crash_leaves_the_message_or_its_dead_letter() {
    for keep in 0..12 {
        let world = World::new().await;
        world.send("orders", "m").await;
        let delivery = world.receive_one("g", "orders").await;
        give_up(&world, &delivery).await.unwrap();
        let world = world.crash(keep).await;
        let open = world.receive("g", "orders").await.len();
        let dead = letters(&world).await.len();
        assert_eq!(
            open + dead,
            1,
            "{open} open and {dead} dead with {keep} writes"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_stored_delivery_and_one_of_the_retry_queue_can_be_given_up() {
    let world = World::new().await;
    world.send("orders", "stored").await;
    let mut long = request("g", "orders");
    long.invisible_for = Duration::from_secs(600);
    let stored = world.broker.receive(long).await.unwrap().take().remove(0);
    world.stay().await;
    world.send("orders", "retried").await;
    world.receive_one("g", "orders").await;
    world.advance(60 * SECOND).await;
    let retried = world.receive_one("g", "orders").await;
    assert_eq!(seen(std::slice::from_ref(&retried)), [("retried", 2)]);
    give_up(&world, &stored).await.unwrap();
    give_up(&world, &retried).await.unwrap();
    let mut dead: Vec<_> = letters(&world).await;
    dead.sort_by_key(|letter| letter.message.message_id.clone());
    assert_eq!(ids(&dead), ["retried", "stored"]);
    let world = world.restart().await;
    world.advance(3_600 * SECOND).await;
    assert!(world.receive("g", "orders").await.is_empty());
}

/// Mutant: GivenUpIsForgotten.
#[tokio::test(start_paused = true)]
async fn in_order_the_next_message_follows_and_a_repeated_call_is_answered_ok() {
    let world = World::new().await;
    world.create_fifo_group("g", 17).await;
    for id in ["a1", "a2"] {
        world.try_send("orders", in_order(id)).await.unwrap();
    }
    let mut one = request("g", "orders");
    one.batch_size = 1;
    let first = world.broker.receive(one.clone()).await.unwrap().take();
    give_up(&world, &first[0]).await.unwrap();
    give_up(&world, &first[0]).await.unwrap();
    let second = world.broker.receive(one).await.unwrap().take();
    assert_eq!(ids(&second), ["a2"]);
    assert_eq!(ids(&letters(&world).await), ["a1"]);
}

/// The client goes on with what it had, and its next receive lets the broker read it again.
#[tokio::test(start_paused = true)]
async fn in_order_a_delivery_of_before_a_restart_can_be_given_up_once_it_was_read() {
    let world = World::new().await;
    world.create_fifo_group("g", 17).await;
    for id in ["a1", "a2"] {
        world.try_send("orders", in_order(id)).await.unwrap();
    }
    let mut one = request("g", "orders");
    one.batch_size = 1;
    let first = world.broker.receive(one.clone()).await.unwrap().take();
    let world = world.restart().await;
    let blocked = world.broker.receive(one.clone()).await.unwrap().take();
    assert!(blocked.is_empty(), "its group is blocked: {blocked:?}");
    give_up(&world, &first[0]).await.unwrap();
    assert_eq!(ids(&letters(&world).await), ["a1"]);
    let second = world.broker.receive(one).await.unwrap().take();
    assert_eq!(ids(&second), ["a2"]);
}

#[tokio::test(start_paused = true)]
async fn a_message_that_cannot_be_moved_goes_on() {
    let mut refused = 0;
    for nth in 1..=4 {
        let world = World::new().await;
        world.send("orders", "m").await;
        let delivery = world.receive_one("g", "orders").await;
        world.faults.arm(Call::Write, nth, Fault::Refuse);
        let given_up = give_up(&world, &delivery).await;
        world.faults.disarm();
        let left = usize::from(given_up.is_err());
        refused += left;
        // Mutant: the letter is written and the lease goes on, or the other way round.
        assert_eq!(letters(&world).await.len() + left, 1, "write {nth}");
        assert_eq!(world.ack("g", "orders", &delivery).await.is_ok(), left == 1);
    }
    assert!(refused >= 2, "its topic and the letter are written");
}
