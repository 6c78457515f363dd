//! Push consumers, whose deliveries the broker renews as long as they are there.

use std::time::Duration;

use pop_broker::listener::TlsChoice;
use pop_broker::rpc::RpcOptions;
use pop_proto::v2::{
    ChangeInvisibleDurationRequest, Code, Message, NotifyClientTerminationRequest, TelemetryCommand,
};
use tokio::{sync::mpsc, time::Instant};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Streaming};

use crate::support::{
    Client, Server, ack, attempt, code, handle, options, receive, receive_request, receive_some,
    request, resource, seconds, send_ok, soon,
};

async fn server(lease: Duration) -> Server {
    let mut rpc = RpcOptions::new();
    rpc.push.lease = lease;
    rpc.push.look_every = Duration::from_millis(50);
    rpc.push.gone_after = Duration::from_millis(300);
    Server::start_with(options(1), rpc, TlsChoice::Off).await
}

/// A push consumer with its stream open, which was handed a message.
struct Consumer {
    client: Client,
    message: Message,
    stream: (mpsc::Sender<TelemetryCommand>, Streaming<TelemetryCommand>),
}

fn of_consumer<T>(message: T) -> Request<T> {
    let mut request = request(message);
    let id = "push@1@2@abc".parse().unwrap();
    request.metadata_mut().insert("x-mq-client-id", id);
    request
}

impl Consumer {
    async fn holding_one(server: &Server) -> Self {
        let mut client = server.client().await;
        send_ok(&mut client, "orders", "id").await;
        let (commands, said) = mpsc::channel(1);
        let said = of_consumer(ReceiverStream::new(said));
        let answers = soon(client.telemetry(said)).await.unwrap().into_inner();
        let mut poll = receive_request("orders", "billing");
        poll.invisible_duration = None;
        poll.auto_renew = true;
        let mut received = receive(&mut client, of_consumer(poll)).await.messages;
        Self {
            client,
            message: received.remove(0),
            stream: (commands, answers),
        }
    }
}

/// BR-D02. Mutant: nothing is ever renewed.
#[tokio::test]
async fn a_push_consumer_that_works_for_long_gets_its_message_once() {
    let lease = Duration::from_secs(1);
    let server = server(lease).await;
    let mut consumer = Consumer::holding_one(&server).await;
    let mut other = server.client().await;
    let begun = Instant::now();
    while begun.elapsed() < 5 * lease {
        let poll = receive_request("orders", "billing");
        let received = receive(&mut other, request(poll)).await.messages;
        assert!(received.is_empty(), "after {:?}", begun.elapsed());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let handle = handle(&consumer.message);
    let acked = ack(&mut consumer.client, "orders", "billing", &[&handle]).await;
    assert_eq!(code(&acked.status), Code::Ok, "the first handle is good");
    drop(consumer.stream);
}

/// Mutant: only the time of the lease brings it back; the test would wait for an hour.
#[tokio::test]
async fn what_a_push_consumer_had_that_vanished_comes_again_soon() {
    let server = server(Duration::from_secs(3_600)).await;
    let consumer = Consumer::holding_one(&server).await;
    drop(consumer.stream);
    drop(consumer.client);
    let mut other = server.client().await;
    let again = receive_some(&mut other, "orders", "billing").await;
    assert_eq!(attempt(&again[0]), 2);
}

#[tokio::test]
async fn what_a_push_consumer_had_that_said_goodbye_comes_again_after_the_delay_of_its_group() {
    let server = server(Duration::from_secs(3_600)).await;
    let mut consumer = Consumer::holding_one(&server).await;
    let begun = Instant::now();
    let goodbye = NotifyClientTerminationRequest {
        group: Some(resource("billing")),
    };
    let goodbye = consumer
        .client
        .notify_client_termination(of_consumer(goodbye));
    assert_eq!(code(&goodbye.await.unwrap().into_inner().status), Code::Ok);
    let mut other = server.client().await;
    let again = receive_some(&mut other, "orders", "billing").await;
    assert_eq!(attempt(&again[0]), 2);
    let waited = begun.elapsed();
    assert!(waited >= Duration::from_secs(1), "{waited:?}");
    drop(consumer.stream);
}

/// BR-E04. Mutant: a delay of zero is taken at its word, and the consumer spins.
#[tokio::test]
async fn what_a_push_consumer_gives_back_comes_no_sooner_than_the_delay_of_its_group() {
    let server = server(Duration::from_secs(60)).await;
    let mut consumer = Consumer::holding_one(&server).await;
    let begun = Instant::now();
    let nack = ChangeInvisibleDurationRequest {
        group: Some(resource("billing")),
        topic: Some(resource("orders")),
        receipt_handle: handle(&consumer.message),
        invisible_duration: Some(seconds(0)),
        ..ChangeInvisibleDurationRequest::default()
    };
    let nacked = consumer.client.change_invisible_duration(of_consumer(nack));
    assert_eq!(code(&nacked.await.unwrap().into_inner().status), Code::Ok);
    let mut other = server.client().await;
    let again = receive_some(&mut other, "orders", "billing").await;
    assert_eq!(attempt(&again[0]), 2);
    let waited = begun.elapsed();
    assert!(waited >= Duration::from_secs(1), "{waited:?}");
    drop(consumer.stream);
}
