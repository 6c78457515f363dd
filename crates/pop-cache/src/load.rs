//! Loading a queue: what the store knows of it.
//!
//! A record that can't be decoded goes to quarantine, and its queue goes on (P5, P6).

use std::sync::Arc;

use pop_model::{
    Checkpoint, LogBounds, MarkPage, Mutant, Offset, QuarantineRecord, StartPosition,
    SubscriptionEpoch, SubscriptionQueue, SubscriptionRecord,
};
use pop_store::{
    Durability, ErrorKind, Keyspace, WriteBatch,
    table::{LEASE, PROGRESS, Undecodable, lease, meta, parked, progress, quarantine},
};

use crate::{
    CacheError, CachedQueue, LeaseCache, LeaseQueue, Restored, RestoredParked, Result, RetrySink,
    Subscribe, parking,
};

impl<K: RetrySink> LeaseCache<K> {
    pub(crate) async fn load(&self, subscribe: Subscribe) -> Result<Arc<CachedQueue>> {
        let Subscribe { queue, bounds, .. } = subscribe;
        self.check_open(queue)?;
        let store = self.inner.store.as_ref();
        let record = match meta::subscription(store, queue).await? {
            Some(record) => record,
            None => self.start(subscribe).await?,
        };
        let mut readable = progress::load_readable(store, queue).await?;
        for (number, bad) in std::mem::take(&mut readable.bad) {
            let page = self
                .replace_page(subscribe, record.epoch, number, bad)
                .await?;
            readable.pages.push((number, page));
        }
        readable.pages.sort_unstable_by_key(|(number, _)| *number);
        let pages = readable.pages;
        let committed = readable.progress.map_or(record.start, |it| it.committed);
        let marked = pages.last().map(|(number, marks)| marks.end(*number));
        if marked.is_some_and(|marked| marked > bounds.end) {
            tracing::error!(%queue, ?marked, log_end = bounds.end.get(), "messages that were settled are no longer in the log; those that take their offsets are delivered");
        }
        let ordered = match subscribe.ordered {
            true => Some(self.load_rows(queue).await?),
            false => None,
        };
        let parked = match &ordered {
            Some(rows) => parking::load(store, queue, rows).await?,
            None => RestoredParked::default(),
        };
        let restored = Restored {
            queue,
            epoch: record.epoch,
            committed: clamp(queue, committed, bounds),
            pages: if Mutant::RestartIgnoresMarks.is_on() {
                Vec::new()
            } else {
                pages
            },
            ordered,
            parked,
            log_start: bounds.start,
            log_end: bounds.end,
            found_end: subscribe.found_end,
        };
        let leases = LeaseQueue::restore(restored, self.inner.run);
        let of_group = self.of_group(queue.group);
        let max = self.inner.options.in_flight_per_queue_max;
        let now = self.inner.clock.lease();
        let cached = Arc::new(CachedQueue::new(leases, now, max, of_group));
        self.count_later(&cached);
        // What was left behind is cleared up without waiting for traffic.
        self.with(&cached, |_| ());
        Ok(cached)
    }

    async fn start(&self, subscribe: Subscribe) -> Result<SubscriptionRecord> {
        let store = self.inner.store.as_ref();
        let record = SubscriptionRecord {
            start: match subscribe.start {
                StartPosition::Earliest => subscribe.bounds.start,
                StartPosition::Latest => subscribe.bounds.end,
            },
            ..SubscriptionRecord::default()
        };
        let mut batch = WriteBatch::new();
        meta::put_new_subscription(&mut batch, subscribe.queue, &record);
        let durability = if Mutant::StartNotDurable.is_on() {
            Durability::Buffered
        } else {
            Durability::Synced
        };
        match store.write(batch, durability).await {
            Ok(()) => Ok(record),
            // A load that was given up before it heard of its own write.
            Err(error) if error.kind() == ErrorKind::Conflict => {
                let stored = meta::subscription(store, subscribe.queue).await?;
                stored.ok_or(CacheError::Store(error))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// The rows of an ordered queue.
    async fn load_rows(&self, queue: SubscriptionQueue) -> Result<Vec<Checkpoint>> {
        let store = self.inner.store.as_ref();
        let (rows, bad) = lease::load_readable(store, queue, usize::MAX).await?;
        for bad in bad {
            tracing::error!(%queue, key = %bad.key.escape_ascii(), error = %bad.error, "a lease row that can't be read went to quarantine; its message is ready for a first attempt");
            self.put_away(LEASE, bad, WriteBatch::new()).await?;
        }
        Ok(rows)
    }

    /// Puts a page of marks that can't be read away, and what is known without it in its
    /// place: where something is stored or parked, the offset is settled.
    async fn replace_page(
        &self,
        subscribe: Subscribe,
        epoch: SubscriptionEpoch,
        number: u64,
        bad: Undecodable,
    ) -> Result<MarkPage> {
        let queue = subscribe.queue;
        let store = self.inner.store.as_ref();
        let mut page = MarkPage::default();
        let mut mark = |offset: Offset| {
            let (of, place) = MarkPage::locate(offset);
            if of == number {
                page.set(place);
            }
        };
        if subscribe.ordered {
            parked::for_each(store, queue, |(_, offset)| mark(offset)).await?;
        } else {
            let (rows, _) = lease::load_readable(store, queue, usize::MAX).await?;
            let rows = rows.iter().filter(|row| row.identity.epoch == epoch);
            rows.for_each(|row| mark(row.identity.offset));
        }
        tracing::error!(%queue, page = number, error = %bad.error, "a page of settled marks that can't be read went to quarantine; messages on it that were acknowledged are delivered again");
        let mut batch = WriteBatch::new();
        progress::put_page(&mut batch, queue, number, &page);
        self.put_away(PROGRESS, bad, batch).await?;
        Ok(page)
    }

    /// Moves a row into quarantine, together with what takes its place.
    async fn put_away(
        &self,
        keyspace: Keyspace,
        bad: Undecodable,
        mut batch: WriteBatch,
    ) -> Result<()> {
        let record = QuarantineRecord {
            reason: bad.error.to_string(),
            keyspace: keyspace.name().into(),
            key: bad.key,
            value: bad.value,
            at: self.inner.clock.wall(),
            group: None,
        };
        let sequence = self.inner.quarantine.next(self.inner.clock.lease());
        quarantine::put_away(&mut batch, sequence, keyspace, record);
        let store = self.inner.store.as_ref();
        store.write(batch, Durability::Buffered).await?;
        Ok(())
    }
}

/// A committed offset that the log no longer, or not yet, reaches is brought inside it.
fn clamp(queue: SubscriptionQueue, committed: Offset, bounds: LogBounds) -> Offset {
    if committed > bounds.end {
        tracing::error!(
            %queue,
            committed = committed.get(),
            log_end = bounds.end.get(),
            "the committed offset is above the end of the log; consumption goes on at the end"
        );
    }
    committed.min(bounds.end).max(bounds.start)
}
