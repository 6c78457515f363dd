//! The key of a message that is ready for another delivery.

use bytes::{BufMut, Bytes};

use super::{StoredKey, expect_code, prefix_range};
use crate::{
    GroupId, TopicId,
    codec::{CodecError, reader::Reader},
};

/// An entry of the retry queue of a group for one topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RetryKey {
    /// The group.
    pub group: GroupId,
    /// The topic whose messages are retried.
    pub topic: TopicId,
    /// The order in which entries became ready.
    pub sequence: u64,
}

impl RetryKey {
    const CODE: u8 = 0x08;

    /// All entries of the retry queue from `sequence` on.
    #[must_use]
    pub fn range_from(group: GroupId, topic: TopicId, sequence: u64) -> (Bytes, Bytes) {
        let mut prefix = vec![Self::CODE];
        prefix.put_u64(group.get());
        prefix.put_u64(topic.get());
        let (_, end) = prefix_range(prefix);
        let start = Self {
            group,
            topic,
            sequence,
        };
        (start.encode(), end)
    }

    /// All entries of all retry queues of a group.
    #[must_use]
    pub fn group_range(group: GroupId) -> (Bytes, Bytes) {
        let mut prefix = vec![Self::CODE];
        prefix.put_u64(group.get());
        prefix_range(prefix)
    }
}

impl StoredKey for RetryKey {
    const WHAT: &'static str = "retry key";

    fn write(&self, out: &mut Vec<u8>) {
        out.push(Self::CODE);
        out.put_u64(self.group.get());
        out.put_u64(self.topic.get());
        out.put_u64(self.sequence);
    }

    fn read(reader: &mut Reader) -> Result<Self, CodecError> {
        expect_code(reader, Self::CODE)?;
        Ok(Self {
            group: GroupId::new(reader.u64()?),
            topic: TopicId::new(reader.u64()?),
            sequence: reader.u64()?,
        })
    }
}
