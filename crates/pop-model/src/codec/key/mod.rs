//! The keys of every keyspace, one type a kind.

mod lease;
mod log;
mod meta;
mod parked;
mod progress;
mod quarantine;
mod retained;
mod retry;
mod timer;

use bytes::{BufMut, Bytes};

pub use self::{
    lease::{DueKey, LeaseKey},
    log::{BodyChunkKey, BodyPendingKey, LogKey},
    meta::MetaKey,
    parked::ParkedKey,
    progress::{MarkPageKey, ProgressKey},
    quarantine::QuarantineKey,
    retained::RetainedKey,
    retry::RetryKey,
    timer::TimerKey,
};
use super::{CodecError, reader::Reader};
use crate::{
    GroupId, LogQueue, QueueId, ShardId, SubscriptionQueue, TopicId, limits::KEY_BYTES_MAX,
};

/// A key as it is stored.
pub trait StoredKey: Sized {
    /// What errors call it.
    const WHAT: &'static str;

    /// Appends the code and the fields.
    fn write(&self, out: &mut Vec<u8>);

    /// Takes the code and the fields; the caller checks that nothing is left.
    ///
    /// # Errors
    ///
    /// What is wrong with the bytes.
    fn read(reader: &mut Reader) -> Result<Self, CodecError>;

    /// The key's bytes.
    #[must_use]
    fn encode(&self) -> Bytes {
        let mut out = Vec::with_capacity(48);
        self.write(&mut out);
        // Room to spare would cost a second allocation.
        out.into_boxed_slice().into()
    }

    /// The key that `bytes` are.
    ///
    /// # Errors
    ///
    /// What is wrong with them.
    fn decode(bytes: Bytes) -> Result<Self, CodecError> {
        let mut reader = Reader::new(Self::WHAT, bytes);
        let key = Self::read(&mut reader)?;
        reader.finish()?;
        Ok(key)
    }
}

/// The half-open range of all keys that start with `prefix`.
///
/// Nothing short comes after all keys that start with 0xFF bytes only, or with anything.
/// Their range ends at the longest key of 0xFF bytes, above which there is no other;
/// that one key is not in the range, and no kind has the code 0xFF.
#[must_use]
pub fn prefix_range(prefix: Vec<u8>) -> (Bytes, Bytes) {
    let raised = prefix.iter().rposition(|byte| *byte != 0xFF);
    let end = match raised {
        Some(last) => {
            let mut end: Vec<_> = prefix.iter().copied().take(last + 1).collect();
            if let Some(byte) = end.last_mut() {
                *byte += 1;
            }
            end
        }
        None => vec![0xFF; KEY_BYTES_MAX],
    };
    (prefix.into(), end.into())
}

/// Appends self-delimiting text: 0x00 becomes 0x00 0xFF, and 0x00 0x00 ends it, so that
/// texts sort as their bytes do and none is a prefix of another.
pub fn write_text(out: &mut Vec<u8>, text: &str) {
    for byte in text.bytes() {
        out.push(byte);
        if byte == 0 {
            out.push(0xFF);
        }
    }
    out.put_u16(0);
}

fn expect_code(reader: &mut Reader, expected: u8) -> Result<(), CodecError> {
    let code = reader.u8()?;
    if code == expected {
        Ok(())
    } else {
        Err(CodecError::Kind {
            what: reader.what(),
            code,
        })
    }
}

fn write_log_queue(out: &mut Vec<u8>, queue: LogQueue) {
    out.put_u64(queue.topic.get());
    out.put_u32(queue.queue.get());
}

fn read_log_queue(reader: &mut Reader) -> Result<LogQueue, CodecError> {
    Ok(LogQueue {
        topic: TopicId::new(reader.u64()?),
        queue: QueueId::new(reader.u32()?),
    })
}

fn write_queue(out: &mut Vec<u8>, queue: SubscriptionQueue) {
    out.put_u64(queue.group.get());
    write_log_queue(out, queue.log_queue());
}

fn read_queue(reader: &mut Reader) -> Result<SubscriptionQueue, CodecError> {
    let group = GroupId::new(reader.u64()?);
    let LogQueue { topic, queue } = read_log_queue(reader)?;
    Ok(SubscriptionQueue {
        group,
        topic,
        queue,
    })
}

fn read_shard(reader: &mut Reader) -> Result<ShardId, CodecError> {
    let raw = reader.u8()?;
    ShardId::new(raw).ok_or_else(|| reader.bad("shard"))
}

/// Reads the shard that leads a key of `queue`, which must be that queue's own.
fn read_sharded_queue(reader: &mut Reader) -> Result<SubscriptionQueue, CodecError> {
    let shard = read_shard(reader)?;
    let queue = read_queue(reader)?;
    if shard == queue.shard() {
        Ok(queue)
    } else {
        Err(reader.bad("shard"))
    }
}

/// Orders keys that lead with the shard of their queue as their bytes do, so that a map
/// in memory and a keyspace agree.
macro_rules! ordered_by_shard {
    ($key:ident, $($field:ident),+) => {
        impl Ord for $key {
            fn cmp(&self, other: &Self) -> std::cmp::Ordering {
                let shards = self.queue.shard().cmp(&other.queue.shard());
                shards$(.then(self.$field.cmp(&other.$field)))+
            }
        }

        impl PartialOrd for $key {
            fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
                Some(self.cmp(other))
            }
        }
    };
}

use ordered_by_shard;
