//! Senders and consumers that go on through every kill, and write down what they see.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use parking_lot::Mutex;
use pop_proto::v2::{
    AckMessageEntry, AckMessageRequest, Code, Encoding, FilterExpression, FilterType, Message,
    MessageQueue, MessageType, QueryRouteRequest, ReceiveMessageRequest, Resource,
    SendMessageRequest, Status, SystemProperties, messaging_service_client::MessagingServiceClient,
    receive_message_response::Content,
};
use pop_store::testkit::Random;
use tokio::{sync::watch, time::Instant};
use tonic::{Request, metadata::MetadataValue, transport::Channel};

use crate::history::{Delivery, History, Life};

/// How long every receive hides its messages: long enough to acknowledge at leisure, short
/// enough that the end of a run, where all of it comes back, stays short.
pub(crate) const INVISIBLE_FOR: Duration = Duration::from_secs(10);
const LONG_POLL: Duration = Duration::from_secs(1);
const BATCH: i32 = 16;
const TOPIC: &str = "torture";
const GROUP: &str = "torturers";

/// The broker that lives now, if one does.
pub(crate) type Living = watch::Receiver<Option<(Life, Channel)>>;

/// What all clients of a run share.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) history: Mutex<History>,
    /// So many sends must be answered OK.
    pub(crate) sends: u64,
    pub(crate) sends_ok: AtomicU64,
    pub(crate) next_id: AtomicU64,
}

impl Run {
    pub(crate) fn is_sent(&self) -> bool {
        self.sends_ok.load(Ordering::Acquire) >= self.sends
    }
}

/// Sends messages one after another until all are answered OK.
pub(crate) async fn send(run: Arc<Run>, mut living: Living, seed: u64) {
    let mut random = Random::new(seed);
    while !run.is_sent() {
        let Some((_, mut client)) = client(&mut living).await else {
            return;
        };
        let id = format!("m{}", run.next_id.fetch_add(1, Ordering::Relaxed));
        run.history.lock().sending(&id);
        let message = message(&id, body(&id, &mut random));
        let answer = client
            .send_message(request(SendMessageRequest {
                messages: vec![message],
            }))
            .await;
        let is_ok = answer.is_ok_and(|answer| {
            let entries = answer.into_inner().entries;
            !entries.is_empty() && entries.iter().all(|entry| is_ok(entry.status.as_ref()))
        });
        if is_ok {
            run.history.lock().sent(&id);
            run.sends_ok.fetch_add(1, Ordering::AcqRel);
        } else {
            pause().await;
        }
    }
}

/// Receives and acknowledges until it is stopped. While sends go on, some messages are
/// left to come back, and some acknowledgements come late.
pub(crate) async fn consume(run: Arc<Run>, mut living: Living, seed: u64) {
    let mut random = Random::new(seed);
    while let Some((life, mut client)) = client(&mut living).await {
        let asked_at = Instant::now();
        let Ok(messages) = receive(&mut client).await else {
            pause().await;
            continue;
        };
        let received_at = Instant::now();
        for message in &messages {
            let properties = message.system_properties.clone().unwrap_or_default();
            let delivery = Delivery {
                life,
                asked_at,
                received_at,
                attempt: properties.delivery_attempt.unwrap_or_default(),
                handle: properties.receipt_handle.clone().unwrap_or_default(),
            };
            let id = properties.message_id;
            let whole = is_body_of(&id, &message.body);
            run.history.lock().received(&id, whole, delivery.clone());
            if !run.is_sent() && random.chance(1, 20) {
                continue;
            }
            if !run.is_sent() && random.chance(1, 50) {
                tokio::time::sleep(Duration::from_millis(random.below(300))).await;
            }
            acknowledge(&run, &mut client, life, &id, &delivery.handle).await;
        }
    }
}

