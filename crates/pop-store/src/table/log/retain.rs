//! The lower end of a queue: messages end there, except for those who refer to them.
//!
//! It goes in two parts, because references are found by looking. First the start moves:
//! nobody who does not refer to a message yet reads it from then on. Then the rows below go,
//! in steps of one batch each: a row that somebody refers to moves to what is kept, in the
//! batch that takes it from the log. A crash leaves rows below the start, which nobody but
//! a reference reads and the next sweep takes.

use std::sync::Arc;

use pop_model::{
    Holder, LeaseKey, LogBounds, LogKey, LogQueue, Message, Mutant, Offset, Retained, RetainedKey,
    StoredKey, StoredValue, WallTime,
};

use super::{LogEntry, StoreLog, Tail, body, bounds};
use crate::{
    Durability, Error, ErrorKind, Result, Scan, Store, WriteBatch,
    table::{
        LEASE, LOG, RETAINED,
        references::{Held, References, RetryEnd, Subscriber},
        retained,
        value::corrupt,
    },
};

/// The room of a step in its batch: the rest is for its end and for one more row.
const KEYS_MAX: usize = WriteBatch::KEYS_MAX - 10;
/// A row takes up to some 300 KiB, and the first one always goes.
const BYTES_MAX: usize = WriteBatch::BYTES_MAX - (400 << 10);
/// How many kept messages are looked at together.
const KEPT_AT_ONCE: usize = 256;

/// What one step took out of the log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Messages that ended.
    pub removed: Vec<Offset>,
    /// Messages that are kept, each for those who refer to it.
    pub kept: Vec<Offset>,
    /// How many of the removed could not be read.
    pub unreadable: usize,
}

/// The sweep of one queue. Dropped in the middle, another one goes on.
#[derive(Debug)]
pub struct Sweep {
    log: StoreLog,
    tail: Arc<Tail>,
    references: References,
    has_begun: bool,
}

impl StoreLog {
    pub(super) async fn raise_start(&self, queue: LogQueue, start: Offset) -> Result<LogBounds> {
        let tail = self.tail(queue).await?;
        let bounds = tail.readable();
        let start = start.min(bounds.end);
        if start <= bounds.start {
            return Ok(bounds);
        }
        let mut batch = WriteBatch::new();
        bounds::raise_start(&mut batch, queue, bounds.start, start);
        // Synced: readers are told of the start, and a power cut must not take it back.
        self.inner.store.write(batch, Durability::Synced).await?;
        tail.raise_start(start);
        Ok(tail.readable())
    }

    /// The end of the run of messages at the start of a queue that were all stored before
    /// `moment`. It looks at some `messages_max` at most, so that there may be more.
    ///
    /// The first one that was stored later ends the run, whatever comes behind it: where
    /// the clock was set back, nothing young goes with what looks old.
    ///
    /// # Errors
    ///
    /// The store's.
    pub async fn end_of_older(
        &self,
        queue: LogQueue,
        moment: WallTime,
        messages_max: usize,
    ) -> Result<Offset> {
        let bounds = self.tail(queue).await?.readable();
        let store = self.inner.store.as_ref();
        let key = |offset| LogKey { queue, offset }.encode();
        // Most often the first one tells.
        let mut scan = Scan::range(key(bounds.start), key(bounds.end)).with_entries_max(1);
        let mut end = bounds.start;
        let mut seen = 0;
        while seen < messages_max {
            let page = store.scan(LOG, scan.clone()).await?;
            let Some(last) = page.last() else {
                break;
            };
            scan.start = [&last.key[..], &[0]].concat().into();
            scan.entries_max = Scan::ENTRIES_MAX_DEFAULT;
            seen += page.len();
            for entry in page {
                let wrong = |error| corrupt(store, LOG, &entry.key, error);
                let at = LogKey::decode(entry.key.clone()).map_err(wrong)?;
                match Message::decode(entry.value) {
                    Ok(message) if message.stored_at < moment => end = at.offset.next(),
                    Ok(_) => return Ok(end),
                    // As old as the next one that can be read.
                    Err(_) => {}
                }
            }
        }
        Ok(end)
    }

    /// Begins to take what lies below the start of a queue out of the log. `subscribers`
    /// are all groups that consume it.
    ///
    /// # Contract
    ///
    /// One sweep of a queue at a time.
    ///
    /// # Errors
    ///
    /// The store's.
    pub async fn sweep(&self, queue: LogQueue, subscribers: Vec<Subscriber>) -> Result<Sweep> {
        let tail = self.tail(queue).await?;
        let start = tail.readable().start;
        let store = Arc::clone(&self.inner.store);
        let references = References::load(store, subscribers, start).await?;
        Ok(Sweep {
            log: self.clone(),
            tail,
            references,
            has_begun: false,
        })
    }
}

impl Sweep {
    /// Takes one batch of messages out. `None` once nothing is left below the start.
    ///
    /// # Errors
    ///
    /// The store's; what earlier steps did stays done.
    ///
    /// # Cancel safety
    ///
    /// The step may still be done, and nobody hears what it removed.
    pub async fn step(&mut self, retry_end: RetryEnd<'_>) -> Result<Option<Swept>> {
        let (from, start) = (self.tail.swept(), self.references.below());
        let rows = self.rows(from, start).await?;
        let Some(last) = rows.last() else {
            self.tail.raise_swept(start);
            return Ok(None);
        };
        self.begin().await?;
        let held = self
            .references
            .between(from, last.offset.next(), retry_end)
            .await?;
        let (batch, to, swept) = self.plan(from, &rows, held);
        self.store().write(batch, Durability::Buffered).await?;
        self.tail.raise_swept(to);
        Ok(Some(swept))
    }

