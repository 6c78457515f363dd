//! What the JSON API and the command line say to each other.

use std::collections::BTreeMap;

use pop_model::StartPosition;
use serde::{Deserialize, Serialize};

/// GET lists topics, POST takes a [`NewTopic`].
pub(crate) const TOPICS: &str = "/api/topics";
/// GET describes the topic of a [`Named`] query, DELETE deletes it.
pub(crate) const TOPIC: &str = "/api/topic";
/// GET lists groups, POST takes a [`NewGroup`].
pub(crate) const GROUPS: &str = "/api/groups";
/// DELETE deletes the group of a [`GroupToDelete`] query.
pub(crate) const GROUP: &str = "/api/group";
/// GET shows the progress of a [`Consumption`] query, POST takes a [`Reset`].
pub(crate) const OFFSETS: &str = "/api/offsets";
/// GET tells how messages end by their age, POST takes a [`ConfirmClock`].
pub(crate) const RETENTION: &str = "/api/retention";
/// GET lists quarantined records, by a [`Page`] query. POST takes a [`Redrive`], DELETE
/// drops the record of a [`Place`] query.
pub(crate) const QUARANTINE: &str = "/api/quarantine";

/// GET tells what the data port does, POST takes a [`DataRate`].
pub(crate) const DATA: &str = "/api/data";

/// A name in a namespace; the empty one is the default.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Named {
    #[serde(default)]
    pub(crate) namespace: String,
    pub(crate) name: String,
}

/// A group that is to be deleted.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct GroupToDelete {
    #[serde(default)]
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// Its dead-letter topic goes with it; it stays if absent.
    #[serde(default)]
    pub(crate) with_dead_letters: bool,
}

/// What was deleted.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Deleted {
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// The dead-letter topic of the group, if it stays.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) dead_letters_kept: Option<String>,
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
    /// Whether it consumes message groups in order; not if absent.
    #[serde(default)]
    pub(crate) fifo: bool,
}

/// A group.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Group {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) delivery_attempts_max: u32,
    pub(crate) start: Start,
    pub(crate) fifo: bool,
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

/// A group on a topic.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Consumption {
    #[serde(default)]
    pub(crate) namespace: String,
    pub(crate) group: String,
    pub(crate) topic: String,
}

/// How far a group has come in a queue.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Progress {
    /// Absent for the retry queue.
    pub(crate) queue: Option<u32>,
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) committed: u64,
    pub(crate) in_flight: u64,
    pub(crate) lag: u64,
}

/// Where a group is to go on.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Reset {
    pub(crate) of: Consumption,
    pub(crate) to: ResetTo,
}

/// A place in each queue, or in one.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ResetTo {
    /// The first message that is still there.
    Earliest,
    /// Behind the last one.
    Latest,
    /// The first message that was stored at or after this moment.
    TimeUnixMs(i64),
    /// An offset of one queue.
    Offset { queue: u32, offset: u64 },
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

/// How messages end by their age.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Retention {
    /// How long they are kept; for ever if absent.
    pub(crate) keep_seconds: Option<u64>,
    /// How far the clock jumped, in milliseconds: nothing ends until it is confirmed.
    pub(crate) clock_jumped_by_ms: Option<i64>,
}

/// Says that the clock is right.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ConfirmClock {}

/// What the data port does and did.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Data {
    /// What it sends in a second at most, such as `64M`; `off` is no limit.
    pub(crate) rate: String,
    /// Connections that are open.
    pub(crate) open: u64,
    /// Sessions that run.
    pub(crate) running: u64,
    /// How long the one that stands still the longest does so.
    pub(crate) still_seconds: Option<u64>,
    /// Snapshots that are kept.
    pub(crate) snapshots: u64,
    pub(crate) oldest_snapshot_seconds: Option<u64>,
    /// Sessions whose receiver installed all rows.
    pub(crate) installed: u64,
    /// Sessions that ended before.
    pub(crate) failed: u64,
    /// Connections that were turned away.
    pub(crate) refused: u64,
    /// The same, by why.
    pub(crate) turned_away: BTreeMap<String, u64>,
    /// How sessions ended, one word each.
    pub(crate) ended: BTreeMap<String, u64>,
    /// Handovers that were begun.
    pub(crate) handovers: u64,
    pub(crate) sent_rows: u64,
    pub(crate) sent_bytes: u64,
}

/// How fast the data port may send.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DataRate {
    /// Such as `64M`; `off` is no limit.
    pub(crate) rate: String,
}

/// A record that is to be put back to work.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Redrive {
    pub(crate) place: u64,
}

/// The place of a record.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Place {
    pub(crate) place: u64,
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
