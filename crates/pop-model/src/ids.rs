//! Numbers that name things, each a type of its own.
//!
//! Topics and groups are ids in every key, never names: an id comes from a counter that
//! never goes back, so it is also the epoch of its name. A topic that is deleted and made
//! again is another topic, and nothing of the old one can be taken for it.

use std::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($raw:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name($raw);

        impl $name {
            /// Takes the raw number.
            #[must_use]
            pub const fn new(raw: $raw) -> Self {
                Self(raw)
            }

            /// The raw number.
            #[must_use]
            pub const fn get(self) -> $raw {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

id! {
    /// A topic, and the epoch of its name.
    TopicId(u64)
}
id! {
    /// A consumer group, and the epoch of its name.
    GroupId(u64)
}
id! {
    /// One of a topic's queues, from 0.
    QueueId(u32)
}
id! {
    /// The position of a message in one queue, and only that.
    Offset(u64)
}
id! {
    /// How often the offset of a subscription queue was reset. What was handed out before
    /// a reset is void after it.
    SubscriptionEpoch(u64)
}
id! {
    /// One run of a broker on its store: random, synced before the first hand-out.
    Incarnation(u64)
}
id! {
    /// Which delivery of an offset this is. It counts deliveries, not changes of one.
    Generation(u32)
}
id! {
    /// A body that is stored in chunks beside its message.
    BodyId(u64)
}

impl Offset {
    /// The first offset of a queue.
    pub const ZERO: Self = Self(0);

    /// The offset after this one. Saturates at the end of the number range, which a queue
    /// of a billion messages a second reaches after 500 years.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }

    /// How many offsets lie in `earlier..self`; 0 if `earlier` is not below.
    #[must_use]
    pub const fn distance_from(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl QueueId {
    /// The retry queue that each group has for each topic: it is consumed like any other,
    /// and its offsets are the sequences of its entries.
    pub const RETRY: Self = Self(u32::MAX);
}

impl SubscriptionEpoch {
    /// The epoch after the next reset; saturates.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl Generation {
    /// No delivery yet.
    pub const NONE: Self = Self(0);
    /// The first delivery.
    pub const FIRST: Self = Self(1);

    /// The delivery after this one; saturates.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

/// One of the 64 shards: the unit of scans for due work, and of ownership.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShardId(u8);

impl ShardId {
    /// How many shards there are. Part of the format: it never changes.
    pub const COUNT: u8 = 64;

    /// A shard by its number; `None` from [`ShardId::COUNT`] on.
    #[must_use]
    pub const fn new(raw: u8) -> Option<Self> {
        if raw < Self::COUNT {
            Some(Self(raw))
        } else {
            None
        }
    }

    /// Its number.
    #[must_use]
    pub const fn get(self) -> u8 {
        self.0
    }

    /// Every shard, in order.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..Self::COUNT).map(Self)
    }
}

/// One queue of the message log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogQueue {
    /// The topic.
    pub topic: TopicId,
    /// Its queue.
    pub queue: QueueId,
}

/// One queue of a topic as one group consumes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SubscriptionQueue {
    /// The group that consumes.
    pub group: GroupId,
    /// The topic that is consumed.
    pub topic: TopicId,
    /// The queue of that topic.
    pub queue: QueueId,
}

impl SubscriptionQueue {
    /// The shard that holds its leases and its progress.
    #[must_use]
    pub fn shard(self) -> ShardId {
        shard_of(self.group, self.topic, self.queue)
    }

    /// Whether this is the retry queue of a group and topic.
    #[must_use]
    pub const fn is_retry(self) -> bool {
        self.queue.0 == QueueId::RETRY.0
    }

    /// The log queue that is consumed.
    #[must_use]
    pub const fn log_queue(self) -> LogQueue {
        LogQueue {
            topic: self.topic,
            queue: self.queue,
        }
    }
}

impl fmt::Display for SubscriptionQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "group {}, topic {}, queue {}",
            self.group, self.topic, self.queue
        )
    }
}

/// The shard of a subscription queue.
///
/// Part of the format: keys lead with it. Each id is folded into a 64-bit state by the
/// finalizer of splitmix64 (Steele, Lea, Flood 2014), and the top six bits are the shard.
#[must_use]
pub const fn shard_of(group: GroupId, topic: TopicId, queue: QueueId) -> ShardId {
    let mut state = mix(group.0);
    state = mix(state ^ topic.0);
    state = mix(state ^ queue.0 as u64);
    ShardId((state >> 58) as u8)
}

const fn mix(input: u64) -> u64 {
    let mut z = input.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}
