//! The ends of a queue in memory, and the offsets that are being written.

use std::{collections::BTreeSet, sync::Arc};

use parking_lot::Mutex;
use pop_model::{LogBounds, LogKey, LogQueue, Message, Offset, StoredKey, StoredValue};
use tokio::sync::watch;

use crate::{Outcome, WriteBatch, table::LOG};

/// The ends of a queue.
#[derive(Debug)]
pub(super) struct Tail {
    pub(super) queue: LogQueue,
    /// The end when this run looked at the queue first, before it appended anything.
    pub(super) found_end: Offset,
    ends: Mutex<Ends>,
    // Told whenever an append gets its outcome: whoever closes the queue waits for all.
    resolved: watch::Sender<()>,
}

#[derive(Debug)]
struct Ends {
    start: Offset,
    // Below it no row is left. Only saves looking again; a start of the program looks once.
    swept: Offset,
    next: Offset,
    // Given out, and its write has no outcome yet. Readers stop below the lowest.
    unresolved: BTreeSet<Offset>,
    is_closed: bool,
    is_in_doubt: bool,
}

impl Tail {
    pub(super) fn new(queue: LogQueue, start: Offset, next: Offset) -> Arc<Self> {
        Arc::new(Self {
            queue,
            found_end: next,
            ends: Mutex::new(Ends {
                start,
                swept: Offset::ZERO,
                next,
                unresolved: BTreeSet::new(),
                is_closed: false,
                is_in_doubt: false,
            }),
            resolved: watch::Sender::new(()),
        })
    }

    /// The start, and the end below which every append has an outcome.
    pub(super) fn readable(&self) -> LogBounds {
        let ends = self.ends.lock();
        LogBounds {
            start: ends.start,
            end: ends.unresolved.first().copied().unwrap_or(ends.next),
        }
    }

    /// Gives out the next offset, unless the queue is closed.
    pub(super) fn begin(self: &Arc<Self>) -> Option<PendingAppend> {
        let mut ends = self.ends.lock();
        if ends.is_closed {
            return None;
        }
        let offset = ends.next;
        ends.next = offset.next();
        ends.unresolved.insert(offset);
        Some(PendingAppend {
            tail: Arc::clone(self),
            offset,
            resolved: false,
        })
    }

    /// Gives out no offset any more, and waits until each that was has an outcome.
    /// Returns whether that is so: one in doubt has none until the store was opened anew.
    pub(super) async fn close(&self) -> bool {
        let mut resolved = self.resolved.subscribe();
        self.ends.lock().is_closed = true;
        loop {
            {
                let ends = self.ends.lock();
                if ends.unresolved.is_empty() || ends.is_in_doubt {
                    return !ends.is_in_doubt;
                }
            }
            // It can't fail while `self` holds the sender.
            let _ = resolved.changed().await;
        }
    }

    pub(super) fn swept(&self) -> Offset {
        self.ends.lock().swept
    }

    pub(super) fn raise_start(&self, start: Offset) {
        let mut ends = self.ends.lock();
        ends.start = ends.start.max(start);
    }

    pub(super) fn raise_swept(&self, swept: Offset) {
        let mut ends = self.ends.lock();
        ends.swept = ends.swept.max(swept);
    }

    fn doubt(&self) {
        self.ends.lock().is_in_doubt = true;
        self.resolved.send_replace(());
    }

    fn resolve(&self, offset: Offset, was_written: bool) {
        let mut ends = self.ends.lock();
        ends.unresolved.remove(&offset);
        if !was_written && ends.next == offset.next() {
            ends.next = offset;
        }
        drop(ends);
        self.resolved.send_replace(());
    }
}

/// An offset that is given out, whose message is being written.
///
/// Dropping it says that nothing was written: the offset is used again if it was the
/// last, and is a hole that readers pass otherwise.
#[derive(Debug)]
#[must_use = "resolve the append once its write has an outcome"]
pub struct PendingAppend {
    tail: Arc<Tail>,
    offset: Offset,
    resolved: bool,
}

impl PendingAppend {
    /// The offset that the message gets.
    #[must_use]
    pub fn offset(&self) -> Offset {
        self.offset
    }

    /// Adds the message's row, which alone makes it exist.
    pub fn put(&self, batch: &mut WriteBatch, message: &Message) {
        let key = LogKey {
            queue: self.tail.queue,
            offset: self.offset,
        };
        batch.put(LOG, key.encode(), message.encode());
    }

    /// The batch is committed. Returns the offset.
    pub fn committed(mut self) -> Offset {
        self.resolved = true;
        self.tail.resolve(self.offset, true);
        self.offset
    }

    /// Nobody knows about the batch: readers go on stopping here until the store was
    /// reopened.
    pub fn in_doubt(mut self) {
        self.resolved = true;
        self.tail.doubt();
    }

    /// Goes on as the error of the write says.
    pub fn unsettled(self, outcome: Outcome) {
        match outcome {
            Outcome::Refused => drop(self),
            Outcome::InDoubt => self.in_doubt(),
        }
    }
}

impl Drop for PendingAppend {
    fn drop(&mut self) {
        if !self.resolved {
            self.tail.resolve(self.offset, false);
        }
    }
}