    /// Lets go of what is kept and nobody refers to any more. Returns how many messages
    /// ended with that.
    ///
    /// # Errors
    ///
    /// The store's; what was let go of before stays so.
    pub async fn collect(&mut self, retry_end: RetryEnd<'_>) -> Result<u64> {
        let (start, end) = RetainedKey::queue_range(self.tail.queue);
        let mut scan = Scan::range(start, end).with_entries_max(KEPT_AT_ONCE);
        let mut ended = 0;
        loop {
            let page = self.store().scan(RETAINED, scan.clone()).await?;
            let key = |entry: &crate::Entry| {
                let key = RetainedKey::decode(entry.key.clone());
                key.map_err(|error| corrupt(self.store(), RETAINED, &entry.key, error))
            };
            let (Some(first), Some(last)) = (page.first(), page.last()) else {
                return Ok(ended);
            };
            let (from, to) = (key(first)?.offset, key(last)?.offset.next());
            scan.start = [&last.key[..], &[0]].concat().into();
            let held = self.references.between(from, to, retry_end).await?;
            for entry in page {
                ended += self.let_go(entry, &held).await?;
            }
        }
    }

    async fn let_go(&self, entry: crate::Entry, held: &Held) -> Result<u64> {
        let key = RetainedKey::decode(entry.key.clone());
        let wrong = |error| corrupt(self.store(), RETAINED, &entry.key, error);
        let offset = key.map_err(wrong)?.offset;
        let kept = Retained::decode(entry.value.clone()).map_err(wrong)?;
        let holders = held.get(&offset);
        // By group: a record that is put back to work is another reference of its group.
        let is_gone = |holder: &Holder| {
            let of_group = |held: &Holder| match Mutant::KeptForTheRecordAlone.is_on() {
                true => held == holder,
                false => held.group == holder.group,
            };
            !holders.is_some_and(|held| held.iter().any(of_group))
        };
        let is_end = kept.holders.iter().all(is_gone);
        let Some(batch) = retained::without(kept, entry.key, entry.value, is_gone) else {
            return Ok(0);
        };
        match self.store().write(batch, Durability::Buffered).await {
            Ok(()) => Ok(u64::from(is_end)),
            // Its group was deleted in this moment: the next sweep looks again.
            Err(error) if error.kind() == ErrorKind::Conflict => Ok(0),
            Err(error) => Err(error),
        }
    }

    /// Ends what groups that consume in order have stored of messages that end.
    async fn begin(&mut self) -> Result<()> {
        if self.has_begun {
            return Ok(());
        }
        let ordered: Vec<_> = self.references.ordered().collect();
        for queues in ordered.chunks(KEYS_MAX / 2) {
            let mut batch = WriteBatch::new();
            for queue in queues {
                let queue = *queue;
                let key = |offset| LeaseKey { queue, offset }.encode();
                let below = self.references.below();
                batch.delete_range(LEASE, key(Offset::ZERO), key(below));
            }
            self.store().write(batch, Durability::Buffered).await?;
        }
        self.has_begun = true;
        Ok(())
    }

    fn store(&self) -> &dyn Store {
        self.log.inner.store.as_ref()
    }

    /// The batch of a step, the offset that it comes up to, and what it does.
    fn plan(&self, from: Offset, rows: &[LogEntry], mut held: Held) -> (WriteBatch, Offset, Swept) {
        let queue = self.tail.queue;
        let key = |offset| LogKey { queue, offset }.encode();
        let mut batch = WriteBatch::new();
        let mut swept = Swept::default();
        let mut to = from;
        for row in rows {
            let mut part = WriteBatch::new();
            let holders = held.remove(&row.offset);
            let is_kept = holders.is_some();
            match holders {
                Some(holders) => retained::keep(&mut part, queue, row, holders),
                None => end(&mut part, row),
            }
            let fits = batch.key_count() + part.key_count() <= KEYS_MAX
                && batch.byte_count() + part.byte_count() <= BYTES_MAX;
            if to > from && !fits {
                break;
            }
            batch.append(part);
            to = row.offset.next();
            if is_kept {
                swept.kept.push(row.offset);
            } else {
                swept.removed.push(row.offset);
                swept.unreadable += usize::from(row.message.is_err());
            }
        }
        batch.delete_range(LOG, key(from), key(to));
        (batch, to, swept)
    }

    async fn rows(&self, from: Offset, end: Offset) -> Result<Vec<LogEntry>> {
        let queue = self.tail.queue;
        let key = |offset| LogKey { queue, offset }.encode();
        let store = self.store();
        let entries = store.scan(LOG, Scan::range(key(from), key(end))).await?;
        let row = |entry: crate::Entry| {
            let at = LogKey::decode(entry.key.clone());
            let at = at.map_err(|error| corrupt(store, LOG, &entry.key, error))?;
            Ok::<_, Error>(LogEntry::new(at.offset, entry.value))
        };
        entries.into_iter().map(row).collect()
    }
}

/// What ends with a row besides the row itself.
fn end(batch: &mut WriteBatch, row: &LogEntry) {
    match &row.message {
        Ok(Message { body, .. }) => body::remove(batch, body),
        Err(error) => {
            tracing::error!(offset = row.offset.get(), %error, "retention removed a message that can't be read");
        }
    }
}