async fn acknowledge(
    run: &Run,
    client: &mut MessagingServiceClient<Channel>,
    life: Life,
    id: &str,
    handle: &str,
) {
    let ack = AckMessageRequest {
        group: Some(resource(GROUP)),
        topic: Some(resource(TOPIC)),
        entries: vec![AckMessageEntry {
            message_id: id.to_owned(),
            receipt_handle: handle.to_owned(),
            ..AckMessageEntry::default()
        }],
    };
    let answer = client.ack_message(request(ack)).await;
    let mut history = run.history.lock();
    match answer {
        Err(_) => history.ack_unknown(id, handle),
        Ok(answer) => {
            let entries = answer.into_inner().entries;
            let status = entries.first().and_then(|entry| entry.status.as_ref());
            match status.map(|status| status.code()) {
                Some(Code::Ok) => history.acked(id, handle, life),
                Some(Code::InvalidReceiptHandle) => history.ack_refused(id, handle),
                // The store failed under it, say: it may have happened.
                _ => history.ack_unknown(id, handle),
            }
        }
    }
}

async fn receive(
    client: &mut MessagingServiceClient<Channel>,
) -> Result<Vec<Message>, tonic::Status> {
    let receive = ReceiveMessageRequest {
        group: Some(resource(GROUP)),
        message_queue: Some(MessageQueue {
            topic: Some(resource(TOPIC)),
            id: -1,
            ..MessageQueue::default()
        }),
        filter_expression: Some(FilterExpression {
            r#type: FilterType::Tag.into(),
            expression: "*".into(),
        }),
        batch_size: BATCH,
        invisible_duration: prost_types::Duration::try_from(INVISIBLE_FOR).ok(),
        auto_renew: false,
        long_polling_timeout: prost_types::Duration::try_from(LONG_POLL).ok(),
        attempt_id: None,
    };
    let mut request = request(receive);
    request.set_timeout(LONG_POLL + Duration::from_secs(5));
    let mut stream = client.receive_message(request).await?.into_inner();
    let mut messages = Vec::new();
    // What came before the stream broke was received all the same.
    while let Ok(Some(part)) = stream.message().await {
        if let Some(Content::Message(message)) = part.content {
            messages.push(message);
        }
    }
    Ok(messages)
}

/// Asks the route, as every client does before anything else.
pub(crate) async fn ask_route(channel: Channel) -> Result<(), tonic::Status> {
    let route = QueryRouteRequest {
        topic: Some(resource(TOPIC)),
        ..QueryRouteRequest::default()
    };
    let mut client = MessagingServiceClient::new(channel);
    client.query_route(request(route)).await.map(drop)
}

/// A client of the broker that lives, waiting for one; `None` when the run is over.
async fn client(living: &mut Living) -> Option<(Life, MessagingServiceClient<Channel>)> {
    let living = living.wait_for(Option::is_some).await.ok()?;
    let (life, channel) = living.as_ref()?;
    Some((*life, MessagingServiceClient::new(channel.clone())))
}

fn request<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    let headers = [
        ("x-mq-client-id", "torture"),
        ("x-mq-language", "RUST"),
        ("x-mq-client-version", "5.0.0"),
        ("x-mq-protocol", "v2"),
    ];
    for (name, value) in headers {
        request
            .metadata_mut()
            .insert(name, MetadataValue::from_static(value));
    }
    request
}

fn message(id: &str, body: Bytes) -> Message {
    Message {
        topic: Some(resource(TOPIC)),
        body,
        system_properties: Some(SystemProperties {
            message_id: id.to_owned(),
            message_type: MessageType::Normal.into(),
            body_encoding: Encoding::Identity.into(),
            ..SystemProperties::default()
        }),
        ..Message::default()
    }
}

/// A body that can be told from every other one: its id, over and over. One in fifty is
/// large enough to be stored in chunks.
fn body(id: &str, random: &mut Random) -> Bytes {
    let bytes = if random.chance(1, 50) {
        300 << 10
    } else {
        1 + random.index(1_000)
    };
    id.bytes().cycle().take(bytes.max(id.len())).collect()
}

fn is_body_of(id: &str, body: &[u8]) -> bool {
    body.len() >= id.len()
        && body
            .iter()
            .zip(id.bytes().cycle())
            .all(|(is, of)| *is == of)
}

fn resource(name: &str) -> Resource {
    Resource {
        name: name.to_owned(),
        ..Resource::default()
    }
}

fn is_ok(status: Option<&Status>) -> bool {
    status.is_some_and(|status| status.code() == Code::Ok)
}

/// Between a failure and the next try, so that a dead broker is not asked in a spin.
async fn pause() {
    tokio::time::sleep(Duration::from_millis(20)).await;
}
