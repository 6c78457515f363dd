//! SendMessage: what is taken, and what each refused message is told.

use pop_model::limits;
use pop_proto::v2::{
    Code, Digest, DigestType, Message, MessageType, SendMessageRequest, SystemProperties,
};

use crate::support::{Server, code, message, receive_some, request_of, send};

#[tokio::test]
async fn a_batch_is_answered_entry_by_entry_in_its_order() {
    let server = Server::start().await;
    let mut client = server.client().await;
    let batch = (0..5).map(|id| message("orders", &format!("id-{id}"), b"body"));
    let answer = send(&mut client, batch.collect()).await;
    assert_eq!(code(&answer.status), Code::Ok);
    let ids: Vec<_> = answer
        .entries
        .iter()
        .map(|entry| &entry.message_id)
        .collect();
    assert_eq!(ids, ["id-0", "id-1", "id-2", "id-3", "id-4"]);
    assert!(
        answer
            .entries
            .iter()
            .all(|entry| code(&entry.status) == Code::Ok)
    );
}

#[tokio::test]
async fn one_bad_message_of_a_batch_does_not_hold_up_the_others() {
    let server = Server::start().await;
    let mut client = server.client().await;
    let batch = vec![
        message("orders", "first", b"body"),
        message("orders", "empty", b""),
        message("orders", "last", b"body"),
    ];
    let answer = send(&mut client, batch).await;
    assert_eq!(code(&answer.status), Code::MultipleResults);
    let codes: Vec<_> = answer
        .entries
        .iter()
        .map(|entry| code(&entry.status))
        .collect();
    assert_eq!(codes, [Code::Ok, Code::MessageBodyEmpty, Code::Ok]);
    let mut ids: Vec<_> = receive_some(&mut client, "orders", "billing").await;
    ids.extend(receive_some(&mut client, "orders", "billing").await);
    let mut ids: Vec<_> = ids
        .into_iter()
        .map(|message| message.system_properties.unwrap().message_id)
        .collect();
    ids.sort();
    assert_eq!(ids, ["first", "last"]);
}

/// A message with one thing wrong.
fn wrong(change: impl FnOnce(&mut Message, &mut SystemProperties)) -> Message {
    let mut message = message("orders", "id", b"body");
    let mut system = message.system_properties.take().unwrap();
    change(&mut message, &mut system);
    message.system_properties = Some(system);
    message
}

