//! The requests of the clients, as the official ones write them.

use std::time::Duration;

use bytes::Bytes;
use pop_proto::v2::{
    AckMessageEntry, AckMessageRequest, Code, Encoding, FilterExpression, FilterType, Message,
    MessageQueue, MessageType, QueryRouteRequest, ReceiveMessageRequest, Resource, Status,
    SystemProperties, messaging_service_client::MessagingServiceClient,
};
use pop_store::testkit::Random;
use tonic::{Request, metadata::MetadataValue, transport::Channel};

use crate::lane::Lane;

/// How long a receive hides its messages: most of them so short that what is left comes
/// back in the same life of the broker, some beyond it. The end of a run waits for the longest.
pub(crate) const INVISIBLE_FOR: [Duration; 3] = [
    Duration::from_secs(2),
    Duration::from_secs(3),
    Duration::from_secs(10),
];
const LONG_POLL: Duration = Duration::from_secs(1);
const BATCH: i32 = 16;

/// A message of `lane`, of `message_group` if it has one, whose body can be told from every
/// other one: its id, over and over. One in fifty is large enough to be stored in chunks.
pub(crate) fn message(
    lane: Lane,
    id: &str,
    message_group: Option<String>,
    random: &mut Random,
) -> Message {
    let kind = match message_group {
        Some(_) => MessageType::Fifo,
        None => MessageType::Normal,
    };
    Message {
        topic: Some(resource(lane.topic())),
        body: body(id, random),
        system_properties: Some(SystemProperties {
            message_id: id.to_owned(),
            message_type: kind.into(),
            message_group,
            body_encoding: Encoding::Identity.into(),
            ..SystemProperties::default()
        }),
        ..Message::default()
    }
}

/// A long poll for a batch; `attempt_id` makes a second one of it ask for the same batch.
pub(crate) fn receive(
    lane: Lane,
    invisible_for: Duration,
    attempt_id: Option<String>,
) -> Request<ReceiveMessageRequest> {
    let mut request = request(ReceiveMessageRequest {
        group: Some(resource(lane.group())),
        message_queue: Some(MessageQueue {
            topic: Some(resource(lane.topic())),
            id: -1,
            ..MessageQueue::default()
        }),
        filter_expression: Some(FilterExpression {
            r#type: FilterType::Tag.into(),
            expression: "*".into(),
        }),
        batch_size: BATCH,
        invisible_duration: prost_types::Duration::try_from(invisible_for).ok(),
        auto_renew: false,
        long_polling_timeout: prost_types::Duration::try_from(LONG_POLL).ok(),
        attempt_id,
    });
    request.set_timeout(LONG_POLL + Duration::from_secs(5));
    request
}

pub(crate) fn ack(lane: Lane, id: &str, handle: &str) -> Request<AckMessageRequest> {
    request(AckMessageRequest {
        group: Some(resource(lane.group())),
        topic: Some(resource(lane.topic())),
        entries: vec![AckMessageEntry {
            message_id: id.to_owned(),
            receipt_handle: handle.to_owned(),
            ..AckMessageEntry::default()
        }],
    })
}

/// Asks the route, as every client does before anything else.
pub(crate) async fn ask_route(channel: Channel) -> Result<(), tonic::Status> {
    let mut client = MessagingServiceClient::new(channel);
    for lane in Lane::ALL {
        let route = QueryRouteRequest {
            topic: Some(resource(lane.topic())),
            ..QueryRouteRequest::default()
        };
        client.query_route(request(route)).await?;
    }
    Ok(())
}

pub(crate) fn request<T>(message: T) -> Request<T> {
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

fn body(id: &str, random: &mut Random) -> Bytes {
    let bytes = if random.chance(1, 50) {
        300 << 10
    } else {
        1 + random.index(1_000)
    };
    id.bytes().cycle().take(bytes.max(id.len())).collect()
}

/// Whether `body` is what [`message`] gave `id`.
pub(crate) fn is_body_of(id: &str, body: &[u8]) -> bool {
    body.len() >= id.len()
        && body
            .iter()
            .zip(id.bytes().cycle())
            .all(|(is, of)| *is == of)
}

pub(crate) fn is_ok(status: Option<&Status>) -> bool {
    status.is_some_and(|status| status.code() == Code::Ok)
}

fn resource(name: &str) -> Resource {
    Resource {
        name: name.to_owned(),
        ..Resource::default()
    }
}
