//! Messages from the wire and to it.

use pop_model::{BodyEncoding, DeadLetterOrigin, MessageKind, WallTime};
use pop_proto::v2::{DeadLetterQueue, Encoding, Message, MessageType, Resource, SystemProperties};

use super::{digest, headers::Caller, time};
use crate::{BrokerError, Delivery, MessageError, NewMessage};

/// A message as a producer sent it; `now` stands in for a time of birth that is missing.
pub(super) fn new_message(message: Message, now: WallTime) -> Result<NewMessage, BrokerError> {
    let system = message.system_properties.unwrap_or_default();
    digest::check(system.body_digest.as_ref(), &message.body)?;
    let born_at = system.born_timestamp.map_or(now, time::wall);
    let mut new = NewMessage::new(system.message_id, message.body);
    new.kind = kind(
        system.message_type,
        &system.message_group,
        system.delivery_timestamp,
    )?;
    new.encoding = match Encoding::try_from(system.body_encoding) {
        Ok(Encoding::Unspecified | Encoding::Identity) => BodyEncoding::Identity,
        Ok(Encoding::Gzip) => BodyEncoding::Gzip,
        Err(_) => {
            return Err(BrokerError::Unsupported(
                "the body has an encoding that this broker does not know",
            ));
        }
    };
    new.tag = system.tag;
    new.keys = system.keys;
    new.message_group = system.message_group;
    new.born_at = born_at;
    new.born_host = system.born_host;
    new.deliver_at = system.delivery_timestamp.map(time::wall);
    new.trace_context = system.trace_context;
    new.priority = system.priority;
    new.properties = message.user_properties.into_iter().collect();
    Ok(new)
}

/// What the producer asks for; where it does not say, its fields do.
fn kind(
    number: i32,
    message_group: &Option<String>,
    delivery_timestamp: Option<prost_types::Timestamp>,
) -> Result<MessageKind, BrokerError> {
    match MessageType::try_from(number) {
        Ok(MessageType::Normal) => Ok(MessageKind::Normal),
        Ok(MessageType::Fifo) => Ok(MessageKind::Fifo),
        Ok(MessageType::Delay) => Ok(MessageKind::Delay),
        Ok(MessageType::Transaction) => Ok(MessageKind::Transaction),
        Ok(MessageType::Unspecified) if message_group.is_some() => Ok(MessageKind::Fifo),
        Ok(MessageType::Unspecified) if delivery_timestamp.is_some() => Ok(MessageKind::Delay),
        Ok(MessageType::Unspecified) => Ok(MessageKind::Normal),
        Ok(MessageType::Lite) => Err(BrokerError::Unsupported(
            "messages of lite topics are not offered by this version",
        )),
        Ok(MessageType::Priority) => Err(BrokerError::Unsupported(
            "messages with a priority are not offered by this version",
        )),
        Err(_) => Err(MessageError::KindConflict(
            "the message has a type that this broker does not know",
        )
        .into()),
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

/// A delivery as a consumer gets it. Clients lose a whole batch over a field that they
/// miss in one message, so everything that any of them reads is there.
pub(super) fn delivered(delivery: Delivery, topic: Resource, caller: &Caller) -> Message {
    let message = delivery.message;
    let encoding = match message.encoding {
        BodyEncoding::Identity => Encoding::Identity,
        BodyEncoding::Gzip => Encoding::Gzip,
    };
    Message {
        topic: Some(topic),
        user_properties: message.properties.into_iter().collect(),
        system_properties: Some(SystemProperties {
            tag: message.tag,
            keys: message.keys,
            message_id: message.message_id,
            body_digest: Some(digest::md5(&message.body_md5)),
            body_encoding: encoding.into(),
            message_type: message_type(message.kind).into(),
            born_timestamp: Some(time::wire_wall(message.born_at)),
            born_host: message.born_host,
            store_timestamp: Some(time::wire_wall(message.stored_at)),
            store_host: caller
                .local
                .map_or_else(String::new, |local| local.to_string()),
            delivery_timestamp: message.deliver_at.map(time::wire_wall),
            receipt_handle: Some(delivery.handle.into()),
            queue_id: i32::try_from(delivery.source.queue.get()).unwrap_or(i32::MAX),
            queue_offset: Some(i64::try_from(delivery.offset.get()).unwrap_or(i64::MAX)),
            invisible_duration: Some(time::wire_duration(delivery.invisible_for)),
            delivery_attempt: Some(i32::try_from(delivery.delivery_attempt).unwrap_or(i32::MAX)),
            message_group: message.message_group,
            trace_context: message.trace_context,
            orphaned_transaction_recovery_duration: None,
            dead_letter_queue: message.origin.map(dead_letter_queue),
            lite_topic: None,
            priority: message.priority,
        }),
        body: delivery.body,
    }
}

fn dead_letter_queue(origin: DeadLetterOrigin) -> DeadLetterQueue {
    DeadLetterQueue {
        topic: origin.topic,
        message_id: origin.message_id,
    }
}
