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
