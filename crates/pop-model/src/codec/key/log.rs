//! Keys of the message log: messages, and bodies that are stored beside them.

use bytes::{BufMut, Bytes};

use super::{StoredKey, expect_code, prefix_range, read_log_queue, write_log_queue};
use crate::{
    BodyId, LogQueue, Offset,
    codec::{CodecError, reader::Reader},
};

/// A message in its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LogKey {
    /// The queue.
    pub queue: LogQueue,
    /// Its position.
    pub offset: Offset,
}

impl LogKey {
    const CODE: u8 = 0x01;

    /// All messages of a queue.
    #[must_use]
    pub fn queue_range(queue: LogQueue) -> (Bytes, Bytes) {
        let mut prefix = vec![Self::CODE];
        write_log_queue(&mut prefix, queue);
        prefix_range(prefix)
    }
}

impl StoredKey for LogKey {
    const WHAT: &'static str = "log key";

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

/// A chunk of a body that is stored beside its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BodyChunkKey {
    /// The body.
    pub body: BodyId,
    /// Which chunk, from 0.
    pub chunk: u32,
}

impl BodyChunkKey {
    const CODE: u8 = 0x02;

    /// All chunks of a body.
    #[must_use]
    pub fn body_range(body: BodyId) -> (Bytes, Bytes) {
        let mut prefix = vec![Self::CODE];
        prefix.put_u64(body.get());
        prefix_range(prefix)
    }
}

impl StoredKey for BodyChunkKey {
    const WHAT: &'static str = "body chunk key";

    fn write(&self, out: &mut Vec<u8>) {
        out.push(Self::CODE);
        out.put_u64(self.body.get());
        out.put_u32(self.chunk);
    }

    fn read(reader: &mut Reader) -> Result<Self, CodecError> {
        expect_code(reader, Self::CODE)?;
        Ok(Self {
            body: BodyId::new(reader.u64()?),
            chunk: reader.u32()?,
        })
    }
}

/// Says that a body's chunks are being written and no message refers to them yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BodyPendingKey {
    /// The body.
    pub body: BodyId,
}

impl BodyPendingKey {
    const CODE: u8 = 0x03;

    /// All bodies that are being written.
    #[must_use]
    pub fn range() -> (Bytes, Bytes) {
        prefix_range(vec![Self::CODE])
    }
}

impl StoredKey for BodyPendingKey {
    const WHAT: &'static str = "pending body key";

    fn write(&self, out: &mut Vec<u8>) {
        out.push(Self::CODE);
        out.put_u64(self.body.get());
    }

    fn read(reader: &mut Reader) -> Result<Self, CodecError> {
        expect_code(reader, Self::CODE)?;
        Ok(Self {
            body: BodyId::new(reader.u64()?),
        })
    }
}
