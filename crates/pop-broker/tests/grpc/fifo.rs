//! Groups that consume in order, as clients see them (P7).

use pop_broker::{GroupSpec, TopicSpec};
use pop_model::{GroupName, Namespace, RetryPolicy, StartPosition, TopicName};
use pop_proto::v2::{
    ClientType, Code, ForwardMessageToDeadLetterQueueRequest, Message, MessageType,
    ReceiveMessageRequest, Settings, Subscription, TelemetryCommand, settings::PubSub,
    telemetry_command::Command,
};
use tokio_stream::wrappers::ReceiverStream;

use crate::support::{
    Client, Server, ack, attempt, code, handle, message, receive, receive_request, request,
    resource, send, soon,
};

async fn server_with_fifo_group(name: &str) -> Server {
    let server = Server::start().await;
    let spec = GroupSpec {
        name: GroupName::user(&Namespace::default(), name).unwrap(),
        policy: RetryPolicy::default(),
        start: StartPosition::Earliest,
        fifo: true,
    };
    server.broker.create_group(spec).await.unwrap();
    let spec = TopicSpec {
        name: TopicName::user(&Namespace::default(), "orders").unwrap(),
        queues: 1,
    };
    server.broker.create_topic(spec).await.unwrap();
    server
}

async fn send_in_order(client: &mut Client, ids: &[&str], group: &str) {
    for id in ids {
        let mut message = message("orders", id, b"body");
        let system = message.system_properties.as_mut().unwrap();
        system.message_type = MessageType::Fifo.into();
        system.message_group = Some(group.into());
        let sent = send(client, vec![message]).await;
        assert_eq!(code(&sent.status), Code::Ok);
    }
}

fn two(attempt_id: &str) -> ReceiveMessageRequest {
    ReceiveMessageRequest {
        batch_size: 2,
        attempt_id: Some(attempt_id.into()),
        ..receive_request("orders", "ledger")
    }
}

fn ids(messages: &[Message]) -> Vec<&str> {
    let systems = messages
        .iter()
        .map(|message| message.system_properties.as_ref());
    systems
        .map(|system| system.unwrap().message_id.as_str())
        .collect()
}

#[tokio::test]
async fn a_client_is_told_that_its_group_consumes_in_order() {
    // Mutant: `fifo` left out of the settings: consumers would work on a batch in parallel.
    let server = server_with_fifo_group("ledger").await;
    let mut client = server.client().await;
    for (group, fifo) in [("ledger", true), ("billing", false)] {
        let (commands, said) = tokio::sync::mpsc::channel(1);
        let request = request(ReceiverStream::new(said));
        let mut answers = soon(client.telemetry(request)).await.unwrap().into_inner();
        let settings = Settings {
            client_type: Some(ClientType::PushConsumer.into()),
            pub_sub: Some(PubSub::Subscription(Subscription {
                group: Some(resource(group)),
                ..Subscription::default()
            })),
            ..Settings::default()
        };
        let command = TelemetryCommand {
            status: None,
            command: Some(Command::Settings(settings)),
        };
        commands.send(command).await.unwrap();
        let answer = soon(answers.message()).await.unwrap().unwrap();
        let Some(Command::Settings(settings)) = answer.command else {
            panic!("{answer:?} is not the settings");
        };
        let Some(PubSub::Subscription(subscription)) = settings.pub_sub else {
            panic!("{settings:?} is not of a consumer");
        };
        assert_eq!(subscription.fifo, Some(fifo), "{group}");
    }
}

#[tokio::test]
async fn a_message_group_has_one_batch_out_and_another_one_goes_on() {
    // P7, BR-F01. Mutants: `FifoSecondBatch`, `FifoForgetsTheAttemptId`.
    let server = server_with_fifo_group("ledger").await;
    let mut client = server.client().await;
    send_in_order(&mut client, &["a1", "a2", "a3"], "a").await;
    send_in_order(&mut client, &["b1"], "b").await;
    // Each call hands out of one message group after the other, whole batches of it.
    let first = receive(&mut client, request(two("x"))).await.messages;
    assert_eq!(ids(&first), ["a1", "a2"]);
    let other = receive(&mut client, request(two("y"))).await.messages;
    assert_eq!(ids(&other), ["b1"]);

    let none = receive(&mut client, request(two("z"))).await;
    assert_eq!(none.code, Code::MessageNotFound);
    assert!(none.messages.is_empty());
    // Whoever repeats a receive whose answer was lost gets it again.
    let again = receive(&mut client, request(two("x"))).await.messages;
    assert_eq!(ids(&again), ["a1", "a2"]);
    assert!(again.iter().all(|message| attempt(message) == 1));

    let handles: Vec<String> = again.iter().map(handle).collect();
    let handles: Vec<&str> = handles.iter().map(String::as_str).collect();
    let acked = ack(&mut client, "orders", "ledger", &handles).await;
    assert_eq!(code(&acked.status), Code::Ok);
    let rest = receive(&mut client, request(two("z"))).await.messages;
    assert_eq!(ids(&rest), ["a3"]);
}

#[tokio::test]
async fn a_consumer_forwards_a_message_to_the_dead_letters_and_its_group_goes_on() {
    let server = server_with_fifo_group("ledger").await;
    let mut client = server.client().await;
    send_in_order(&mut client, &["a1", "a2"], "a").await;
    let mut poll = two("x");
    poll.batch_size = 1;
    let first = receive(&mut client, request(poll)).await.messages;
    let forward = ForwardMessageToDeadLetterQueueRequest {
        group: Some(resource("ledger")),
        topic: Some(resource("orders")),
        receipt_handle: handle(&first[0]),
        message_id: "a1".into(),
        // One client counts deliveries here, another one its own tries.
        delivery_attempt: 99,
        max_delivery_attempts: 1,
        ..ForwardMessageToDeadLetterQueueRequest::default()
    };
    // A client repeats it until it is answered OK.
    for _ in 0..2 {
        let call = client.forward_message_to_dead_letter_queue(request(forward.clone()));
        let answer = call.await.unwrap().into_inner();
        assert_eq!(code(&answer.status), Code::Ok, "{:?}", answer.status);
    }
    let next = receive(&mut client, request(two("y"))).await.messages;
    assert_eq!(ids(&next), ["a2"]);
    let dead = receive_request("%DLQ%ledger", "undertaker");
    let dead = receive(&mut client, request(dead)).await.messages;
    assert_eq!(ids(&dead), ["a1"]);

    let mut other = forward;
    other.receipt_handle = "made up".into();
    let call = client.forward_message_to_dead_letter_queue(request(other));
    let answer = call.await.unwrap().into_inner();
    assert_eq!(code(&answer.status), Code::InvalidReceiptHandle);
}
