//! What every call answers to every failure of the store.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use futures::StreamExt;
use pop_model::{LeaseTime, ManualClock, WallTime};
use pop_proto::v2::{
    Code, Message, MessageQueue, Resource, Settings, Status, Subscription, SystemProperties,
    messaging_service_server::MessagingService, receive_message_response::Content,
    settings::PubSub,
};
use pop_store::{
    ErrorKind, MemStore, Store,
    table::KEYSPACES,
    testkit::{Call, Fault, FaultStore, Faults},
};
use tokio::{sync::Semaphore, time::Instant};
use tonic::Request;

use super::*;
use crate::{
    Broker, BrokerOptions, OpenStore,
    heard::Heard,
    rpc::{Caller, PushConsumers, PushOptions, Rpc, RpcOptions, settings::Merge},
};

/// The calls that there are, as the interface lists them.
const INTERFACE: &str =
    include_str!("../../../../pop-proto/proto/apache/rocketmq/v2/service.proto");
const READS: [Call; 4] = [Call::Get, Call::MultiGet, Call::Scan, Call::Snapshot];

fn calls() -> Vec<&'static str> {
    let calls = INTERFACE
        .lines()
        .filter_map(|it| it.trim().strip_prefix("rpc "));
    calls.filter_map(|it| it.split('(').next()).collect()
}

/// What a client is told of each kind. Not of a conflict: that is an answer, of which each
/// call makes something else.
fn expected(kind: ErrorKind) -> Option<Code> {
    match kind {
        ErrorKind::NoSpace | ErrorKind::Unavailable => Some(Code::TooManyRequests),
        ErrorKind::Unsupported => Some(Code::NotImplemented),
        ErrorKind::InDoubt
        | ErrorKind::Poisoned
        | ErrorKind::Corrupt
        | ErrorKind::Invalid
        | ErrorKind::Locked
        | ErrorKind::Incompatible => Some(Code::InternalServerError),
        ErrorKind::Conflict => None,
        new => panic!("what is a client told of {new:?}?"),
    }
}

#[derive(Debug)]
struct Opened(FaultStore<MemStore>);

#[async_trait]
impl OpenStore for Opened {
    async fn open(&self) -> pop_store::Result<Arc<dyn Store>> {
        Ok(Arc::new(self.0.clone()))
    }
}

/// A broker with three deliveries that are out as rows, so that whatever becomes of them is
/// a matter of the store.
struct World {
    rpc: Rpc,
    faults: Faults,
    handles: Vec<String>,
}

fn request<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    let headers = request.metadata_mut();
    headers.insert("x-mq-client-id", "id".parse().unwrap());
    request
}

fn named(name: &str) -> Option<Resource> {
    Some(Resource {
        resource_namespace: String::new(),
        name: name.into(),
    })
}

fn message(topic: &str) -> Message {
    Message {
        topic: named(topic),
        system_properties: Some(SystemProperties {
            message_id: "id".into(),
            ..SystemProperties::default()
        }),
        body: b"body".to_vec().into(),
        ..Message::default()
    }
}

fn poll(group: &str, wait: i64) -> v2::ReceiveMessageRequest {
    v2::ReceiveMessageRequest {
        group: named(group),
        message_queue: Some(MessageQueue {
            topic: named("orders"),
            ..MessageQueue::default()
        }),
        batch_size: 32,
        invisible_duration: Some(seconds(60)),
        long_polling_timeout: Some(seconds(wait)),
        ..v2::ReceiveMessageRequest::default()
    }
}

fn seconds(seconds: i64) -> prost_types::Duration {
    prost_types::Duration { seconds, nanos: 0 }
}

fn endpoints() -> Option<v2::Endpoints> {
    Some(v2::Endpoints {
        addresses: vec![v2::Address {
            host: "broker.example".into(),
            port: 8_081,
        }],
        ..v2::Endpoints::default()
    })
}

/// The status of the answer that these have in common.
fn same(status: Option<Status>, entries: impl IntoIterator<Item = Option<Status>>) -> Status {
    let status = status.unwrap();
    for entry in entries {
        assert_eq!(entry.unwrap().code, status.code);
    }
    status
}

impl World {
    async fn new() -> Self {
        let faults = Faults::none();
        let store = FaultStore::new(MemStore::new(&KEYSPACES), faults.clone());
        let clock = ManualClock::new(
            LeaseTime::from_millis(1_000_000),
            WallTime::from_unix_millis(1_000_000),
        );
        let options = BrokerOptions::new(Arc::new(|secret: &mut [u8]| secret.fill(7)))
            .with_clock(Arc::new(clock.clone()));
        let broker = Broker::open(Arc::new(Opened(store)), options)
            .await
            .unwrap();
        let rpc = Rpc {
            push: PushConsumers::new(broker.clone(), PushOptions::default()),
            broker,
            options: RpcOptions::new(),
            polls: Arc::new(Semaphore::new(8)),
        };
        let mut world = Self {
            rpc,
            faults,
            handles: Vec::new(),
        };
        for _ in 0..3 {
            assert_eq!(code(&world.call("SendMessage").await), Code::Ok);
        }
        while world.handles.len() < 3 {
            let frames = world.rpc.receive_message(request(poll("billing", 5))).await;
            let frames: Vec<_> = frames.unwrap().into_inner().collect().await;
            let contents = frames.into_iter().filter_map(|it| it.unwrap().content);
            world
                .handles
                .extend(contents.filter_map(|content| match content {
                    Content::Message(message) => message.system_properties?.receipt_handle,
                    _ => None,
                }));
        }
        clock.advance(Duration::from_secs(11));
        tokio::time::sleep(Duration::from_secs(5)).await;
        world
    }

