//! The key of a message whose moment is still to come.

use bytes::{BufMut, Bytes};

use super::{StoredKey, expect_code, read_shard};
use crate::{
    ShardId, WallTime,
    codec::{CodecError, reader::Reader},
};

/// A message that is to enter its queue at a moment of wall time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TimerKey {
    /// The shard that watches it.
    pub shard: ShardId,
    /// When.
    pub due: WallTime,
    /// Distinguishes timers of one moment.
    pub sequence: u64,
}

impl TimerKey {
    const CODE: u8 = 0x09;

    /// All timers of a shard that are due before `until`.
    #[must_use]
    pub fn range_until(shard: ShardId, until: WallTime) -> (Bytes, Bytes) {
        let start = vec![Self::CODE, shard.get()];
        let mut end = start.clone();
        end.put_u64(sortable(until));
        (start.into(), end.into())
    }
}

const SIGN: u64 = 1 << 63;

/// Signed numbers sort as unsigned ones once their sign bit is turned over.
fn sortable(wall: WallTime) -> u64 {
    wall.as_unix_millis().cast_unsigned() ^ SIGN
}

impl StoredKey for TimerKey {
    const WHAT: &'static str = "timer key";

    fn write(&self, out: &mut Vec<u8>) {
        out.extend([Self::CODE, self.shard.get()]);
        out.put_u64(sortable(self.due));
        out.put_u64(self.sequence);
    }

    fn read(reader: &mut Reader) -> Result<Self, CodecError> {
        expect_code(reader, Self::CODE)?;
        Ok(Self {
            shard: read_shard(reader)?,
            due: WallTime::from_unix_millis((reader.u64()? ^ SIGN).cast_signed()),
            sequence: reader.u64()?,
        })
    }
}
