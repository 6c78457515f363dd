//! Keys of messages that wait in the store for the one before them in their message group.

use bytes::{BufMut, Bytes};

use super::{
    StoredKey, expect_code, ordered_by_shard, prefix_range, read_sharded_queue, write_queue,
};
use crate::{
    GroupId, Offset, ShardId, SubscriptionQueue,
    codec::{CodecError, reader::Reader},
};

/// A parked message of a subscription queue: those of one message group lie together, in
/// order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParkedKey {
    /// Whose.
    pub queue: SubscriptionQueue,
    /// The hash of its message group.
    pub message_group: u64,
    /// Where it lies in its log.
    pub offset: Offset,
}

ordered_by_shard!(ParkedKey, queue, message_group, offset);

impl ParkedKey {
    const CODE: u8 = 0x0C;

    /// All of a subscription queue.
    #[must_use]
    pub fn queue_range(queue: SubscriptionQueue) -> (Bytes, Bytes) {
        let mut prefix = vec![Self::CODE, queue.shard().get()];
        write_queue(&mut prefix, queue);
        prefix_range(prefix)
    }

    /// All of a message group from an offset on.
    #[must_use]
    pub fn range_from(
        queue: SubscriptionQueue,
        message_group: u64,
        from: Offset,
    ) -> (Bytes, Bytes) {
        let first = Self {
            queue,
            message_group,
            offset: from,
        };
        let mut prefix = vec![Self::CODE, queue.shard().get()];
        write_queue(&mut prefix, queue);
        prefix.put_u64(message_group);
        (first.encode(), prefix_range(prefix).1)
    }

    /// All of a group in a shard.
    #[must_use]
    pub fn group_range(shard: ShardId, group: GroupId) -> (Bytes, Bytes) {
        let mut prefix = vec![Self::CODE, shard.get()];
        prefix.put_u64(group.get());
        prefix_range(prefix)
    }
}

impl StoredKey for ParkedKey {
    const WHAT: &'static str = "parked key";

    fn write(&self, out: &mut Vec<u8>) {
        out.extend([Self::CODE, self.queue.shard().get()]);
        write_queue(out, self.queue);
        out.put_u64(self.message_group);
        out.put_u64(self.offset.get());
    }

    fn read(reader: &mut Reader) -> Result<Self, CodecError> {
        expect_code(reader, Self::CODE)?;
        Ok(Self {
            queue: read_sharded_queue(reader)?,
            message_group: reader.u64()?,
            offset: Offset::new(reader.u64()?),
        })
    }
}
