//! Keys of how far a group has come: the committed offset, and the marks above it.

use bytes::{BufMut, Bytes};

use super::{
    StoredKey, expect_code, ordered_by_shard, prefix_range, read_sharded_queue, write_queue,
};
use crate::{
    GroupId, ShardId, SubscriptionQueue,
    codec::{CodecError, reader::Reader},
};

/// The committed offset of a subscription queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProgressKey {
    /// Whose.
    pub queue: SubscriptionQueue,
}

ordered_by_shard!(ProgressKey, queue);

impl ProgressKey {
    const CODE: u8 = 0x06;

    /// All committed offsets of a group in a shard.
    #[must_use]
    pub fn group_range(shard: ShardId, group: GroupId) -> (Bytes, Bytes) {
        let mut prefix = vec![Self::CODE, shard.get()];
        prefix.put_u64(group.get());
        prefix_range(prefix)
    }
}

impl StoredKey for ProgressKey {
    const WHAT: &'static str = "progress key";

    fn write(&self, out: &mut Vec<u8>) {
        out.extend([Self::CODE, self.queue.shard().get()]);
        write_queue(out, self.queue);
    }

    fn read(reader: &mut Reader) -> Result<Self, CodecError> {
        expect_code(reader, Self::CODE)?;
        Ok(Self {
            queue: read_sharded_queue(reader)?,
        })
    }
}

/// A page of settled marks of a subscription queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MarkPageKey {
    /// Whose.
    pub queue: SubscriptionQueue,
    /// The page's number: its first offset divided by the offsets on a page.
    pub page: u64,
}

ordered_by_shard!(MarkPageKey, queue, page);

impl MarkPageKey {
    const CODE: u8 = 0x07;

    /// All pages of a subscription queue.
    #[must_use]
    pub fn queue_range(queue: SubscriptionQueue) -> (Bytes, Bytes) {
        let mut prefix = vec![Self::CODE, queue.shard().get()];
        write_queue(&mut prefix, queue);
        prefix_range(prefix)
    }

    /// All pages of a group in a shard.
    #[must_use]
    pub fn group_range(shard: ShardId, group: GroupId) -> (Bytes, Bytes) {
        let mut prefix = vec![Self::CODE, shard.get()];
        prefix.put_u64(group.get());
        prefix_range(prefix)
    }
}

impl StoredKey for MarkPageKey {
    const WHAT: &'static str = "mark page key";

    fn write(&self, out: &mut Vec<u8>) {
        out.extend([Self::CODE, self.queue.shard().get()]);
        write_queue(out, self.queue);
        out.put_u64(self.page);
    }

    fn read(reader: &mut Reader) -> Result<Self, CodecError> {
        expect_code(reader, Self::CODE)?;
        Ok(Self {
            queue: read_sharded_queue(reader)?,
            page: reader.u64()?,
        })
    }
}
