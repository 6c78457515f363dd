//! Messages, durations and times: from the wire, and to it.

use std::time::Duration;

use data_encoding::HEXUPPER;
use md5::{Digest as _, Md5};
use pop_model::{BodyEncoding, MessageKind, WallTime};
use pop_proto::v2::{self, DigestType, Encoding, MessageType, Resource};

use super::status::Refusal;
use crate::{Delivery, MessageError, NewMessage};

/// A message as a producer sent it, with the body that its digest is of.
pub(super) fn new_message(message: v2::Message) -> Result<NewMessage, Refusal> {
    let properties = message.system_properties.unwrap_or_default();
    let kind = match MessageType::try_from(properties.message_type) {
        Ok(MessageType::Normal | MessageType::Unspecified) => MessageKind::Normal,
        Ok(MessageType::Fifo) => MessageKind::Fifo,
        Ok(MessageType::Delay) => MessageKind::Delay,
        Ok(MessageType::Transaction) => MessageKind::Transaction,
        Ok(MessageType::Lite | MessageType::Priority) | Err(_) => {
            return Err(MessageError::KindConflict(
                "messages of this type are not offered by this version",
            )
            .into());
        }
    };
    if let Some(digest) = &properties.body_digest {
        check_digest(digest, &message.body)?;
    }
    Ok(NewMessage {
        message_id: properties.message_id,
        kind,
        tag: properties.tag,
        keys: properties.keys,
        message_group: properties.message_group,
        encoding: match Encoding::try_from(properties.body_encoding) {
            Ok(Encoding::Gzip) => BodyEncoding::Gzip,
            // Python can't receive "unspecified", so it is not stored.
            _ => BodyEncoding::Identity,
        },
        born_at: properties
            .born_timestamp
            .as_ref()
            .map(wall_time)
            .unwrap_or_default(),
        born_host: properties.born_host,
        deliver_at: properties.delivery_timestamp.as_ref().map(wall_time),
        trace_context: properties.trace_context,
        priority: properties.priority,
        properties: message.user_properties.into_iter().collect(),
        body: message.body,
    })
}

/// Holds a body against the producer's digest. The official clients send none; of the
/// forms that others may send, MD5 is the one that all agree on.
fn check_digest(digest: &v2::Digest, body: &[u8]) -> Result<(), Refusal> {
    let md5 = DigestType::try_from(digest.r#type) == Ok(DigestType::Md5);
    if md5
        && !digest
            .checksum
            .eq_ignore_ascii_case(&HEXUPPER.encode(&Md5::digest(body)))
    {
        return Err(MessageError::Corrupted.into());
    }
    Ok(())
}

/// A message as a consumer gets it. `topic` is the resource as the consumer wrote it.
pub(super) fn delivered(delivery: Delivery, topic: &Resource, store_host: &str) -> v2::Message {
    let message = delivery.message;
    let born_at = if message.born_at == WallTime::default() {
        message.stored_at
    } else {
        message.born_at
    };
    let system_properties = v2::SystemProperties {
        tag: message.tag,
        keys: message.keys,
        message_id: message.message_id,
        body_digest: Some(v2::Digest {
            r#type: DigestType::Md5.into(),
            checksum: HEXUPPER.encode(&message.body_md5),
        }),
        body_encoding: match message.encoding {
            BodyEncoding::Identity => Encoding::Identity,
            BodyEncoding::Gzip => Encoding::Gzip,
        }
        .into(),
        message_type: message_type(message.kind).into(),
        born_timestamp: Some(timestamp(born_at)),
        born_host: message.born_host,
        store_timestamp: Some(timestamp(message.stored_at)),
        store_host: store_host.into(),
        delivery_timestamp: message.deliver_at.map(timestamp),
        receipt_handle: Some(delivery.handle.into()),
        queue_id: i32::try_from(delivery.source.queue.get()).unwrap_or(i32::MAX),
        queue_offset: Some(i64::try_from(delivery.offset.get()).unwrap_or(i64::MAX)),
        invisible_duration: Some(proto_duration(delivery.invisible_for)),
        delivery_attempt: Some(i32::try_from(delivery.delivery_attempt).unwrap_or(i32::MAX)),
        message_group: message.message_group,
        trace_context: message.trace_context,
        orphaned_transaction_recovery_duration: None,
        dead_letter_queue: message.origin.map(|origin| v2::DeadLetterQueue {
            topic: origin.topic,
            message_id: origin.message_id,
        }),
        lite_topic: None,
        priority: message.priority,
    };
    v2::Message {
        topic: Some(topic.clone()),
        user_properties: message.properties.into_iter().collect(),
        system_properties: Some(system_properties),
        body: delivery.body,
    }
}

pub(super) fn message_type(kind: MessageKind) -> MessageType {
    match kind {
        MessageKind::Normal => MessageType::Normal,
        MessageKind::Fifo => MessageType::Fifo,
        MessageKind::Delay => MessageType::Delay,
        MessageKind::Transaction => MessageType::Transaction,
    }
}

/// A duration of the wire; `None` for a negative one or one that is none.
pub(super) fn duration(duration: &prost_types::Duration) -> Option<Duration> {
    let seconds = u64::try_from(duration.seconds).ok()?;
    let nanos = u32::try_from(duration.nanos)
        .ok()
        .filter(|nanos| *nanos < 1_000_000_000)?;
    Some(Duration::new(seconds, nanos))
}

pub(super) fn proto_duration(duration: Duration) -> prost_types::Duration {
    prost_types::Duration {
        seconds: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        nanos: i32::try_from(duration.subsec_nanos()).unwrap_or(0),
    }
}

/// A time of the wire, held inside what milliseconds can say.
fn wall_time(timestamp: &prost_types::Timestamp) -> WallTime {
    let millis = timestamp.seconds.saturating_mul(1_000);
    WallTime::from_unix_millis(millis.saturating_add(i64::from(timestamp.nanos / 1_000_000)))
}

pub(super) fn timestamp(wall: WallTime) -> prost_types::Timestamp {
    let millis = wall.as_unix_millis();
    prost_types::Timestamp {
        seconds: millis.div_euclid(1_000),
        nanos: i32::try_from(millis.rem_euclid(1_000) * 1_000_000).unwrap_or(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_durations_of_any_size_are_taken_without_a_panic() {
        let time = |seconds, nanos| wall_time(&prost_types::Timestamp { seconds, nanos });
        assert_eq!(time(i64::MAX, i32::MAX).as_unix_millis(), i64::MAX);
        assert_eq!(time(i64::MIN, i32::MIN).as_unix_millis(), i64::MIN);
        assert_eq!(timestamp(WallTime::from_unix_millis(-1)).nanos, 999_000_000);
        let span = |seconds, nanos| duration(&prost_types::Duration { seconds, nanos });
        assert_eq!(span(1, 5), Some(Duration::new(1, 5)));
        assert_eq!(
            span(i64::MAX, 999_999_999),
            Some(Duration::new(i64::MAX.unsigned_abs(), 999_999_999))
        );
        for (seconds, nanos) in [(-1, 0), (0, -1), (0, 1_000_000_000), (i64::MIN, i32::MIN)] {
            assert_eq!(span(seconds, nanos), None);
        }
    }
}
