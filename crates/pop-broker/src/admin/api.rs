//! What the JSON API and the command line say to each other.

use pop_model::StartPosition;
use serde::{Deserialize, Serialize};

/// GET lists topics, POST takes a [`NewTopic`].
pub(crate) const TOPICS: &str = "/api/topics";
/// GET describes the topic of a [`Named`] query.
pub(crate) const TOPIC: &str = "/api/topic";
/// GET lists groups, POST takes a [`NewGroup`].
pub(crate) const GROUPS: &str = "/api/groups";
/// GET lists quarantined records, by a [`Page`] query.
pub(crate) const QUARANTINE: &str = "/api/quarantine";

/// A name in a namespace; the empty one is the default.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Named {
    #[serde(default)]
    pub(crate) namespace: String,
    pub(crate) name: String,
}

/// A topic that is to be made.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewTopic {
    #[serde(default)]
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// 4 if absent.
    pub(crate) queues: Option<u32>,
}

/// A topic.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Topic {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) queues: u32,
    pub(crate) created_at_unix_ms: i64,
}

/// A topic and its queues.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct TopicDescription {
    #[serde(flatten)]
    pub(crate) topic: Topic,
    pub(crate) bounds: Vec<Queue>,
}

/// A queue: its messages have the offsets from `start` up to and without `end`.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Queue {
    pub(crate) queue: u32,
    pub(crate) start: u64,
    pub(crate) end: u64,
}

/// A group that is to be made.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewGroup {
    #[serde(default)]
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// 17 if absent.
    pub(crate) delivery_attempts_max: Option<u32>,
    /// Earliest if absent.
    pub(crate) start: Option<Start>,
}

/// A group.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Group {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) delivery_attempts_max: u32,
    pub(crate) start: Start,
    pub(crate) created_at_unix_ms: i64,
}

/// Where a group starts in a queue that it never consumed.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Start {
    /// At the first message that is still there.
    Earliest,
    /// Behind the last one.
    Latest,
}

/// Which records to list.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Page {
    /// The first place; 0 if absent.
    pub(crate) from: Option<u64>,
    /// How many at most; 100 if absent, never more than 1000.
    pub(crate) count: Option<usize>,
}

/// Quarantined records in order.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Quarantine {
    pub(crate) records: Vec<Quarantined>,
    /// Where to go on, if there may be more.
    pub(crate) next: Option<u64>,
}

/// A record that could not be worked on.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Quarantined {
    pub(crate) place: u64,
    pub(crate) at_unix_ms: i64,
    pub(crate) reason: String,
    pub(crate) keyspace: String,
    pub(crate) key_hex: String,
    pub(crate) value_bytes: usize,
}

/// Why something was not done.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Problem {
    pub(crate) error: String,
}

impl From<StartPosition> for Start {
    fn from(start: StartPosition) -> Self {
        match start {
            StartPosition::Earliest => Self::Earliest,
            StartPosition::Latest => Self::Latest,
        }
    }
}

impl From<Start> for StartPosition {
    fn from(start: Start) -> Self {
        match start {
            Start::Earliest => Self::Earliest,
            Start::Latest => Self::Latest,
        }
    }
}
