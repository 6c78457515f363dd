//! Sends that are refused leave nothing behind; sends that are taken are there whole.

use bytes::Bytes;
use pop_broker::{BrokerError, MessageError, NewMessage};
use pop_model::{
    MessageKind, WallTime,
    limits::{
        BODY_BYTES_MAX, MESSAGE_GROUP_BYTES_MAX, MESSAGE_ID_BYTES_MAX, PROPERTIES_BYTES_MAX,
        PROPERTIES_MAX, SEND_BATCH_MAX,
    },
};
use pop_store::table::{BODY, LOG};

use crate::{
    audit::all,
    world::{World, ids, message, seen, topic},
};

/// Sends `wrong` between two good messages and shows that it alone left nothing.
async fn check(wrong: NewMessage, is_expected: impl Fn(&BrokerError) -> bool) {
    let world = World::new().await;
    let name = topic("orders");
    let batch = vec![message("before"), wrong, message("after")];
    let outcomes = world.broker.send(&name, batch).await.unwrap();
    assert!(outcomes[0].is_ok() && outcomes[2].is_ok(), "{outcomes:?}");
    let refused = outcomes[1].as_ref().unwrap_err();
    assert!(is_expected(refused), "{refused:?}");
    assert_eq!(all(&world.rows(), LOG).await.len(), 2);
    assert!(all(&world.rows(), BODY).await.is_empty());
    assert_eq!(
        ids(&world.receive("g", "orders").await),
        ["after", "before"]
    );
}

