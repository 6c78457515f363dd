//! ReceiveMessage: frames, long polls, and clients that go away.

use std::time::Duration;

use pop_broker::{listener::TlsChoice, rpc::RpcOptions};
use pop_proto::v2::{
    Code, Digest, DigestType, Encoding, FilterType, MessageType, ReceiveMessageRequest,
    SystemProperties,
};
use tokio::time::{Instant, sleep};

use crate::support::{
    Server, ack, attempt, code, handle, message, options, receive, receive_request, receive_some,
    request, request_of, resource, seconds, send, send_ok, soon,
};

#[tokio::test]
async fn a_delivered_message_has_every_field_that_a_client_reads() {
    let server = Server::start().await;
    let mut client = server.client().await;
    let born = prost_types::Timestamp {
        seconds: 1_700_000_000,
        nanos: 123_000_000,
    };
    let mut sent = message("orders", "01ABCdef", b"123456789");
    sent.user_properties = [("color".into(), "blue".into())].into();
    sent.system_properties = Some(SystemProperties {
        tag: Some("paid".into()),
        keys: vec!["k1".into(), "k2".into()],
        message_id: "01ABCdef".into(),
        message_type: MessageType::Fifo.into(),
        message_group: Some("customer-7".into()),
        born_timestamp: Some(born),
        born_host: "producer".into(),
        trace_context: Some("trace".into()),
        ..SystemProperties::default()
    });
    send(&mut client, vec![sent]).await;

    let [message] = receive_some(&mut client, "orders", "billing")
        .await
        .try_into()
        .unwrap();
    assert_eq!(message.topic, Some(resource("orders")));
    assert_eq!(message.body, "123456789");
    assert_eq!(message.user_properties["color"], "blue");
    let system = message.system_properties.unwrap();
    assert_eq!(system.message_id, "01ABCdef");
    assert_eq!(system.tag.as_deref(), Some("paid"));
    assert_eq!(system.keys, ["k1", "k2"]);
    assert_eq!(system.message_type(), MessageType::Fifo);
    assert_eq!(system.message_group.as_deref(), Some("customer-7"));
    assert_eq!(system.born_timestamp, Some(born));
    assert_eq!(system.born_host, "producer");
    assert_eq!(system.trace_context.as_deref(), Some("trace"));
    // The one digest in the one form that all clients read alike.
    let md5 = Digest {
        r#type: DigestType::Md5.into(),
        checksum: "25F9E794323B453885F5181F1B624D0B".into(),
    };
    assert_eq!(system.body_digest, Some(md5));
    assert_eq!(system.body_encoding(), Encoding::Identity);
    assert_eq!(system.delivery_attempt, Some(1));
    assert_eq!(system.queue_offset, Some(0));
    assert_eq!(system.invisible_duration, Some(seconds(60)));
    assert!(!system.receipt_handle.unwrap().is_empty());
    assert!(system.store_timestamp.unwrap().seconds > born.seconds);
    assert_eq!(system.store_host, server.address.to_string());
}

#[tokio::test]
async fn an_empty_poll_says_so_and_the_go_client_gets_an_empty_success() {
    let server = Server::start().await;
    let mut client = server.client().await;
    let poll = receive_request("orders", "billing");
    let answer = receive(&mut client, request(poll.clone())).await;
    assert_eq!(answer.code, Code::MessageNotFound);
    let answer = receive(&mut client, request_of("GO", "5.1.4", poll)).await;
    assert_eq!(answer.code, Code::Ok);
    assert!(answer.messages.is_empty());
}

#[tokio::test]
async fn a_waiting_poll_gets_a_message_at_once() {
    let server = Server::start().await;
    let mut client = server.client().await;
    let mut consumer = client.clone();
    let waiting = tokio::spawn(async move {
        let started = Instant::now();
        let messages = receive_some(&mut consumer, "orders", "billing").await;
        (messages.len(), started.elapsed())
    });
    sleep(Duration::from_millis(300)).await;
    send_ok(&mut client, "orders", "id").await;
    let (count, waited) = waiting.await.unwrap();
    assert_eq!(count, 1);
    assert!(waited < Duration::from_secs(3), "{waited:?}");
}

/// Mutant: hold as long as the client asks for, whatever its deadline. The client gets an
/// error then.
#[tokio::test]
async fn a_poll_is_answered_before_the_deadline_of_the_client() {
    let server = Server::start().await;
    let mut client = server.client().await;
    let mut poll = receive_request("orders", "billing");
    poll.long_polling_timeout = Some(seconds(20));
    let mut poll = request(poll);
    poll.set_timeout(Duration::from_secs(2));
    let answer = receive(&mut client, poll).await;
    assert_eq!(answer.code, Code::MessageNotFound);
}