    /// Makes a call that needs the store, if any of its kind does.
    async fn call(&self, name: &str) -> Result<Status, tonic::Status> {
        let rpc = &self.rpc;
        let (topic, group) = (named("orders"), named("billing"));
        let handle = |at: usize| self.handles.get(at).cloned().unwrap_or_default();
        Ok(match name {
            "QueryRoute" => {
                let asked = rpc.query_route(request(v2::QueryRouteRequest {
                    topic: named("made-for-a-route"),
                    endpoints: endpoints(),
                }));
                same(asked.await?.into_inner().status, [])
            }
            "QueryAssignment" => {
                let asked = rpc.query_assignment(request(v2::QueryAssignmentRequest {
                    topic: named("made-for-an-assignment"),
                    group,
                    endpoints: endpoints(),
                }));
                same(asked.await?.into_inner().status, [])
            }
            "SendMessage" => {
                let messages = vec![message("orders")];
                let sent = rpc.send_message(request(v2::SendMessageRequest { messages }));
                let sent = sent.await?.into_inner();
                same(sent.status, sent.entries.into_iter().map(|it| it.status))
            }
            "ReceiveMessage" => {
                let frames = rpc.receive_message(request(poll("of-its-own", 0))).await?;
                let frames: Vec<_> = frames.into_inner().collect().await;
                match frames.into_iter().next().unwrap()?.content {
                    Some(Content::Status(status)) => status,
                    other => panic!("the first frame is the status: {other:?}"),
                }
            }
            "AckMessage" => {
                let entry = |at| v2::AckMessageEntry {
                    message_id: "id".into(),
                    receipt_handle: handle(at),
                    lite_topic: None,
                };
                let acked = rpc.ack_message(request(v2::AckMessageRequest {
                    group,
                    topic,
                    entries: vec![entry(0), entry(1)],
                }));
                let acked = acked.await?.into_inner();
                same(acked.status, acked.entries.into_iter().map(|it| it.status))
            }
            "ChangeInvisibleDuration" => {
                let changed = v2::ChangeInvisibleDurationRequest {
                    group,
                    topic,
                    receipt_handle: handle(0),
                    invisible_duration: Some(seconds(30)),
                    ..v2::ChangeInvisibleDurationRequest::default()
                };
                let changed = rpc.change_invisible_duration(request(changed));
                let changed = changed.await?.into_inner();
                // One client takes it whatever the status.
                assert_eq!(changed.receipt_handle, handle(0));
                same(changed.status, [])
            }
            "ForwardMessageToDeadLetterQueue" => {
                let given_up = v2::ForwardMessageToDeadLetterQueueRequest {
                    group,
                    topic,
                    receipt_handle: handle(2),
                    ..v2::ForwardMessageToDeadLetterQueueRequest::default()
                };
                let given_up = rpc.forward_message_to_dead_letter_queue(request(given_up));
                same(given_up.await?.into_inner().status, [])
            }
            "EndTransaction" => same(
                rpc.end_transaction(request(v2::EndTransactionRequest::default()))
                    .await?
                    .into_inner()
                    .status,
                [],
            ),
            "RecallMessage" => same(
                rpc.recall_message(request(v2::RecallMessageRequest::default()))
                    .await?
                    .into_inner()
                    .status,
                [],
            ),
            "SyncLiteSubscription" => same(
                rpc.sync_lite_subscription(request(v2::SyncLiteSubscriptionRequest::default()))
                    .await?
                    .into_inner()
                    .status,
                [],
            ),
            "Heartbeat" => same(
                rpc.heartbeat(request(v2::HeartbeatRequest::default()))
                    .await?
                    .into_inner()
                    .status,
                [],
            ),
            "NotifyClientTermination" => same(
                rpc.notify_client_termination(request(
                    v2::NotifyClientTerminationRequest::default(),
                ))
                .await?
                .into_inner()
                .status,
                [],
            ),
            // Its stream is made of these.
            "Telemetry" => {
                let merge = Merge {
                    broker: rpc.broker.clone(),
                    long_poll_max: Duration::from_secs(20),
                };
                let settings = Settings {
                    pub_sub: Some(PubSub::Subscription(Subscription {
                        group,
                        ..Subscription::default()
                    })),
                    ..Settings::default()
                };
                let caller = Caller::of(&request(()));
                merge
                    .settings(settings, &caller)
                    .map_err(Refusal::error)
                    .map(|_| ok())?
            }
            "PullMessage" => {
                let pulled = rpc.pull_message(request(v2::PullMessageRequest::default()));
                pulled.await.map(|_| ok())?
            }
            "UpdateOffset" => {
                let updated = rpc.update_offset(request(v2::UpdateOffsetRequest::default()));
                updated.await.map(|_| ok())?
            }
            "GetOffset" => {
                let got = rpc.get_offset(request(v2::GetOffsetRequest::default()));
                got.await.map(|_| ok())?
            }
            "QueryOffset" => {
                let found = rpc.query_offset(request(v2::QueryOffsetRequest::default()));
                found.await.map(|_| ok())?
            }
            new => panic!("what does {new} answer when the store fails?"),
        })
    }
}

