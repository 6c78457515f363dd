//! The telemetry stream, and the calls that say whether a client lives.

use std::time::Duration;

use pop_model::limits;
use pop_proto::v2::{
    ClientType, Code, EndTransactionRequest, HeartbeatRequest, NotifyClientTerminationRequest,
    Publishing, PullMessageRequest, QueryRouteRequest, RecallMessageRequest, Settings,
    Subscription, SyncLiteSubscriptionRequest, TelemetryCommand, ThreadStackTrace,
    retry_policy::Strategy, settings::PubSub, telemetry_command::Command,
};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Streaming};

use crate::support::{
    Client, Server, code, endpoints, receive, receive_request, request, request_of, resource, soon,
};

struct Stream {
    commands: mpsc::Sender<TelemetryCommand>,
    answers: Streaming<TelemetryCommand>,
}

impl Stream {
    /// Opens a stream without saying anything on it.
    async fn open(client: &mut Client, language: &'static str) -> Self {
        let (commands, said) = mpsc::channel(8);
        let said = ReceiverStream::new(said);
        let request = request_of(language, "1", said);
        let answers = soon(client.telemetry(request)).await.unwrap().into_inner();
        Self { commands, answers }
    }

    async fn say(&self, command: Command) {
        let command = TelemetryCommand {
            status: None,
            command: Some(command),
        };
        self.commands.send(command).await.unwrap();
    }

    async fn settings(&mut self) -> Settings {
        let answer = soon(self.answers.message()).await.unwrap().unwrap();
        assert_eq!(code(&answer.status), Code::Ok);
        match answer.command {
            Some(Command::Settings(settings)) => settings,
            other => panic!("{other:?} is not the settings"),
        }
    }
}

fn producer(topic: &str) -> Settings {
    Settings {
        client_type: Some(ClientType::Producer.into()),
        access_point: Some(endpoints()),
        request_timeout: Some(prost_types::Duration {
            seconds: 3,
            nanos: 0,
        }),
        pub_sub: Some(PubSub::Publishing(Publishing {
            topics: vec![resource(topic)],
            ..Publishing::default()
        })),
        ..Settings::default()
    }
}

fn consumer(group: &str) -> Settings {
    Settings {
        client_type: Some(ClientType::SimpleConsumer.into()),
        pub_sub: Some(PubSub::Subscription(Subscription {
            group: Some(resource(group)),
            ..Subscription::default()
        })),
        ..Settings::default()
    }
}

/// One client waits for the response's headers, without a limit, before it says anything.
/// Mutant: await the first command before the stream is answered.
#[tokio::test]
async fn every_settings_command_is_answered_and_the_stream_opens_before_the_first() {
    let server = Server::start().await;
    let mut client = server.client().await;
    let mut stream = Stream::open(&mut client, "JAVA").await;
    for _ in 0..3 {
        let sent = producer("orders");
        stream.say(Command::Settings(sent.clone())).await;
        let merged = stream.settings().await;
        assert_eq!(merged.client_type, sent.client_type);
        assert_eq!(merged.access_point, sent.access_point);
        assert_eq!(merged.request_timeout, sent.request_timeout);
        assert!(!merged.metric.unwrap().on);
        let policy = merged.backoff_policy.unwrap();
        assert_eq!(policy.max_attempts, 3);
        assert!(matches!(
            policy.strategy,
            Some(Strategy::ExponentialBackoff(_))
        ));
        let Some(PubSub::Publishing(publishing)) = merged.pub_sub else {
            panic!("not a producer's");
        };
        assert_eq!(publishing.topics, [resource("orders")]);
        assert_eq!(publishing.max_body_size as usize, limits::BODY_BYTES_MAX);
        assert!(publishing.validate_message_type);
    }
}

#[tokio::test]
async fn a_consumer_gets_everything_that_it_would_fail_without() {
    let server = Server::start().await;
    let mut client = server.client().await;
    for (language, customized) in [("JAVA", true), ("PYTHON", true), ("HTTP", false)] {
        let mut stream = Stream::open(&mut client, language).await;
        stream.say(Command::Settings(consumer("billing"))).await;
        let merged = stream.settings().await;
        let policy = merged.backoff_policy.unwrap();
        assert_eq!(policy.max_attempts, 17);
        match policy.strategy.unwrap() {
            Strategy::CustomizedBackoff(backoff) => {
                assert!(customized);
                assert_eq!(backoff.next.len(), 18);
            }
            Strategy::ExponentialBackoff(_) => assert!(!customized),
        }
        let Some(PubSub::Subscription(subscription)) = merged.pub_sub else {
            panic!("not a consumer's");
        };
        assert_eq!(subscription.group, Some(resource("billing")));
        assert_eq!(subscription.fifo, Some(false));
        assert_eq!(subscription.receive_batch_size, Some(32));
        assert_eq!(subscription.long_polling_timeout.unwrap().seconds, 20);
    }
}

/// It loses settings that come while it still asks for routes, and then waits for more.
#[tokio::test]
async fn the_node_client_gets_its_settings_twice() {
    let server = Server::start().await;
    let mut client = server.client().await;
    let mut stream = Stream::open(&mut client, "HTTP").await;
    stream.say(Command::Settings(producer("orders"))).await;
    let first = stream.settings().await;
    let second = stream.settings().await;
    assert_eq!(first, second);
}