#[tokio::test]
async fn a_deadline_that_is_garbage_or_far_beyond_reason_is_taken() {
    let server = Server::start().await;
    let mut client = server.client().await;
    for deadline in ["garbage", "-1S", "99999999H", "18446744073709551615S"] {
        let mut poll = request(receive_request("orders", "billing"));
        let headers = poll.metadata_mut();
        headers.insert("grpc-timeout", deadline.parse().unwrap());
        let answer = soon(receive(&mut client, poll)).await;
        assert_eq!(answer.code, Code::MessageNotFound, "{deadline}");
    }
}

#[tokio::test]
async fn each_fault_of_a_receive_has_its_code() {
    let server = Server::start().await;
    let mut client = server.client().await;
    type Change = fn(&mut ReceiveMessageRequest);
    let cases: [(Code, Change); 12] = [
        (Code::BadRequest, |poll| poll.batch_size = 0),
        (Code::BadRequest, |poll| poll.batch_size = -1),
        (Code::BadRequest, |poll| poll.batch_size = i32::MIN),
        (Code::BadRequest, |poll| {
            poll.attempt_id = Some("x".repeat(256))
        }),
        (Code::IllegalInvisibleTime, |poll| {
            poll.invisible_duration = None
        }),
        (Code::IllegalInvisibleTime, |poll| {
            poll.invisible_duration = Some(seconds(0));
        }),
        (Code::IllegalInvisibleTime, |poll| {
            poll.invisible_duration = Some(prost_types::Duration {
                seconds: 0,
                nanos: -1,
            });
        }),
        (Code::IllegalInvisibleTime, |poll| {
            poll.invisible_duration = Some(prost_types::Duration {
                seconds: i64::MIN,
                nanos: i32::MIN,
            });
        }),
        (Code::IllegalInvisibleTime, |poll| {
            poll.invisible_duration = Some(seconds(12 * 60 * 60 + 1));
        }),
        (Code::IllegalInvisibleTime, |poll| {
            poll.invisible_duration = Some(prost_types::Duration {
                seconds: i64::MAX,
                nanos: i32::MAX,
            });
        }),
        (Code::IllegalFilterExpression, |poll| {
            poll.filter_expression.as_mut().unwrap().expression = "a |".into();
        }),
        (Code::NotImplemented, |poll| {
            poll.filter_expression.as_mut().unwrap().r#type = FilterType::Sql.into();
        }),
    ];
    for (number, (expected, change)) in cases.into_iter().enumerate() {
        let mut poll = receive_request("orders", "billing");
        change(&mut poll);
        let answer = receive(&mut client, request(poll)).await;
        assert_eq!(answer.code, expected, "case {number}");
    }
}

#[tokio::test]
async fn a_receive_gets_32_messages_at_most_whatever_it_asks_for() {
    let server = Server::start().await;
    let mut client = server.client().await;
    let batch = (0..40).map(|id| message("orders", &id.to_string(), b"body"));
    let sent = send(&mut client, batch.collect()).await;
    assert_eq!(code(&sent.status), Code::Ok);
    let mut poll = receive_request("orders", "billing");
    poll.batch_size = i32::MAX;
    let answer = receive(&mut client, request(poll)).await;
    assert_eq!(answer.messages.len(), 32);
}

#[tokio::test]
async fn a_push_consumer_leaves_the_length_of_its_lease_to_the_broker() {
    let server = Server::start().await;
    let mut client = server.client().await;
    send_ok(&mut client, "orders", "id").await;
    let mut poll = receive_request("orders", "billing");
    poll.invisible_duration = None;
    poll.auto_renew = true;
    let answer = receive(&mut client, request(poll)).await;
    let system = answer.messages[0].system_properties.as_ref().unwrap();
    assert_eq!(system.invisible_duration, Some(seconds(60)));
}

#[tokio::test]
async fn a_filter_hands_out_its_tags_alone() {
    let server = Server::start().await;
    let mut client = server.client().await;
    for tag in ["a", "b", "c"] {
        let mut tagged = message("orders", tag, b"body");
        tagged.system_properties.as_mut().unwrap().tag = Some(tag.into());
        send(&mut client, vec![tagged]).await;
    }
    let mut poll = receive_request("orders", "billing");
    poll.filter_expression.as_mut().unwrap().expression = "a || c".into();
    let answer = receive(&mut client, request(poll)).await;
    let mut tags: Vec<_> = answer
        .messages
        .into_iter()
        .map(|message| message.system_properties.unwrap().tag.unwrap())
        .collect();
    tags.sort();
    assert_eq!(tags, ["a", "c"]);
}

