//! What happened since the broker was opened, counted where it happens.

use std::sync::atomic::{AtomicU64, Ordering};

/// One count that only goes up.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, count: usize) {
        // Relaxed: nothing else is read on the strength of it.
        self.0
            .fetch_add(u64::try_from(count).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The counts as they go; they outlive a store that is opened anew.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) sent: Counter,
    pub(crate) received: Counter,
    pub(crate) acked: Counter,
    pub(crate) stored: Counter,
    pub(crate) revived: Counter,
    pub(crate) dead_lettered: Counter,
    pub(crate) quarantined: Counter,
    pub(crate) redriven: Counter,
    pub(crate) quarantine_dropped: Counter,
    pub(crate) expired: Counter,
    pub(crate) expired_unacked: Counter,
}

/// How many messages went which way since the broker was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Taken from producers.
    pub sent: u64,
    /// Handed to consumers, each delivery counted.
    pub received: u64,
    /// Acknowledged.
    pub acked: u64,
    /// Deliveries that went from memory into the store, because they stayed out for long or
    /// memory was full.
    pub stored: u64,
    /// Made ready for another delivery after their time was up.
    pub revived: u64,
    /// Moved to a dead-letter topic.
    pub dead_lettered: u64,
    /// Put in quarantine when they were to be handed out.
    pub quarantined: u64,
    /// Put back to work from quarantine.
    pub redriven: u64,
    /// Dropped from quarantine by an operator.
    pub quarantine_dropped: u64,
    /// Ended by their age.
    pub expired: u64,
    /// Ended by their age before a group had acknowledged them, counted once a group.
    pub expired_unacked: u64,
}

impl Counters {
    pub(crate) fn read(&self) -> Counts {
        Counts {
            sent: self.sent.get(),
            received: self.received.get(),
            acked: self.acked.get(),
            stored: self.stored.get(),
            revived: self.revived.get(),
            dead_lettered: self.dead_lettered.get(),
            quarantined: self.quarantined.get(),
            redriven: self.redriven.get(),
            quarantine_dropped: self.quarantine_dropped.get(),
            expired: self.expired.get(),
            expired_unacked: self.expired_unacked.get(),
        }
    }
}
