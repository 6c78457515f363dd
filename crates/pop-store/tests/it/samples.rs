//! Rows for tests of the typed views, with the fields that matter to them.

use std::time::Duration;

use bytes::Bytes;
use pop_model::{
    BodyEncoding, Checkpoint, DeliveryIdentity, Generation, Incarnation, LeaseTime, LogQueue,
    Message, MessageBody, MessageKind, Offset, RetryEntry, RetryKind, SubscriptionEpoch,
    SubscriptionQueue, WallTime,
};

pub(crate) fn at(offset: u64) -> Offset {
    Offset::new(offset)
}

pub(crate) fn message(id: String, body: Bytes) -> Message {
    Message {
        message_id: id,
        kind: MessageKind::Normal,
        tag: None,
        keys: Vec::new(),
        message_group: None,
        encoding: BodyEncoding::Identity,
        born_at: WallTime::default(),
        born_host: String::new(),
        stored_at: WallTime::default(),
        deliver_at: None,
        trace_context: None,
        priority: None,
        properties: Vec::new(),
        origin: None,
        body_md5: [0; 16],
        body: MessageBody::Inline(body),
    }
}

pub(crate) fn checkpoint(
    queue: SubscriptionQueue,
    offset: u64,
    epoch: SubscriptionEpoch,
) -> Checkpoint {
    Checkpoint {
        identity: DeliveryIdentity {
            queue,
            epoch,
            offset: at(offset),
            incarnation: Incarnation::new(1),
            generation: Generation::FIRST,
        },
        popped_at: LeaseTime::from_millis(5),
        invisible_for: Duration::from_secs(1),
        visible_at: LeaseTime::from_millis(1_005),
        delivery_attempt: 1,
        revive_failures: 0,
        attempt_id: None,
        suspend: false,
        auto_renew: false,
        retry_kind: RetryKind::Normal,
        message_group_hash: None,
        first_popped_at: LeaseTime::from_millis(5),
    }
}

pub(crate) fn entry(source: LogQueue, offset: u64, epoch: SubscriptionEpoch) -> RetryEntry {
    RetryEntry {
        source,
        offset: at(offset),
        epoch,
        delivery_attempt: 2,
        first_popped_at: LeaseTime::from_millis(5),
    }
}