/// P1, P4. Mutant: wait in a task of its own, which outlives the call.
#[tokio::test]
async fn a_client_that_vanishes_while_it_waits_takes_nothing_with_it() {
    let server = Server::start().await;
    let mut client = server.client().await;
    for vanishes_whole in [false, true] {
        let topic = format!("orders-{vanishes_whole}");
        let mut lost = if vanishes_whole {
            // With its connection: what is left of it goes when the task goes.
            server.client().await
        } else {
            client.clone()
        };
        let lost_topic = topic.clone();
        let waiting = tokio::spawn(async move {
            receive_some(&mut lost, &lost_topic, "billing").await;
        });
        sleep(Duration::from_millis(300)).await;
        waiting.abort();
        assert!(waiting.await.unwrap_err().is_cancelled());
        // The server has to hear of it before there is a message.
        sleep(Duration::from_millis(200)).await;

        send_ok(&mut client, &topic, "id").await;
        let poll = receive_request(&topic, "billing");
        let answer = receive(&mut client, request(poll)).await;
        assert_eq!(answer.messages.len(), 1, "{topic}");
        assert_eq!(attempt(&answer.messages[0]), 1);
    }
}

#[tokio::test]
async fn more_waiting_polls_than_allowed_are_told_to_come_back() {
    let mut rpc_options = RpcOptions::new();
    rpc_options.polls_max = 1;
    let server = Server::start_with(options(1), rpc_options, TlsChoice::Off).await;
    let mut client = server.client().await;
    let mut consumer = client.clone();
    let waiting =
        tokio::spawn(async move { receive_some(&mut consumer, "orders", "billing").await });
    sleep(Duration::from_millis(300)).await;
    let poll = || request(receive_request("orders", "billing"));
    let answer = receive(&mut client, poll()).await;
    assert_eq!(answer.code, Code::TooManyRequests);
    // Sends are not counted with them, and a poll that ended makes room.
    send_ok(&mut client, "orders", "id").await;
    assert_eq!(waiting.await.unwrap().len(), 1);
    let answer = receive(&mut client, poll()).await;
    assert_eq!(answer.code, Code::MessageNotFound);
}

#[tokio::test]
async fn a_poll_is_never_longer_than_the_broker_allows() {
    let mut rpc_options = RpcOptions::new();
    rpc_options.long_poll_max = Duration::from_millis(200);
    let server = Server::start_with(options(1), rpc_options, TlsChoice::Off).await;
    let mut client = server.client().await;
    let mut poll = receive_request("orders", "billing");
    poll.long_polling_timeout = Some(seconds(i64::MAX));
    let answer = soon(receive(&mut client, request(poll))).await;
    assert_eq!(answer.code, Code::MessageNotFound);
}

#[tokio::test]
async fn a_client_that_is_held_back_to_the_end_is_told_that_too_much_is_out() {
    // Mutant: `BoundIgnored`, or the error of a refused request: a client would not try
    // again.
    let mut bounded = options(1);
    bounded.cache.in_flight_per_group_max = 1;
    let server = Server::start_with(bounded, RpcOptions::new(), TlsChoice::SelfSigned).await;
    let mut client = server.client().await;
    for id in ["1", "2"] {
        send_ok(&mut client, "orders", id).await;
    }
    let first = receive_some(&mut client, "orders", "billing").await;
    assert_eq!(first.len(), 1);
    let mut poll = receive_request("orders", "billing");
    poll.long_polling_timeout = Some(seconds(1));
    let held_back = soon(receive(&mut client, request(poll))).await;
    assert_eq!(held_back.code, Code::TooManyRequests);
    assert!(held_back.messages.is_empty());

    // Woken by an acknowledgement, long before its poll is over.
    let mut poll = receive_request("orders", "billing");
    poll.long_polling_timeout = Some(seconds(20));
    let mut other = server.client().await;
    let handle = handle(&first[0]);
    let ack = async {
        sleep(Duration::from_millis(200)).await;
        ack(&mut other, "orders", "billing", &[&handle]).await
    };
    let waiting = receive(&mut client, request(poll));
    let (received, acked) = soon(async { tokio::join!(waiting, ack) }).await;
    assert_eq!(code(&acked.status), Code::Ok);
    assert_eq!((received.code, received.messages.len()), (Code::Ok, 1));
}