#[track_caller]
fn code(answer: &Result<Status, tonic::Status>) -> Code {
    Code::try_from(answer.as_ref().unwrap().code).unwrap()
}

/// What a call answers whatever the store does, if it does not need it.
fn without_a_store(name: &str) -> Option<Result<Code, tonic::Code>> {
    match name {
        "Heartbeat" | "NotifyClientTermination" | "Telemetry" => Some(Ok(Code::Ok)),
        "EndTransaction" | "RecallMessage" | "SyncLiteSubscription" => {
            Some(Ok(Code::NotImplemented))
        }
        "PullMessage" | "UpdateOffset" | "GetOffset" | "QueryOffset" => {
            Some(Err(tonic::Code::Unimplemented))
        }
        _ => None,
    }
}

async fn check(name: &str, kind: ErrorKind, fails: &[Call]) {
    let world = World::new().await;
    for call in fails {
        match kind {
            // A conflict is tried again, so that one for ever is none.
            ErrorKind::Conflict => world.faults.arm(*call, 1, Fault::Fail(kind)),
            _ => world.faults.arm_all(*call, Fault::Fail(kind)),
        };
    }
    let before = world.faults.injected_count();
    let answer = world.call(name).await;
    let hit = world.faults.injected_count() > before;
    world.faults.disarm();
    if let Some(always) = without_a_store(name) {
        let answered = answer.map_err(|it| it.code());
        let answered = answered.map(|it| Code::try_from(it.code).unwrap());
        return assert_eq!(answered, always, "{name}, {kind:?}");
    }
    let Some(expected) = expected(kind) else {
        // Whatever it is made of, it is a status that says something.
        assert!(!answer.unwrap().message.is_empty(), "{name}, {kind:?}");
        return;
    };
    if name == "SendMessage" && fails == READS {
        // Of a topic that is in use nothing is read.
        return assert_eq!(code(&answer), Code::Ok);
    }
    assert!(hit, "{name} asks the store");
    assert_eq!(code(&answer), expected, "{name}, {kind:?}: {answer:?}");
    let message = answer.unwrap().message;
    if kind == ErrorKind::NoSpace {
        assert!(message.contains("the disk of the broker is full"));
    }
    let of_this_delivery = matches!(kind, ErrorKind::Corrupt | ErrorKind::Invalid);
    if name != "ForwardMessageToDeadLetterQueue" || !of_this_delivery {
        assert!(!message.contains("injected"), "{message}");
    }
}

/// P6. Mutants: one kind falls through to an internal error; the sink makes text of what the
/// store said; a write that is refused for space is answered OK.
#[tokio::test(start_paused = true)]
async fn every_call_says_of_every_failed_write_what_a_client_can_do() {
    let calls = calls();
    assert_eq!(calls.len(), 17, "{calls:?}");
    for name in calls {
        for kind in ErrorKind::ALL {
            check(name, kind, &[Call::Write]).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn every_call_says_of_every_refused_read_what_a_client_can_do() {
    for name in calls() {
        for kind in ErrorKind::ALL.into_iter().filter(|it| it.is_refusal()) {
            check(name, kind, &READS).await;
        }
    }
}

/// P5. Mutant: it is answered at once, and its push consumer is back after 20 ms.
#[tokio::test(start_paused = true)]
async fn a_receive_that_the_store_refuses_is_held_back_for_a_second() {
    for (wait, held) in [(5, 1_000), (0, 0)] {
        let world = World::new().await;
        world.faults.arm_all(Call::Write, Fault::Full);
        let begun = Instant::now();
        let polled = world.rpc.receive_message(request(poll("of-its-own", wait)));
        drop(polled.await.unwrap());
        assert_eq!(begun.elapsed().as_millis(), held);
    }
}

/// Mutant: every call writes its own line, and a full disk fills another one with the log.
#[tokio::test(start_paused = true)]
async fn a_store_that_fails_every_call_is_said_once_a_second() {
    let heard = Heard::listen();
    // No call of another test fails so.
    let failed = || BrokerError::Store(pop_store::Error::new(ErrorKind::Locked, "memory", "write"));
    for _ in 0..1_000 {
        drop(Refusal::from(failed()));
    }
    assert_eq!(heard.lines(&["a call failed", "in use"]).len(), 1);
    tokio::time::advance(Duration::from_secs(2)).await;
    drop(Refusal::from(failed()));
    let said = heard.lines(&["a call failed", "in use", "others=999"]);
    assert_eq!(said.len(), 1);
}
