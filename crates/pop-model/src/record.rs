//! Metadata: topics, groups, subscriptions, and the ends of logs.

use std::time::Duration;

use bytes::{BufMut, Bytes};

use crate::{
    Backoff, CodecError, GroupId, GroupName, MessageKind, Namespace, Offset, RetryPolicy,
    StoredValue, SubscriptionEpoch, TopicId, TopicName, WallTime,
    codec::{
        reader::Reader,
        value::{write_bytes, write_option},
    },
};

/// A topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicRecord {
    /// Its id.
    pub id: TopicId,
    /// Its name.
    pub name: TopicName,
    /// How many queues it has, numbered from 0.
    pub queues: u32,
    /// The kinds of message that it takes, each once and in the order of
    /// [`MessageKind::ALL`]: that is how they read back.
    pub kinds: Vec<MessageKind>,
    /// When it was made.
    pub created_at: WallTime,
}

impl StoredValue for TopicRecord {
    const WHAT: &'static str = "topic";

    fn write(&self, out: &mut Vec<u8>) {
        out.put_u64(self.id.get());
        write_bytes(out, self.name.namespace().as_str().as_bytes());
        write_bytes(out, self.name.name().as_bytes());
        out.put_u32(self.queues);
        out.push(
            self.kinds
                .iter()
                .fold(0, |mask, kind| mask | 1 << kind.code()),
        );
        out.put_i64(self.created_at.as_unix_millis());
    }

    fn read(reader: &mut Reader) -> Result<Self, CodecError> {
        let id = TopicId::new(reader.u64()?);
        let namespace = Namespace::unchecked(&reader.text("namespace")?);
        let name = TopicName::unchecked(&namespace, &reader.text("name")?);
        let queues = reader.u32()?;
        let mask = reader.u8()?;
        let kinds: Vec<_> = MessageKind::ALL
            .into_iter()
            .filter(|kind| mask >> kind.code() & 1 == 1)
            .collect();
        if kinds.iter().fold(0, |known, kind| known | 1 << kind.code()) != mask {
            return Err(reader.bad("kinds"));
        }
        Ok(Self {
            id,
            name,
            queues,
            kinds,
            created_at: WallTime::from_unix_millis(reader.i64()?),
        })
    }
}

/// Where a group starts in a queue that it has never consumed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StartPosition {
    /// At the first message that is still there.
    #[default]
    Earliest,
    /// After the last message.
    Latest,
}

/// A consumer group.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupRecord {
    /// Its id.
    pub id: GroupId,
    /// Its name.
    pub name: GroupName,
    /// How often it gets a message, and how long it waits between.
    pub policy: RetryPolicy,
    /// Where it starts.
    pub start: StartPosition,
    /// Whether it consumes message groups in order.
    pub fifo: bool,
    /// When it was made.
    pub created_at: WallTime,
}

impl StoredValue for GroupRecord {
    const WHAT: &'static str = "group";

    fn write(&self, out: &mut Vec<u8>) {
        out.put_u64(self.id.get());
        write_bytes(out, self.name.namespace().as_str().as_bytes());
        write_bytes(out, self.name.name().as_bytes());
        out.put_u32(self.policy.delivery_attempts_max());
        match self.policy.backoff() {
            Backoff::Customized(delays) => {
                out.push(0);
                out.put_u32(
                    u32::try_from(delays.len()).expect("limits keep a table of delays short"),
                );
                for delay in delays {
                    write_duration(out, *delay);
                }
            }
            Backoff::Exponential {
                initial,
                max,
                multiplier,
            } => {
                out.push(1);
                write_duration(out, *initial);
                write_duration(out, *max);
                out.put_u32(multiplier.to_bits());
            }
        }
        out.push(match self.start {
            StartPosition::Earliest => 0,
            StartPosition::Latest => 1,
        });
        out.push(u8::from(self.fifo));
        out.put_i64(self.created_at.as_unix_millis());
    }

