//! A topic or group that is deleted is gone at once for everybody, its name is free, and
//! nothing of it is left behind (BR-H03, BR-H04, BR-H05).

use std::time::Duration;

use pop_broker::{BrokerError, DeadLetters, NewMessage};
use pop_model::{GroupId, TopicId, TopicName};
use pop_store::testkit::{Call, Effect, Fault};

use crate::{
    owned::{Owner, body_count, rows_of},
    world::{INVISIBLE, SECOND, World, group, ids, message, request, seen, topic},
};

const KEEP: DeadLetters = DeadLetters::Keep;

/// Nothing is made on demand, so that a name that is gone is gone.
async fn world() -> World {
    let world = World::with(|options| {
        options.catalog.auto_create_topics = false;
        options.catalog.auto_create_groups = false;
    })
    .await;
    world.create_topic("orders", 2).await;
    world.create_topic("others", 1).await;
    world.create_group("g", 3).await;
    world.create_group("h", 3).await;
    world
}

/// Messages in every state: large, out in memory, out as a row, ready again, unread.
async fn busy() -> World {
    let world = world().await;
    for by in ["g", "h"] {
        world.receive(by, "others").await;
        world.receive(by, "orders").await;
    }
    for id in ["a", "b", "c", "d"] {
        let mut sent = message(id);
        sent.body = vec![7; 300 << 10].into();
        world.try_send("orders", sent).await.unwrap();
        world.send("others", id).await;
    }
    for by in ["g", "h"] {
        world.receive(by, "orders").await;
        world.receive(by, "others").await;
    }
    // All are ready again, some are out for the second time, and some of these are rows.
    world.advance(INVISIBLE).await;
    let mut one = request("g", "orders");
    one.batch_size = 1;
    let _ = world.broker.receive(one.clone()).await.unwrap().take();
    world.advance(11 * SECOND).await;
    let _ = world.broker.receive(one).await.unwrap().take();
    world.send("orders", "e").await;
    world
}

fn topic_id(world: &World, name: &str) -> TopicId {
    let found = world.broker.topic(&topic(name)).unwrap();
    found.expect("it is there").record().id
}

fn group_id(world: &World, name: &str) -> GroupId {
    world.broker.group(&group(name)).unwrap().unwrap().id
}

async fn delete_topic(world: &World, name: &str) {
    world.broker.delete_topic(&topic(name)).await.unwrap();
}

async fn delete_group(world: &World, name: &str) {
    let deleted = world.broker.delete_group(&group(name), KEEP).await;
    deleted.unwrap();
}

fn of_topic(id: TopicId) -> impl Fn(Owner) -> bool {
    move |(topic, _)| topic == Some(id)
}

fn of_group(id: GroupId) -> impl Fn(Owner) -> bool {
    move |(_, group)| group == Some(id)
}

