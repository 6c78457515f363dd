//! A message that is ready for another delivery: a reference, the body stays in the log.
//!
//! It is there until that delivery is settled; the group's retry queue numbers its entries,
//! and they are handed out like the messages of any other queue.

use bytes::BufMut;

use crate::{
    CodecError, LeaseTime, LogQueue, Offset, QueueId, StoredValue, SubscriptionEpoch, TopicId,
    codec::reader::Reader,
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
    /// When the message was handed out for the first time.
    pub first_popped_at: LeaseTime,
}

impl StoredValue for RetryEntry {
    const WHAT: &'static str = "retry entry";

    fn write(&self, out: &mut Vec<u8>) {
        out.put_u64(self.source.topic.get());
        out.put_u32(self.source.queue.get());
        out.put_u64(self.offset.get());
        out.put_u64(self.epoch.get());
        out.put_u32(self.delivery_attempt);
        out.put_u64(self.first_popped_at.as_millis());
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
            first_popped_at: LeaseTime::from_millis(reader.u64()?),
        })
    }

    fn size_hint(&self) -> usize {
        8 + 4 + 8 + 8 + 4 + 8
    }
}
