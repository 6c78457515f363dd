//! When a delivery ends without an acknowledgement: it comes again at its deadline, one
//! attempt more, until the dead-letter topic takes it.

use std::time::Duration;

use bytes::Bytes;
use pop_broker::{Filter, ReceiveRequest};
use pop_model::TopicName;

use crate::{
    audit::{Place, assert_each_in_one_place, audit},
    world::{INVISIBLE, SECOND, World, group, ids, message, request, seen, topic},
};

const MILLISECOND: Duration = Duration::from_millis(1);

#[tokio::test(start_paused = true)]
async fn a_message_comes_again_at_its_deadline_and_not_before() {
    // BR-D16. Mutant: `visible_at >= now` as "later" in `classify`: nothing came at T.
    let world = World::new().await;
    world.send("orders", "a").await;
    world.receive_one("g", "orders").await;
    world.advance(INVISIBLE - MILLISECOND).await;
    assert!(world.receive("g", "orders").await.is_empty());
    world.advance(MILLISECOND).await;
    assert_eq!(seen(&world.receive("g", "orders").await), [("a", 2)]);
}

#[tokio::test(start_paused = true)]
async fn each_delivery_counts_one_attempt() {
    let world = World::new().await;
    world.send("orders", "a").await;
    for attempt in 1..=6 {
        let delivery = world.receive_one("g", "orders").await;
        assert_eq!(delivery.delivery_attempt, attempt);
        world.advance(INVISIBLE).await;
    }
}

#[tokio::test(start_paused = true)]
async fn exactly_the_messages_that_were_not_acknowledged_come_again() {
    // BR-B04.
    let world = World::new().await;
    let names: Vec<String> = (0..32).map(|number| format!("m{number:02}")).collect();
    for name in &names {
        world.send("orders", name).await;
    }
    let deliveries = world.receive("g", "orders").await;
    assert_eq!(ids(&deliveries), names);
    for delivery in deliveries.iter().step_by(3) {
        world.ack("g", "orders", delivery).await.unwrap();
    }
    world.advance(INVISIBLE).await;
    let again = world.receive("g", "orders").await;
    let open = names.iter().enumerate().filter(|(index, _)| index % 3 != 0);
    let open: Vec<&String> = open.map(|(_, name)| name).collect();
    assert_eq!(ids(&again), open);
}

#[tokio::test(start_paused = true)]
async fn a_message_gets_exactly_its_attempts_and_then_is_a_dead_letter_with_the_reason() {
    // BR-E01. Mutant: `attempts > delivery_attempts_max`: a fourth delivery came.
    let world = World::new().await;
    world.create_group("g", 3).await;
    let mut sent = message("a");
    sent.properties = vec![("colour".into(), "red".into())];
    sent.keys = vec!["k".into()];
    sent.tag = Some("t".into());
    world.try_send("orders", sent).await.unwrap();
    for attempt in 1..=3 {
        let delivery = world.receive_one("g", "orders").await;
        assert_eq!(delivery.delivery_attempt, attempt);
        world.advance(INVISIBLE).await;
    }
    assert!(world.receive("g", "orders").await.is_empty());

    let letter = read_letter(&world, "g").await;
    assert_eq!(letter.body, Bytes::from("a"));
    assert_eq!(
        letter.message.properties,
        [("colour".to_owned(), "red".to_owned())]
    );
    assert_eq!(letter.message.keys, ["k"]);
    assert_eq!(letter.message.tag.as_deref(), Some("t"));
    assert_eq!(letter.delivery_attempt, 1);
    let origin = letter
        .message
        .origin
        .expect("a dead letter says where from");
    assert_eq!(origin.delivery_attempts, 3);
    assert_eq!(origin.message_id, "a");
    assert!(origin.topic.contains("orders"), "{origin:?}");
    assert!(origin.reason.contains("3 times"), "{origin:?}");
}

#[tokio::test(start_paused = true)]
async fn a_large_body_is_whole_in_the_dead_letter_topic() {
    let world = World::new().await;
    world.create_group("g", 1).await;
    let body: Bytes = (0..3 << 20)
        .map(|index: u32| index.to_be_bytes()[2])
        .collect();
    let mut large = message("large");
    large.body = body.clone();
    world.try_send("orders", large).await.unwrap();
    assert_eq!(world.receive_one("g", "orders").await.body, body);
    world.advance(INVISIBLE).await;
    assert_eq!(read_letter(&world, "g").await.body, body);
}

#[tokio::test(start_paused = true)]
async fn a_dead_letter_stays_one_over_restarts() {
    // BR-E05.
    let mut world = World::new().await;
    world.create_group("g", 1).await;
    world.send("orders", "a").await;
    world.receive_one("g", "orders").await;
    world.advance(INVISIBLE).await;
    for _ in 0..3 {
        world = world.crash(usize::MAX).await;
        world.advance(INVISIBLE).await;
        assert!(world.receive("g", "orders").await.is_empty());
        let places = audit(&world.rows()).await;
        assert_eq!(places[&("g".into(), "a".into())], [Place::DeadLettered]);
    }
}

#[tokio::test(start_paused = true)]
async fn expired_messages_return_although_nobody_asks() {
    // BR-D17: no receive runs while the deadline passes.
    let world = World::new().await;
    world.send("orders", "a").await;
    world.receive_one("g", "orders").await;
    world.advance(INVISIBLE).await;
    let places = audit(&world.rows()).await;
    let retry = Place::Retry { attempt: 2 };
    assert_eq!(places[&("g".into(), "a".into())], [retry]);
}

#[tokio::test(start_paused = true)]
async fn a_thousand_leases_that_end_at_one_instant_all_come_again() {
    // BR-B05.
    let world = World::new().await;
    for number in 0..1_000 {
        world.send("orders", &format!("m{number:03}")).await;
    }
    while !world.receive("g", "orders").await.is_empty() {}
    world.advance(INVISIBLE).await;
    let mut again = Vec::new();
    loop {
        let deliveries = world.receive("g", "orders").await;
        if deliveries.is_empty() {
            break;
        }
        assert!(deliveries.iter().all(|it| it.delivery_attempt == 2));
        again.extend(deliveries);
    }
    assert_eq!(again.len(), 1_000);
    assert_each_in_one_place(&audit(&world.rows()).await, &[]);
}

#[tokio::test(start_paused = true)]
async fn a_suspended_delivery_is_not_counted() {
    // BR-E02.
    let world = World::new().await;
    world.create_group("g", 2).await;
    world.send("orders", "a").await;
    for _ in 0..5 {
        let delivery = world.receive_one("g", "orders").await;
        assert_eq!(delivery.delivery_attempt, 1);
        let (by, of) = (group("g"), topic("orders"));
        world
            .broker
            .change_invisible(&by, &of, delivery.handle.as_str(), SECOND, true)
            .await
            .unwrap();
        world.advance(SECOND).await;
    }
}

/// Reads the one dead letter of a group, as another group.
async fn read_letter(world: &World, of: &str) -> pop_broker::Delivery {
    let letters = TopicName::dead_letter(&group(of));
    let request = ReceiveRequest {
        topic: letters,
        filter: Filter::All,
        ..request("undertakers", "orders")
    };
    let mut found = world.broker.receive(request).await.unwrap().take();
    assert_eq!(found.len(), 1, "one copy and no more");
    found.remove(0)
}
