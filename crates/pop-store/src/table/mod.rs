//! Typed views on a store, so that no caller builds a key by hand.
//!
//! Each view adds its writes to a batch that the caller commits: what must happen
//! together is put together by whoever knows why.

#[cfg(test)]
mod golden;
mod number;
mod references;
mod retained;
mod value;

pub mod due;
pub mod erase;
pub mod lease;
pub mod log;
pub mod meta;
pub mod parked;
pub mod progress;
pub mod quarantine;
pub mod retry;
pub mod timer;
pub mod tombstone;

pub use due::{DueCursor, DueSchedule, DueTicket};
pub use log::{LogEntry, MessageLog, PendingAppend, StagedBody, StoreLog, Sweep, Swept};
pub use quarantine::QuarantineSequence;
pub use references::{RetryEnd, Subscriber};
pub use timer::{DueTimer, Timer};
pub use value::{Undecodable, get_value};

use crate::Keyspace;

/// Topics, groups, subscriptions, counters, and other single facts.
pub const META: Keyspace = Keyspace::new("meta");
/// Messages by topic, queue and offset.
pub const LOG: Keyspace = Keyspace::new("log");
/// Bodies too large for their message's row, in chunks.
pub const BODY: Keyspace = Keyspace::new("body");
/// Lease rows by subscription queue and offset: the truth about what is out.
pub const LEASE: Keyspace = Keyspace::new("lease");
/// Hints by shard and deadline: when to look at which lease row.
pub const DUE: Keyspace = Keyspace::new("due");
/// Committed offsets, settled marks, and messages that are parked.
pub const PROGRESS: Keyspace = Keyspace::new("progress");
/// Messages that are ready for another delivery.
pub const RETRY: Keyspace = Keyspace::new("retry");
/// Messages that left the log while somebody refers to them.
pub const RETAINED: Keyspace = Keyspace::new("retained");
/// Messages that enter their queue later.
pub const TIMER: Keyspace = Keyspace::new("timer");
/// Records that could not be worked on.
pub const QUARANTINE: Keyspace = Keyspace::new("quarantine");

/// Every keyspace of the product.
pub const KEYSPACES: [Keyspace; 10] = [
    META, LOG, BODY, LEASE, DUE, PROGRESS, RETRY, RETAINED, TIMER, QUARANTINE,
];
