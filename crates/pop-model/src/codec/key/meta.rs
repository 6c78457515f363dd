//! Keys of metadata: names, records of topics and groups, counters, bounds and marks.

use bytes::{BufMut, Bytes};

use super::{
    StoredKey, prefix_range, read_log_queue, read_queue, read_shard, write_log_queue, write_queue,
    write_text,
};
use crate::{
    GroupId, GroupName, LogQueue, Namespace, ShardId, SubscriptionQueue, TopicId, TopicName,
    codec::{CodecError, reader::Reader},
};

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
    /// The first offset of a log queue that may still be there.
    LogStart(LogQueue),
    /// The keys that sign receipt handles.
    HandleKeys,
    /// The incarnation of the last open.
    Incarnation,
    /// The high-water mark of lease time.
    LeaseClockMark,
    /// The floor of a shard's due index.
    DueFloor(ShardId),
    /// The end of a log queue, where its rows alone no longer tell.
    LogEnd(LogQueue),
    /// The record of a topic that is deleted and not yet swept: its tombstone.
    DeletedTopic(TopicId),
    /// The record of a group that is deleted and not yet swept: its tombstone.
    DeletedGroup(GroupId),
    /// How far wall time was ahead of lease time when retention last looked.
    RetentionClock,
}

impl MetaKey {
    const COUNTER: u8 = 0x10;
    const TOPIC: u8 = 0x11;
    const TOPIC_BY_NAME: u8 = 0x12;
    const GROUP: u8 = 0x13;
    const GROUP_BY_NAME: u8 = 0x14;
    const SUBSCRIPTION: u8 = 0x15;
    const LOG_START: u8 = 0x16;
    // 0x17 is reserved: it was the floor of a retry queue.
    const HANDLE_KEYS: u8 = 0x18;
    const INCARNATION: u8 = 0x19;
    const LEASE_CLOCK_MARK: u8 = 0x1A;
    const DUE_FLOOR: u8 = 0x1B;
    const LOG_END: u8 = 0x1C;
    const DELETED_TOPIC: u8 = 0x1D;
    const DELETED_GROUP: u8 = 0x1E;
    const RETENTION_CLOCK: u8 = 0x1F;

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

    /// The subscriptions of a group.
    #[must_use]
    pub fn subscriptions_of(group: GroupId) -> (Bytes, Bytes) {
        let mut prefix = vec![Self::SUBSCRIPTION];
        prefix.put_u64(group.get());
        prefix_range(prefix)
    }

    /// The tombstones of all topics.
    #[must_use]
    pub fn deleted_topics() -> (Bytes, Bytes) {
        prefix_range(vec![Self::DELETED_TOPIC])
    }

    /// The tombstones of all groups.
    #[must_use]
    pub fn deleted_groups() -> (Bytes, Bytes) {
        prefix_range(vec![Self::DELETED_GROUP])
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
            Self::LogStart(queue) => {
                out.push(Self::LOG_START);
                write_log_queue(out, *queue);
            }
            Self::HandleKeys => out.push(Self::HANDLE_KEYS),
            Self::Incarnation => out.push(Self::INCARNATION),
            Self::LeaseClockMark => out.push(Self::LEASE_CLOCK_MARK),
            Self::DueFloor(shard) => out.extend([Self::DUE_FLOOR, shard.get()]),
            Self::LogEnd(queue) => {
                out.push(Self::LOG_END);
                write_log_queue(out, *queue);
            }
            Self::DeletedTopic(topic) => {
                out.push(Self::DELETED_TOPIC);
                out.put_u64(topic.get());
            }
            Self::DeletedGroup(group) => {
                out.push(Self::DELETED_GROUP);
                out.put_u64(group.get());
            }
            Self::RetentionClock => out.push(Self::RETENTION_CLOCK),
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
            Self::LOG_START => Self::LogStart(read_log_queue(reader)?),
            Self::HANDLE_KEYS => Self::HandleKeys,
            Self::INCARNATION => Self::Incarnation,
            Self::LEASE_CLOCK_MARK => Self::LeaseClockMark,
            Self::DUE_FLOOR => Self::DueFloor(read_shard(reader)?),
            Self::LOG_END => Self::LogEnd(read_log_queue(reader)?),
            Self::DELETED_TOPIC => Self::DeletedTopic(TopicId::new(reader.u64()?)),
            Self::DELETED_GROUP => Self::DeletedGroup(GroupId::new(reader.u64()?)),
            Self::RETENTION_CLOCK => Self::RetentionClock,
            code => {
                return Err(CodecError::Kind {
                    what: Self::WHAT,
                    code,
                });
            }
        })
    }
}