#[tokio::test(start_paused = true)]
async fn a_deleted_topic_is_gone_for_everybody() {
    let world = world().await;
    world.send("orders", "a").await;
    let delivery = world.receive_one("g", "orders").await;
    delete_topic(&world, "orders").await;
    assert!(world.broker.topic(&topic("orders")).unwrap().is_none());
    let gone = |error: BrokerError| {
        // Mutants: the name stays in memory; the log is not closed.
        assert!(matches!(&error, BrokerError::TopicNotFound(name) if *name == topic("orders")));
    };
    gone(world.try_send("orders", message("b")).await.unwrap_err());
    gone(world.try_receive("g", "orders").await.unwrap_err());
    gone(world.ack("g", "orders", &delivery).await.unwrap_err());
    let changed = world.change("g", "orders", &delivery, SECOND).await;
    gone(changed.unwrap_err());
    gone(
        world
            .broker
            .delete_topic(&topic("orders"))
            .await
            .unwrap_err(),
    );
    // Others go on.
    world.send("others", "c").await;
    assert_eq!(ids(&world.receive("g", "others").await), ["c"]);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_left_of_a_deleted_topic() {
    let world = busy().await;
    let id = topic_id(&world, "orders");
    assert!(!rows_of(&world.rows(), of_topic(id)).await.is_empty());
    delete_topic(&world, "orders").await;
    world.rest().await;
    // Mutant: the sweep is not woken, or leaves a keyspace out.
    assert_eq!(rows_of(&world.rows(), of_topic(id)).await, []);
    assert_eq!(body_count(&world.rows()).await, 0);
    // Nor does anything come that was on its way, such as what expires after it.
    world.advance(2 * INVISIBLE).await;
    assert_eq!(rows_of(&world.rows(), of_topic(id)).await, []);
    let again = world.receive("g", "others").await;
    assert_eq!(seen(&again), [("a", 2), ("b", 2), ("c", 2), ("d", 2)]);
}

#[tokio::test(start_paused = true)]
async fn a_topic_made_again_is_another_one() {
    let world = busy().await;
    let before = topic_id(&world, "orders");
    let mut old = request("h", "orders");
    old.batch_size = 1;
    let old = world.broker.receive(old).await.unwrap().take().remove(0);
    delete_topic(&world, "orders").await;
    world.create_topic("orders", 2).await;
    assert_ne!(topic_id(&world, "orders"), before);
    world.send("orders", "new").await;
    // Mutant: offsets, marks or entries of the old one are found by its name.
    assert_eq!(seen(&world.receive("h", "orders").await), [("new", 1)]);
    let error = world.ack("h", "orders", &old).await.unwrap_err();
    assert!(matches!(error, BrokerError::HandleOfAnother), "{error}");
    world.advance(INVISIBLE).await;
    assert_eq!(seen(&world.receive("h", "orders").await), [("new", 2)]);
}

#[tokio::test(start_paused = true)]
async fn waiting_receives_end_with_what_they_wait_for() {
    for kind in ["topic", "group"] {
        let world = world().await;
        let mut request = request("g", "orders");
        request.wait_max = Duration::from_secs(600);
        let broker = world.broker.clone();
        let waiting = tokio::spawn(async move { broker.receive(request).await });
        world.rest().await;
        assert!(!waiting.is_finished());
        let before = tokio::time::Instant::now();
        match kind {
            "topic" => delete_topic(&world, "orders").await,
            _ => delete_group(&world, "g").await,
        }
        // Mutant: nobody tells them; they wait for ten minutes.
        let error = waiting.await.unwrap().unwrap_err();
        assert!(before.elapsed() < SECOND, "{:?}", before.elapsed());
        match kind {
            "topic" => assert!(matches!(error, BrokerError::TopicNotFound(_)), "{error}"),
            _ => assert!(matches!(error, BrokerError::GroupNotFound(_)), "{error}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_is_left_of_a_deleted_group() {
    let world = busy().await;
    let id = group_id(&world, "g");
    delete_group(&world, "g").await;
    let error = world.try_receive("g", "orders").await.unwrap_err();
    assert!(matches!(error, BrokerError::GroupNotFound(_)), "{error}");
    world.rest().await;
    assert_eq!(rows_of(&world.rows(), of_group(id)).await, []);
    world.advance(2 * INVISIBLE).await;
    assert_eq!(rows_of(&world.rows(), of_group(id)).await, []);
    // Messages stay, and other groups go on.
    assert_eq!(world.receive("h", "orders").await.len(), 5);
}

#[tokio::test(start_paused = true)]
async fn a_group_made_again_begins_anew() {
    let world = busy().await;
    delete_group(&world, "g").await;
    world.create_group("g", 3).await;
    let all = [("a", 1), ("b", 1), ("c", 1), ("d", 1), ("e", 1)];
    // Mutant: an offset, an entry or an attempt of the old group is found by its name.
    assert_eq!(seen(&world.receive("g", "orders").await), all);
    world.advance(INVISIBLE).await;
    let again = all.map(|(id, _)| (id, 2));
    assert_eq!(seen(&world.receive("g", "orders").await), again);
}

/// A world with a dead letter of group `g`.
async fn with_a_dead_letter() -> (World, TopicName) {
    let world = world().await;
    world.send("orders", "a").await;
    for _ in 0..3 {
        world.receive_one("g", "orders").await;
        world.advance(INVISIBLE).await;
    }
    let letters = TopicName::dead_letter(&group("g"));
    assert!(world.broker.topic(&letters).unwrap().is_some());
    (world, letters)
}

#[tokio::test(start_paused = true)]
async fn dead_letters_outlive_their_group_unless_told_otherwise() {
    let (world, letters) = with_a_dead_letter().await;
    let deleted = world.broker.delete_group(&group("g"), KEEP).await.unwrap();
    assert_eq!(deleted.dead_letters_kept.as_ref(), Some(&letters));
    let mut dead = request("h", "orders");
    dead.topic = letters.clone();
    assert_eq!(world.broker.receive(dead).await.unwrap().take().len(), 1);
    // They belong to nothing any more, so that their name may be deleted.
    world.broker.delete_topic(&letters).await.unwrap();

    let (world, letters) = with_a_dead_letter().await;
    let both = DeadLetters::Delete;
    let deleted = world.broker.delete_group(&group("g"), both).await.unwrap();
    assert_eq!(deleted.dead_letters_kept, None);
    assert!(world.broker.topic(&letters).unwrap().is_none());
}

/// Gives a delivery up while `fault` meets one call of the store, and deletes the group with
/// its dead letters meanwhile. Returns whether it has some behind that.
async fn is_given_up_behind_the_deletion(call: Call, nth: u64, fault: Fault) -> bool {
    let world = world().await;
    world.send("orders", "a").await;
    let delivery = world.receive_one("g", "orders").await;
    // From here on it is a row.
    world.advance(11 * SECOND).await;
    world.faults.arm(call, nth, fault);
    let (broker, handle) = (world.broker.clone(), delivery.handle.to_string());
    let given_up = tokio::spawn(async move {
        let (group, topic) = (group("g"), topic("orders"));
        broker.give_up(&group, &topic, &handle).await
    });
    tokio::time::sleep(SECOND / 2).await;
    world.faults.disarm();
    let both = DeadLetters::Delete;
    let deleted = world.broker.delete_group(&group("g"), both).await.unwrap();
    assert_eq!(deleted.dead_letters_kept, None);
    // Whatever it came to: its group is gone.
    let _ = given_up.await.unwrap();
    let world = world.crash(usize::MAX).await;
    let letters = TopicName::dead_letter(&group("g"));
    world.broker.topic(&letters).unwrap().is_some()
}

/// P6. Mutants: the topic of a letter is made although its group is gone; the deletion asks
/// memory alone for it, which does not know yet what was just made.
#[tokio::test(start_paused = true)]
async fn no_dead_letter_is_left_behind_the_deletion_of_its_group() {
    for nth in 1..=4 {
        for call in [Call::Get, Call::MultiGet, Call::Write] {
            let has_letters = is_given_up_behind_the_deletion(call, nth, Fault::Delay(SECOND));
            assert!(!has_letters.await, "{call:?} {nth}");
        }
    }
    // The first one takes a number.
    let made = Fault::Hang(Effect::Happened);
    assert!(!is_given_up_behind_the_deletion(Call::Write, 2, made).await);
}

#[tokio::test(start_paused = true)]
async fn a_topic_of_the_brokers_own_is_not_deleted_by_its_name() {
    let (world, letters) = with_a_dead_letter().await;
    // Mutant: any name is taken; the dead letters of a group that is there are gone.
    let error = world.broker.delete_topic(&letters).await.unwrap_err();
    assert!(matches!(error, BrokerError::InternalTopic(_)), "{error}");
    assert!(world.broker.topic(&letters).unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_deletion_survives_a_power_cut_and_the_next_start_sweeps() {
    for keep in [0, 1, usize::MAX] {
        let world = busy().await;
        let (topic_id, group_id) = (topic_id(&world, "orders"), group_id(&world, "h"));
        delete_topic(&world, "orders").await;
        delete_group(&world, "h").await;
        // Mutant: the tombstone is not synced, or only this run sweeps.
        let world = world.crash(keep).await;
        assert!(world.broker.topic(&topic("orders")).unwrap().is_none());
        assert!(world.broker.group(&group("h")).unwrap().is_none());
        world.rest().await;
        assert_eq!(rows_of(&world.rows(), of_topic(topic_id)).await, []);
        assert_eq!(rows_of(&world.rows(), of_group(group_id)).await, []);
        assert_eq!(body_count(&world.rows()).await, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_deletion_ends_whatever_fails_below() {
    for fault in [
        Fault::Refuse,
        Fault::InDoubt(Effect::Happened),
        Fault::InDoubt(Effect::DidNotHappen),
        Fault::Hang(Effect::DidNotHappen),
        Fault::Panic(Effect::Happened),
    ] {
        for nth in 1..12 {
            let world = busy().await;
            let id = topic_id(&world, "orders");
            world.faults.arm(Call::Write, nth, fault);
            let outcome = world.broker.delete_topic(&topic("orders")).await;
            world.rest().await;
            world.faults.disarm();
            world.faults.release();
            world.until_serving().await;
            if outcome.is_err() && world.broker.topic(&topic("orders")).unwrap().is_some() {
                // Nothing happened, and it can be done again.
                delete_topic(&world, "orders").await;
            }
            world.advance(2 * SECOND).await;
            tokio::time::sleep(3 * SECOND).await;
            assert!(world.broker.topic(&topic("orders")).unwrap().is_none());
            let left = rows_of(&world.rows(), of_topic(id)).await;
            assert_eq!(left, [], "{fault:?} in write {nth}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_send_that_is_under_way_is_answered_and_leaves_nothing() {
    let world = world().await;
    let id = topic_id(&world, "orders");
    let large = NewMessage::new("a", vec![1; 600 << 10].into());
    world
        .faults
        .arm(Call::Write, 2, Fault::Hang(Effect::DidNotHappen));
    let broker = world.broker.clone();
    let sending = tokio::spawn(async move { broker.send(&topic("orders"), vec![large]).await });
    world.faults.until_hung(1).await;
    let broker = world.broker.clone();
    let deleting = tokio::spawn(async move { broker.delete_topic(&topic("orders")).await });
    world.rest().await;
    world.faults.release();
    deleting.await.unwrap().unwrap();
    let sent = sending.await.unwrap().unwrap().remove(0);
    if let Err(error) = sent {
        assert!(matches!(error, BrokerError::TopicNotFound(_)), "{error}");
    }
    world.rest().await;
    assert_eq!(rows_of(&world.rows(), of_topic(id)).await, []);
}