#[tokio::test]
async fn commands_that_ask_for_nothing_are_passed_over() {
    let server = Server::start().await;
    let mut client = server.client().await;
    let mut stream = Stream::open(&mut client, "GO").await;
    let trace = ThreadStackTrace {
        nonce: "never asked for".into(),
        thread_stack_trace: None,
    };
    stream.say(Command::ThreadStackTrace(trace)).await;
    stream
        .commands
        .send(TelemetryCommand::default())
        .await
        .unwrap();
    stream.say(Command::Settings(producer("orders"))).await;
    stream.settings().await;
}

#[tokio::test]
async fn settings_that_say_nothing_or_name_things_badly_end_the_stream() {
    let server = Server::start().await;
    let mut client = server.client().await;
    for settings in [
        Settings::default(),
        producer("a b"),
        consumer(""),
        consumer("ä"),
    ] {
        let mut stream = Stream::open(&mut client, "JAVA").await;
        stream.say(Command::Settings(settings)).await;
        let error = soon(stream.answers.message()).await.unwrap_err();
        assert_eq!(error.code(), tonic::Code::InvalidArgument);
    }
}

#[tokio::test]
async fn the_stream_ends_when_the_client_ends_its_half() {
    let server = Server::start().await;
    let mut client = server.client().await;
    let mut stream = Stream::open(&mut client, "JAVA").await;
    drop(stream.commands);
    assert_eq!(soon(stream.answers.message()).await.unwrap(), None);
}

#[tokio::test]
async fn a_server_on_its_way_out_ends_streams_and_polls_at_once() {
    let server = Server::start().await;
    let mut client = server.client().await;
    let mut stream = Stream::open(&mut client, "JAVA").await;
    let mut consumer = client.clone();
    let waiting = tokio::spawn(async move {
        let mut poll = receive_request("orders", "billing");
        poll.long_polling_timeout = Some(prost_types::Duration {
            seconds: 20,
            nanos: 0,
        });
        receive(&mut consumer, request(poll)).await
    });
    tokio::time::sleep(Duration::from_millis(300)).await;
    let stopped = tokio::time::timeout(Duration::from_secs(2), server.stop());
    stopped.await.expect("in two seconds").unwrap();
    assert_eq!(stream.answers.message().await.unwrap(), None);
    assert_eq!(waiting.await.unwrap().code, Code::MessageNotFound);
}

#[tokio::test]
async fn signs_of_life_and_the_last_word_are_taken() {
    let server = Server::start().await;
    let mut client = server.client().await;
    let heartbeat = HeartbeatRequest {
        group: Some(resource("billing")),
        client_type: ClientType::PushConsumer.into(),
    };
    let answer = client.heartbeat(request(heartbeat)).await.unwrap();
    assert_eq!(code(&answer.into_inner().status), Code::Ok);
    let last = NotifyClientTerminationRequest { group: None };
    let answer = client.notify_client_termination(request(last)).await;
    assert_eq!(code(&answer.unwrap().into_inner().status), Code::Ok);
}

#[tokio::test]
async fn a_client_without_an_id_is_told_so() {
    let server = Server::start().await;
    let mut client = server.client().await;
    let query = QueryRouteRequest {
        topic: Some(resource("orders")),
        endpoints: Some(endpoints()),
    };
    let answer = client.query_route(Request::new(query.clone())).await;
    assert_eq!(
        code(&answer.unwrap().into_inner().status),
        Code::ClientIdRequired
    );
    let mut blank = Request::new(query);
    let headers = blank.metadata_mut();
    headers.insert("x-mq-client-id", " ".parse().unwrap());
    let answer = client.query_route(blank).await;
    assert_eq!(
        code(&answer.unwrap().into_inner().status),
        Code::ClientIdRequired
    );
    let poll = receive_request("orders", "billing");
    let answer = receive(&mut client, Request::new(poll)).await;
    assert_eq!(answer.code, Code::ClientIdRequired);
    let nothing = tokio_stream::empty();
    let error = client.telemetry(Request::new(nothing)).await.unwrap_err();
    assert_eq!(error.code(), tonic::Code::InvalidArgument);
}

#[tokio::test]
async fn what_is_not_offered_says_so() {
    let server = Server::start().await;
    let mut client = server.client().await;
    let answer = client.end_transaction(request(EndTransactionRequest::default()));
    let end = answer.await.unwrap().into_inner().status;
    let answer = client.recall_message(request(RecallMessageRequest::default()));
    let recall = answer.await.unwrap().into_inner().status;
    let lite = SyncLiteSubscriptionRequest::default();
    let answer = client.sync_lite_subscription(request(lite));
    let lite = answer.await.unwrap().into_inner().status;
    for status in [end, recall, lite] {
        assert_eq!(code(&status), Code::NotImplemented);
        assert!(status.unwrap().message.contains("not offered"));
    }
    // The reference server has no such call either.
    let pull = client.pull_message(request(PullMessageRequest::default()));
    assert_eq!(pull.await.unwrap_err().code(), tonic::Code::Unimplemented);
}
