//! A message that is ready for another delivery: a reference, the body stays in the log.

use bytes::BufMut;

use crate::{
    CodecError, Generation, LeaseTime, LogQueue, Offset, QueueId, StoredValue, SubscriptionEpoch,
    TopicId,
    codec::{reader::Reader, value::write_option},
};

/// An entry of the retry queue of a group and topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetryEntry {
    /// Where the message lies.
    pub source: LogQueue,
    /// Its position there.
    pub offset: Offset,
    /// How often the offset of that queue was reset for the group before.
    pub epoch: SubscriptionEpoch,
    /// The number of the delivery that is to come.
    pub delivery_attempt: u32,
    /// The generation of the delivery that is to come.
    pub generation: Generation,
    /// When the message was handed out for the first time.
    pub first_popped_at: LeaseTime,
    /// Hash of its message group, where its group consumes in order.
    pub message_group_hash: Option<u64>,
}

impl StoredValue for RetryEntry {
    const WHAT: &'static str = "retry entry";

    fn write(&self, out: &mut Vec<u8>) {
        out.put_u64(self.source.topic.get());
        out.put_u32(self.source.queue.get());
        out.put_u64(self.offset.get());
        out.put_u64(self.epoch.get());
        out.put_u32(self.delivery_attempt);
        out.put_u32(self.generation.get());
        out.put_u64(self.first_popped_at.as_millis());
        write_option(out, self.message_group_hash, |out, hash| out.put_u64(hash));
    }

    fn read(reader: &mut Reader) -> Result<Self, CodecError> {
        Ok(Self {
            source: LogQueue {
                topic: TopicId::new(reader.u64()?),
                queue: QueueId::new(reader.u32()?),
            },
            offset: Offset::new(reader.u64()?),
            epoch: SubscriptionEpoch::new(reader.u64()?),
            delivery_attempt: reader.u32()?,
            generation: Generation::new(reader.u32()?),
            first_popped_at: LeaseTime::from_millis(reader.u64()?),
            message_group_hash: reader.option("message group hash", Reader::u64)?,
        })
    }
}