#[tokio::test]
async fn each_fault_of_a_message_has_its_code() {
    let server = Server::start().await;
    let mut client = server.client().await;
    let big = "x".repeat(limits::PROPERTIES_BYTES_MAX);
    let cases = [
        (
            Code::MessageBodyEmpty,
            wrong(|message, _| message.body.clear()),
        ),
        (
            Code::MessageBodyTooLarge,
            wrong(|message, _| message.body = vec![0; limits::BODY_BYTES_MAX + 1].into()),
        ),
        (
            Code::MessagePropertiesTooLarge,
            wrong(|message, _| message.user_properties = [("key".into(), big)].into()),
        ),
        (
            Code::MessagePropertiesTooLarge,
            wrong(|message, _| {
                let properties = (0..=limits::PROPERTIES_MAX).map(|n| (n.to_string(), "v".into()));
                message.user_properties = properties.collect();
            }),
        ),
        (
            Code::IllegalMessagePropertyKey,
            wrong(|message, _| message.user_properties = [("a\n".into(), "v".into())].into()),
        ),
        (
            Code::IllegalMessageId,
            wrong(|_, system| system.message_id.clear()),
        ),
        (
            Code::IllegalMessageId,
            wrong(|message, system| {
                *message = Message { ..message.clone() };
                *system = SystemProperties::default();
            }),
        ),
        (
            Code::IllegalMessageTag,
            wrong(|_, system| system.tag = Some(" ".into())),
        ),
        (
            Code::IllegalMessageTag,
            wrong(|_, system| system.tag = Some("a|b".into())),
        ),
        (
            Code::IllegalMessageKey,
            wrong(|_, system| system.keys = vec![String::new()]),
        ),
        (
            Code::IllegalMessageGroup,
            wrong(|_, system| {
                system.message_type = MessageType::Fifo.into();
                system.message_group = Some("g".repeat(limits::MESSAGE_GROUP_BYTES_MAX + 1));
            }),
        ),
        (
            Code::MessagePropertyConflictWithType,
            wrong(|_, system| system.message_type = MessageType::Fifo.into()),
        ),
        (
            Code::MessagePropertyConflictWithType,
            wrong(|_, system| system.message_type = 99),
        ),
        (
            Code::NotImplemented,
            wrong(|_, system| {
                system.message_type = MessageType::Delay.into();
                system.delivery_timestamp = Some(prost_types::Timestamp {
                    seconds: i64::MAX,
                    nanos: i32::MIN,
                });
            }),
        ),
        (
            Code::NotImplemented,
            wrong(|_, system| system.message_type = MessageType::Transaction.into()),
        ),
        (
            Code::NotImplemented,
            wrong(|_, system| system.message_type = MessageType::Lite.into()),
        ),
        (
            Code::NotImplemented,
            wrong(|_, system| system.body_encoding = 99),
        ),
        (
            Code::MessageCorrupted,
            wrong(|_, system| {
                system.body_digest = Some(Digest {
                    r#type: DigestType::Md5.into(),
                    checksum: "00000000000000000000000000000000".into(),
                });
            }),
        ),
    ];
    for (expected, message) in cases {
        let answer = send(&mut client, vec![message]).await;
        assert_eq!(code(&answer.status), expected);
        assert_eq!(answer.entries.len(), 1);
        assert_eq!(code(&answer.entries[0].status), expected);
        assert!(!answer.status.unwrap().message.is_empty());
    }
}

#[tokio::test]
async fn the_largest_message_goes_and_comes_whole() {
    let server = Server::start().await;
    let mut client = server.client().await;
    let body: Vec<u8> = (0..=250).cycle().take(limits::BODY_BYTES_MAX).collect();
    let mut largest = message("orders", "id", &body);
    let room = limits::PROPERTIES_BYTES_MAX - 1;
    largest.user_properties = [("p".into(), "v".repeat(room))].into();
    let answer = send(&mut client, vec![largest]).await;
    assert_eq!(code(&answer.status), Code::Ok);
    // The client here takes frames of 4 MiB, like those of Rust and Node.js.
    let messages = receive_some(&mut client, "orders", "billing").await;
    assert!(messages[0].body == body);
    assert_eq!(messages[0].user_properties["p"].len(), room);
}

#[tokio::test]
async fn a_request_without_messages_or_with_too_many_or_of_two_topics_is_refused_whole() {
    let server = Server::start().await;
    let mut client = server.client().await;
    let many = vec![message("orders", "id", b"body"); limits::SEND_BATCH_MAX + 1];
    let mixed = vec![
        message("orders", "a", b"body"),
        message("bills", "b", b"body"),
    ];
    for (expected, messages) in [
        (Code::MessageCorrupted, Vec::new()),
        (Code::MessageCorrupted, mixed),
        (Code::BadRequest, many),
    ] {
        let answer = send(&mut client, messages).await;
        assert_eq!(code(&answer.status), expected);
        assert!(answer.entries.is_empty());
    }
}

/// The crate panics on numbers that its version of the interface does not have.
#[tokio::test]
async fn the_rust_client_5_0_0_is_told_no_code_that_it_does_not_know() {
    let server = Server::start().await;
    let mut client = server.client().await;
    for (version, expected) in [
        ("5.0.0", Code::MessageCorrupted),
        ("5.1.0", Code::MessageBodyEmpty),
    ] {
        let request = SendMessageRequest {
            messages: vec![message("orders", "id", b"")],
        };
        let request = request_of("RUST", version, request);
        let answer = client.send_message(request).await.unwrap().into_inner();
        assert_eq!(code(&answer.status), expected);
        assert_eq!(code(&answer.entries[0].status), expected);
    }
}
