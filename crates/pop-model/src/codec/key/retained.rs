//! The key of a message that retention took out of the log while somebody refers to it.

use bytes::{BufMut, Bytes};

use super::{StoredKey, expect_code, prefix_range, read_log_queue, write_log_queue};
use crate::{
    LogQueue, Offset,
    codec::{CodecError, reader::Reader},
};

/// A message that left its queue and is kept for those who refer to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RetainedKey {
    /// The queue that it left.
    pub queue: LogQueue,
    /// Its position there.
    pub offset: Offset,
}

impl RetainedKey {
    const CODE: u8 = 0x0B;

    /// Everything that is kept of any queue.
    #[must_use]
    pub fn range() -> (Bytes, Bytes) {
        prefix_range(vec![Self::CODE])
    }

    /// Everything that is kept of a queue.
    #[must_use]
    pub fn queue_range(queue: LogQueue) -> (Bytes, Bytes) {
        let mut prefix = vec![Self::CODE];
        write_log_queue(&mut prefix, queue);
        prefix_range(prefix)
    }
}

impl StoredKey for RetainedKey {
    const WHAT: &'static str = "retained key";

    fn write(&self, out: &mut Vec<u8>) {
        out.push(Self::CODE);
        write_log_queue(out, self.queue);
        out.put_u64(self.offset.get());
    }

    fn read(reader: &mut Reader) -> Result<Self, CodecError> {
        expect_code(reader, Self::CODE)?;
        Ok(Self {
            queue: read_log_queue(reader)?,
            offset: Offset::new(reader.u64()?),
        })
    }
}