    fn read(reader: &mut Reader) -> Result<Self, CodecError> {
        let id = GroupId::new(reader.u64()?);
        let namespace = Namespace::unchecked(&reader.text("namespace")?);
        let name = GroupName::unchecked(&namespace, &reader.text("name")?);
        let attempts = reader.u32()?;
        let backoff = match reader.u8()? {
            0 => {
                let count = reader.u32()?;
                let delays: Result<_, _> = (0..count).map(|_| read_duration(reader)).collect();
                Backoff::Customized(delays?)
            }
            1 => Backoff::Exponential {
                initial: read_duration(reader)?,
                max: read_duration(reader)?,
                multiplier: f32::from_bits(reader.u32()?),
            },
            _ => return Err(reader.bad("back-off")),
        };
        let policy = RetryPolicy::new(attempts, backoff).map_err(|_| reader.bad("retry policy"))?;
        let start = match reader.u8()? {
            0 => StartPosition::Earliest,
            1 => StartPosition::Latest,
            _ => return Err(reader.bad("start position")),
        };
        Ok(Self {
            id,
            name,
            policy,
            start,
            fifo: reader.flag("fifo")?,
            created_at: WallTime::from_unix_millis(reader.i64()?),
        })
    }

    fn size_hint(&self) -> usize {
        512
    }
}

fn write_duration(out: &mut Vec<u8>, duration: Duration) {
    out.put_u64(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX));
}

fn read_duration(reader: &mut Reader) -> Result<Duration, CodecError> {
    reader.u64().map(Duration::from_millis)
}

/// The durable row that makes a group subscribed to a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SubscriptionRecord {
    /// Where the group started.
    pub start: Offset,
    /// How often its offset was reset.
    pub epoch: SubscriptionEpoch,
}

impl StoredValue for SubscriptionRecord {
    const WHAT: &'static str = "subscription";

    fn write(&self, out: &mut Vec<u8>) {
        out.put_u64(self.start.get());
        out.put_u64(self.epoch.get());
    }

    fn read(reader: &mut Reader) -> Result<Self, CodecError> {
        Ok(Self {
            start: Offset::new(reader.u64()?),
            epoch: SubscriptionEpoch::new(reader.u64()?),
        })
    }
}

/// The ends of a log queue. They never go down, also where its rows are gone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogBounds {
    /// The first offset that may still be there.
    pub start: Offset,
    /// The offset after the last one.
    pub end: Offset,
}

/// A record that could not be worked on, as it was, with the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuarantineRecord {
    /// Why it is here.
    pub reason: String,
    /// The keyspace it came from.
    pub keyspace: String,
    /// Its key there.
    pub key: Bytes,
    /// Its bytes.
    pub value: Bytes,
    /// When it was put away.
    pub at: WallTime,
    /// For which group, where its key doesn't say: a message is read by many.
    pub group: Option<GroupId>,
}

impl StoredValue for QuarantineRecord {
    const WHAT: &'static str = "quarantine record";

    fn write(&self, out: &mut Vec<u8>) {
        write_bytes(out, self.reason.as_bytes());
        write_bytes(out, self.keyspace.as_bytes());
        write_bytes(out, &self.key);
        write_bytes(out, &self.value);
        out.put_i64(self.at.as_unix_millis());
        write_option(out, self.group, |out, group| out.put_u64(group.get()));
    }

    fn read(reader: &mut Reader) -> Result<Self, CodecError> {
        Ok(Self {
            reason: reader.text("reason")?,
            keyspace: reader.text("keyspace")?,
            key: reader.bytes()?,
            value: reader.bytes()?,
            at: WallTime::from_unix_millis(reader.i64()?),
            group: reader.option("group", |reader| Ok(GroupId::new(reader.u64()?)))?,
        })
    }

    fn size_hint(&self) -> usize {
        self.reason.len() + self.keyspace.len() + self.key.len() + self.value.len() + 40
    }
}