async fn check_message(wrong: NewMessage, is_expected: impl Fn(&MessageError) -> bool) {
    check(wrong, |error| match error {
        BrokerError::Message(error) => is_expected(error),
        _ => false,
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_message_without_a_usable_id_is_refused() {
    for id in ["", " ", "a\nb", &"x".repeat(MESSAGE_ID_BYTES_MAX + 1)] {
        check_message(message_with_body(id), |it| {
            matches!(it, MessageError::Id(_))
        })
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_that_is_empty_or_too_large_is_refused() {
    let mut empty = message("m");
    empty.body = Bytes::new();
    check_message(empty, |it| *it == MessageError::BodyEmpty).await;
    let mut large = message("m");
    large.body = vec![7; BODY_BYTES_MAX + 1].into();
    let size = MessageError::BodyTooLarge(BODY_BYTES_MAX + 1);
    check_message(large, |it| *it == size).await;
}

#[tokio::test(start_paused = true)]
async fn a_tag_key_group_or_property_that_is_no_text_is_refused() {
    for tag in ["", " ", "a|b", "a\u{7}"] {
        let tag = Some(tag.to_owned());
        let wrong = NewMessage {
            tag,
            ..message("m")
        };
        check_message(wrong, |it| matches!(it, MessageError::Tag(_))).await;
    }
    for key in ["", " ", "a\u{0}"] {
        let keys = vec!["good".to_owned(), key.to_owned()];
        let wrong = NewMessage {
            keys,
            ..message("m")
        };
        check_message(wrong, |it| matches!(it, MessageError::Key(_))).await;
    }
    let long = "x".repeat(MESSAGE_GROUP_BYTES_MAX + 1);
    for group in ["", "\t", &long] {
        let wrong = NewMessage {
            kind: MessageKind::Fifo,
            message_group: Some(group.to_owned()),
            ..message("m")
        };
        check_message(wrong, |it| matches!(it, MessageError::Group(_))).await;
    }
    for (name, value) in [("", "v"), ("n\n", "v"), ("n", "v\u{1b}")] {
        let properties = vec![(name.to_owned(), value.to_owned())];
        let wrong = NewMessage {
            properties,
            ..message("m")
        };
        check_message(wrong, |it| matches!(it, MessageError::Property(_))).await;
    }
}

#[tokio::test(start_paused = true)]
async fn properties_beyond_their_limits_are_refused() {
    let too_large = |it: &MessageError| matches!(it, MessageError::PropertiesTooLarge { .. });
    let many = (0..=PROPERTIES_MAX).map(|number| (number.to_string(), String::new()));
    let wrong = NewMessage {
        properties: many.collect(),
        ..message("m")
    };
    check_message(wrong, too_large).await;
    let wrong = NewMessage {
        properties: vec![("n".into(), "v".repeat(PROPERTIES_BYTES_MAX))],
        ..message("m")
    };
    check_message(wrong, too_large).await;
    let wrong = NewMessage {
        trace_context: Some("t".repeat(PROPERTIES_BYTES_MAX + 1)),
        ..message("m")
    };
    check_message(wrong, too_large).await;
}

#[tokio::test(start_paused = true)]
async fn a_message_whose_fields_belong_to_another_kind_is_refused() {
    let conflict = |it: &MessageError| matches!(it, MessageError::KindConflict(_));
    let fifo = NewMessage {
        kind: MessageKind::Fifo,
        ..message("m")
    };
    check_message(fifo, conflict).await;
    let delay = NewMessage {
        kind: MessageKind::Delay,
        ..message("m")
    };
    check_message(delay, conflict).await;
    let grouped = NewMessage {
        message_group: Some("g".into()),
        ..message("m")
    };
    check_message(grouped, conflict).await;
    let timed = NewMessage {
        deliver_at: Some(WallTime::from_unix_millis(1)),
        ..message("m")
    };
    check_message(timed, conflict).await;
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_is_not_offered_is_refused_and_says_so() {
    let timed = NewMessage {
        kind: MessageKind::Delay,
        deliver_at: Some(WallTime::from_unix_millis(1)),
        ..message("m")
    };
    check(timed, |it| matches!(it, BrokerError::Unsupported(_))).await;
    let half = NewMessage {
        kind: MessageKind::Transaction,
        ..message("m")
    };
    check(half, |it| matches!(it, BrokerError::Unsupported(_))).await;
}

#[tokio::test(start_paused = true)]
async fn no_message_or_too_many_in_one_send_are_refused_whole() {
    let world = World::new().await;
    let name = topic("orders");
    let none = world.broker.send(&name, Vec::new()).await;
    assert!(matches!(
        none,
        Err(BrokerError::Message(MessageError::None))
    ));
    let many = (0..=SEND_BATCH_MAX).map(|number| message(&number.to_string()));
    let many = world.broker.send(&name, many.collect()).await;
    assert!(matches!(
        many,
        Err(BrokerError::Message(MessageError::TooMany(_)))
    ));
    assert!(all(&world.rows(), LOG).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_topic_is_not_made_by_a_send_where_that_is_off() {
    let world = World::with(|options| options.catalog.auto_create_topics = false).await;
    let refused = world.try_send("orders", message("m")).await;
    assert!(matches!(refused, Err(BrokerError::TopicNotFound(_))));
    assert!(world.broker.topics().unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_was_sent_arrives_as_it_was() {
    let world = World::new().await;
    let sizes = [1, 255, 256 << 10, (256 << 10) + 1, BODY_BYTES_MAX];
    for (number, size) in sizes.into_iter().enumerate() {
        let mut sent = message(&format!("m{number}"));
        sent.body = (0..size).map(|at| (at * 31 + number) as u8).collect();
        sent.tag = Some("ta g".into());
        sent.keys = vec!["κλειδί".into(), "k2".into()];
        sent.properties = vec![("π".into(), "".into()), ("q".into(), "🦀".into())];
        sent.born_host = "host".into();
        sent.trace_context = Some("trace".into());
        sent.priority = Some(-3);
        world.try_send("orders", sent.clone()).await.unwrap();
        let got = world.receive_one("g", "orders").await;
        assert_eq!(got.body, sent.body, "{size} bytes");
        assert_eq!(got.message.tag, sent.tag);
        assert_eq!(got.message.keys, sent.keys);
        assert_eq!(got.message.properties, sent.properties);
        assert_eq!(got.message.born_host, sent.born_host);
        assert_eq!(got.message.trace_context, sent.trace_context);
        assert_eq!(got.message.priority, sent.priority);
        world.ack("g", "orders", &got).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn one_message_group_stays_in_one_queue() {
    let world = World::new().await;
    world.create_topic("orders", 8).await;
    let mut queues = Vec::new();
    for number in 0..10 {
        let grouped = NewMessage {
            kind: MessageKind::Fifo,
            message_group: Some("customer-7".into()),
            ..message(&format!("m{number}"))
        };
        queues.push(world.try_send("orders", grouped).await.unwrap().queue);
    }
    queues.dedup();
    assert_eq!(queues.len(), 1);
    let deliveries = world.receive("g", "orders").await;
    assert!(seen(&deliveries).iter().all(|(_, attempt)| *attempt == 1));
}

/// A message with an id that can't be its body too.
fn message_with_body(id: &str) -> NewMessage {
    NewMessage::new(id, Bytes::from("body"))
}
