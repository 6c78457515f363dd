//! The keys of every keyspace, one type a kind.

use std::cmp::Ordering;

use bytes::{BufMut, Bytes};

use super::{CodecError, reader::Reader};
use crate::{
    BodyId, GroupId, GroupName, LeaseTime, LogQueue, Namespace, Offset, QueueId, ShardId,
    SubscriptionQueue, TopicId, TopicName, WallTime, limits::KEY_BYTES_MAX,
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
        out.into()
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
            fn cmp(&self, other: &Self) -> Ordering {
                let shards = self.queue.shard().cmp(&other.queue.shard());
                shards$(.then(self.$field.cmp(&other.$field)))+
            }
        }

        impl PartialOrd for $key {
            fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
                Some(self.cmp(other))
            }
        }
    };
}

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

/// The committed offset of a subscription queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProgressKey {
    /// Whose.
    pub queue: SubscriptionQueue,
}

ordered_by_shard!(ProgressKey, queue);

impl ProgressKey {
    const CODE: u8 = 0x06;
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

/// A record that could not be worked on, kept until somebody looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct QuarantineKey {
    /// The order in which records were put away.
    pub sequence: u64,
}

impl QuarantineKey {
    const CODE: u8 = 0x0A;

    /// Everything in quarantine.
    #[must_use]
    pub fn range() -> (Bytes, Bytes) {
        prefix_range(vec![Self::CODE])
    }
}

impl StoredKey for QuarantineKey {
    const WHAT: &'static str = "quarantine key";

    fn write(&self, out: &mut Vec<u8>) {
        out.push(Self::CODE);
        out.put_u64(self.sequence);
    }

    fn read(reader: &mut Reader) -> Result<Self, CodecError> {
        expect_code(reader, Self::CODE)?;
        Ok(Self {
            sequence: reader.u64()?,
        })
    }
}

/// Where a piece of metadata lives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MetaKey {
    /// A counter that never goes back, by name.
    Counter(String),
    /// A topic's record.
    Topic(TopicId),
    /// The id of a topic's name.
    TopicByName(TopicName),
    /// A group's record.
    Group(GroupId),
    /// The id of a group's name.
    GroupByName(GroupName),
    /// The subscription of a queue: where its group started.
    Subscription(SubscriptionQueue),
    /// The ends of a log queue that rows alone no longer tell.
    LogBounds(LogQueue),
    /// The lowest entry of a retry queue.
    RetryBounds {
        /// The group.
        group: GroupId,
        /// The topic.
        topic: TopicId,
    },
    /// The keys that sign receipt handles.
    HandleKeys,
    /// The incarnation of the last open.
    Incarnation,
    /// The high-water mark of lease time.
    LeaseClockMark,
    /// The floor of a shard's due index.
    DueFloor(ShardId),
}

impl MetaKey {
    const COUNTER: u8 = 0x10;
    const TOPIC: u8 = 0x11;
    const TOPIC_BY_NAME: u8 = 0x12;
    const GROUP: u8 = 0x13;
    const GROUP_BY_NAME: u8 = 0x14;
    const SUBSCRIPTION: u8 = 0x15;
    const LOG_BOUNDS: u8 = 0x16;
    const RETRY_BOUNDS: u8 = 0x17;
    const HANDLE_KEYS: u8 = 0x18;
    const INCARNATION: u8 = 0x19;
    const LEASE_CLOCK_MARK: u8 = 0x1A;
    const DUE_FLOOR: u8 = 0x1B;

    /// The records of all topics.
    #[must_use]
    pub fn topics() -> (Bytes, Bytes) {
        prefix_range(vec![Self::TOPIC])
    }

    /// The records of all groups.
    #[must_use]
    pub fn groups() -> (Bytes, Bytes) {
        prefix_range(vec![Self::GROUP])
    }

    /// All subscriptions.
    #[must_use]
    pub fn subscriptions() -> (Bytes, Bytes) {
        prefix_range(vec![Self::SUBSCRIPTION])
    }
}

fn write_name(out: &mut Vec<u8>, namespace: &Namespace, name: &str) {
    write_text(out, namespace.as_str());
    write_text(out, name);
}

fn read_name(reader: &mut Reader) -> Result<(Namespace, String), CodecError> {
    let namespace = Namespace::unchecked(&reader.key_text("namespace")?);
    Ok((namespace, reader.key_text("name")?))
}

impl StoredKey for MetaKey {
    const WHAT: &'static str = "metadata key";

    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Counter(name) => {
                out.push(Self::COUNTER);
                write_text(out, name);
            }
            Self::Topic(topic) => {
                out.push(Self::TOPIC);
                out.put_u64(topic.get());
            }
            Self::TopicByName(name) => {
                out.push(Self::TOPIC_BY_NAME);
                write_name(out, name.namespace(), name.name());
            }
            Self::Group(group) => {
                out.push(Self::GROUP);
                out.put_u64(group.get());
            }
            Self::GroupByName(name) => {
                out.push(Self::GROUP_BY_NAME);
                write_name(out, name.namespace(), name.name());
            }
            Self::Subscription(queue) => {
                out.push(Self::SUBSCRIPTION);
                write_queue(out, *queue);
            }
            Self::LogBounds(queue) => {
                out.push(Self::LOG_BOUNDS);
                write_log_queue(out, *queue);
            }
            Self::RetryBounds { group, topic } => {
                out.push(Self::RETRY_BOUNDS);
                out.put_u64(group.get());
                out.put_u64(topic.get());
            }
            Self::HandleKeys => out.push(Self::HANDLE_KEYS),
            Self::Incarnation => out.push(Self::INCARNATION),
            Self::LeaseClockMark => out.push(Self::LEASE_CLOCK_MARK),
            Self::DueFloor(shard) => out.extend([Self::DUE_FLOOR, shard.get()]),
        }
    }

    fn read(reader: &mut Reader) -> Result<Self, CodecError> {
        Ok(match reader.u8()? {
            Self::COUNTER => Self::Counter(reader.key_text("name")?),
            Self::TOPIC => Self::Topic(TopicId::new(reader.u64()?)),
            Self::TOPIC_BY_NAME => {
                let (namespace, name) = read_name(reader)?;
                Self::TopicByName(TopicName::unchecked(&namespace, &name))
            }
            Self::GROUP => Self::Group(GroupId::new(reader.u64()?)),
            Self::GROUP_BY_NAME => {
                let (namespace, name) = read_name(reader)?;
                Self::GroupByName(GroupName::unchecked(&namespace, &name))
            }
            Self::SUBSCRIPTION => Self::Subscription(read_queue(reader)?),
            Self::LOG_BOUNDS => Self::LogBounds(read_log_queue(reader)?),
            Self::RETRY_BOUNDS => Self::RetryBounds {
                group: GroupId::new(reader.u64()?),
                topic: TopicId::new(reader.u64()?),
            },
            Self::HANDLE_KEYS => Self::HandleKeys,
            Self::INCARNATION => Self::Incarnation,
            Self::LEASE_CLOCK_MARK => Self::LeaseClockMark,
            Self::DUE_FLOOR => Self::DueFloor(read_shard(reader)?),
            code => {
                return Err(CodecError::Kind {
                    what: Self::WHAT,
                    code,
                });
            }
        })
    }
}
