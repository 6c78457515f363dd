//! The lease row: one delivery that is out and not acknowledged.

use std::time::Duration;

use bytes::{BufMut, Bytes};

use crate::{
    CodecError, DueKey, Generation, GroupId, Incarnation, LeaseKey, LeaseTime, Offset, QueueId,
    StoredKey, StoredValue, SubscriptionEpoch, SubscriptionQueue, TopicId,
    codec::{
        reader::Reader,
        value::{write_bytes, write_option},
    },
};

/// What makes a delivery this one and no other: a handle matches one identity or nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DeliveryIdentity {
    /// Who consumes which queue.
    pub queue: SubscriptionQueue,
    /// How often that queue's offset was reset before.
    pub epoch: SubscriptionEpoch,
    /// Which message.
    pub offset: Offset,
    /// The run of the broker that handed it out.
    pub incarnation: Incarnation,
    /// Which delivery of that message.
    pub generation: Generation,
}

impl DeliveryIdentity {
    /// How many bytes an identity takes.
    pub(crate) const BYTES: usize = 8 + 8 + 4 + 8 + 8 + 8 + 4;

    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        out.put_u64(self.queue.group.get());
        out.put_u64(self.queue.topic.get());
        out.put_u32(self.queue.queue.get());
        out.put_u64(self.epoch.get());
        out.put_u64(self.offset.get());
        out.put_u64(self.incarnation.get());
        out.put_u32(self.generation.get());
    }

    pub(crate) fn read(reader: &mut Reader) -> Result<Self, CodecError> {
        Ok(Self {
            queue: SubscriptionQueue {
                group: GroupId::new(reader.u64()?),
                topic: TopicId::new(reader.u64()?),
                queue: QueueId::new(reader.u32()?),
            },
            epoch: SubscriptionEpoch::new(reader.u64()?),
            offset: Offset::new(reader.u64()?),
            incarnation: Incarnation::new(reader.u64()?),
            generation: Generation::new(reader.u32()?),
        })
    }

    /// The key of the lease row of its offset.
    #[must_use]
    pub fn lease_key(&self) -> Bytes {
        let key = LeaseKey {
            queue: self.queue,
            offset: self.offset,
        };
        key.encode()
    }
}

/// Through which kind of topic a delivery went out, as RocketMQ counts them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RetryKind {
    /// The topic itself.
    Normal,
    /// A retry topic named `%RETRY%group_topic`.
    RetryV1,
    /// A retry topic named `%RETRY%group+topic`.
    RetryV2,
}

/// One delivery that is out: RocketMQ's checkpoint, with the identity that it lacks.
///
/// There is no constructor with fewer fields: a rewrite starts from what was read, so
/// that it can't forget one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// Which delivery this is.
    pub identity: DeliveryIdentity,
    /// When it was handed out, or its invisible duration last changed.
    pub popped_at: LeaseTime,
    /// How long it is hidden from then on. Whole milliseconds are stored; `visible_at`
    /// alone decides.
    pub invisible_for: Duration,
    /// When it is due. At least `popped_at + invisible_for`; the due index may lift it.
    pub visible_at: LeaseTime,
    /// 1 for the first delivery.
    pub delivery_attempt: u32,
    /// How often its revive failed so far.
    pub revive_failures: u32,
    /// The client's name for the receive that got it.
    pub attempt_id: Option<Box<str>>,
    /// The next delivery is not counted as an attempt.
    pub suspend: bool,
    /// The server renews it while the consumer lives.
    pub auto_renew: bool,
    /// Through which kind of topic it went out.
    pub retry_kind: RetryKind,
    /// Hash of its message group, where its group consumes in order.
    pub message_group_hash: Option<u64>,
    /// When the message was handed out for the first time.
    pub first_popped_at: LeaseTime,
}

impl Checkpoint {
    /// The key of its row.
    #[must_use]
    pub fn lease_key(&self) -> Bytes {
        self.identity.lease_key()
    }

    /// The key of the hint that makes the reviver look at it in time.
    #[must_use]
    pub fn due_key(&self) -> Bytes {
        let key = DueKey {
            visible_at: self.visible_at,
            queue: self.identity.queue,
            offset: self.identity.offset,
        };
        key.encode()
    }
}

impl StoredValue for Checkpoint {
    const WHAT: &'static str = "checkpoint";

    fn write(&self, out: &mut Vec<u8>) {
        self.identity.write(out);
        out.put_u64(self.popped_at.as_millis());
        out.put_u64(u64::try_from(self.invisible_for.as_millis()).unwrap_or(u64::MAX));
        out.put_u64(self.visible_at.as_millis());
        out.put_u32(self.delivery_attempt);
        out.put_u32(self.revive_failures);
        write_option(out, self.attempt_id.as_deref(), |out, id| {
            write_bytes(out, id.as_bytes())
        });
        out.push(u8::from(self.suspend));
        out.push(u8::from(self.auto_renew));
        out.push(match self.retry_kind {
            RetryKind::Normal => 0,
            RetryKind::RetryV1 => 1,
            RetryKind::RetryV2 => 2,
        });
        write_option(out, self.message_group_hash, |out, hash| out.put_u64(hash));
        out.put_u64(self.first_popped_at.as_millis());
    }

    fn read(reader: &mut Reader) -> Result<Self, CodecError> {
        Ok(Self {
            identity: DeliveryIdentity::read(reader)?,
            popped_at: LeaseTime::from_millis(reader.u64()?),
            invisible_for: Duration::from_millis(reader.u64()?),
            visible_at: LeaseTime::from_millis(reader.u64()?),
            delivery_attempt: reader.u32()?,
            revive_failures: reader.u32()?,
            attempt_id: reader
                .option("attempt id", |reader| Ok(reader.text("attempt id")?.into()))?,
            suspend: reader.flag("suspend")?,
            auto_renew: reader.flag("auto renew")?,
            retry_kind: match reader.u8()? {
                0 => RetryKind::Normal,
                1 => RetryKind::RetryV1,
                2 => RetryKind::RetryV2,
                _ => return Err(reader.bad("retry kind")),
            },
            message_group_hash: reader.option("message group hash", Reader::u64)?,
            first_popped_at: LeaseTime::from_millis(reader.u64()?),
        })
    }

    fn size_hint(&self) -> usize {
        let attempt_id = self.attempt_id.as_ref().map_or(0, |id| 4 + id.len());
        let group = self.message_group_hash.map_or(0, |_| 8);
        DeliveryIdentity::BYTES + 3 * 8 + 2 * 4 + 5 + 8 + attempt_id + group
    }
}
