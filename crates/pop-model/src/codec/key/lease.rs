//! Keys of deliveries that are out: the lease row, and the hint when to look at it.

use bytes::{BufMut, Bytes};

use super::{
    StoredKey, expect_code, ordered_by_shard, prefix_range, read_queue, read_shard,
    read_sharded_queue, write_queue,
};
use crate::{
    GroupId, LeaseTime, Offset, ShardId, SubscriptionQueue,
    codec::{CodecError, reader::Reader},
};

/// The lease row of an offset: the truth about its delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseKey {
    /// Who consumes.
    pub queue: SubscriptionQueue,
    /// Which message.
    pub offset: Offset,
}

ordered_by_shard!(LeaseKey, queue, offset);

impl LeaseKey {
    const CODE: u8 = 0x04;

    /// All lease rows of a subscription queue.
    #[must_use]
    pub fn queue_range(queue: SubscriptionQueue) -> (Bytes, Bytes) {
        let mut prefix = vec![Self::CODE, queue.shard().get()];
        write_queue(&mut prefix, queue);
        prefix_range(prefix)
    }

    /// All lease rows of a group in a shard.
    #[must_use]
    pub fn group_range(shard: ShardId, group: GroupId) -> (Bytes, Bytes) {
        let mut prefix = vec![Self::CODE, shard.get()];
        prefix.put_u64(group.get());
        prefix_range(prefix)
    }
}

impl StoredKey for LeaseKey {
    const WHAT: &'static str = "lease key";

    fn write(&self, out: &mut Vec<u8>) {
        out.extend([Self::CODE, self.queue.shard().get()]);
        write_queue(out, self.queue);
        out.put_u64(self.offset.get());
    }

    fn read(reader: &mut Reader) -> Result<Self, CodecError> {
        expect_code(reader, Self::CODE)?;
        Ok(Self {
            queue: read_sharded_queue(reader)?,
            offset: Offset::new(reader.u64()?),
        })
    }
}

/// A hint that a lease row may be due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DueKey {
    /// When to look. Sorts first inside a shard.
    pub visible_at: LeaseTime,
    /// The subscription queue of the row to look at.
    pub queue: SubscriptionQueue,
    /// The offset of the row to look at.
    pub offset: Offset,
}

ordered_by_shard!(DueKey, visible_at, queue, offset);

impl DueKey {
    const CODE: u8 = 0x05;

    /// The first key of a shard that may be due at `from` or later.
    #[must_use]
    pub fn start(shard: ShardId, from: LeaseTime) -> Bytes {
        let mut prefix = vec![Self::CODE, shard.get()];
        prefix.put_u64(from.as_millis());
        prefix.into()
    }

    /// All hints of a shard.
    #[must_use]
    pub fn shard_range(shard: ShardId) -> (Bytes, Bytes) {
        prefix_range(vec![Self::CODE, shard.get()])
    }

    /// The key of the row that the hint points at.
    #[must_use]
    pub fn lease_key(&self) -> LeaseKey {
        LeaseKey {
            queue: self.queue,
            offset: self.offset,
        }
    }
}

impl StoredKey for DueKey {
    const WHAT: &'static str = "due key";

    fn write(&self, out: &mut Vec<u8>) {
        out.extend([Self::CODE, self.queue.shard().get()]);
        out.put_u64(self.visible_at.as_millis());
        write_queue(out, self.queue);
        out.put_u64(self.offset.get());
    }

    fn read(reader: &mut Reader) -> Result<Self, CodecError> {
        expect_code(reader, Self::CODE)?;
        let shard = read_shard(reader)?;
        let key = Self {
            visible_at: LeaseTime::from_millis(reader.u64()?),
            queue: read_queue(reader)?,
            offset: Offset::new(reader.u64()?),
        };
        if shard == key.queue.shard() {
            Ok(key)
        } else {
            Err(reader.bad("shard"))
        }
    }
}
