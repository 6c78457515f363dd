//! Counts the deliveries of a queue that were stored before it was loaded, so that the
//! bounds on what is out hold after a restart, too.
//!
//! The rows are read while deliveries come and go. What began or ended meanwhile is known
//! by its offset and left out of what was read, so that nothing is counted twice.

use std::{collections::HashSet, sync::Arc, time::Duration};

use pop_model::{Checkpoint, LeaseKey, Offset, StoredValue, SubscriptionEpoch};
use pop_store::{Error, Result, Scan, StoreExt, table::LEASE};

use crate::{CachedQueue, LeaseCache, LeaseQueue, RetrySink, ends::needs_reopen};

/// How long to wait after a count that failed.
const PAUSE: Duration = Duration::from_secs(1);
/// The most rows that are read at once.
const ROWS_AT_ONCE: usize = 1_024;

/// What changed while the rows of a queue are being counted.
#[derive(Debug, Default)]
pub(crate) struct Counting {
    began: HashSet<Offset>,
    ended: HashSet<Offset>,
}

impl Counting {
    pub(crate) fn began(&mut self, offset: Offset) {
        self.began.insert(offset);
    }

    pub(crate) fn ended(&mut self, offset: Offset) {
        self.ended.insert(offset);
    }

    /// How many deliveries are stored, given those whose rows were read.
    fn stored(&self, mut read: HashSet<Offset>) -> i64 {
        read.extend(&self.began);
        let stored = read.difference(&self.ended).count();
        i64::try_from(stored).unwrap_or(i64::MAX)
    }
}

impl<K: RetrySink> LeaseCache<K> {
    /// Has the stored deliveries of a queue counted.
    pub(crate) fn count_later(&self, cached: &Arc<CachedQueue>) {
        if cached.state.lock().counting.is_some() {
            self.inner.uncounted.lock().push_back(Arc::clone(cached));
            self.inner.count_wanted.notify_one();
        }
    }

    /// Counts whatever is loaded until `stop` completes.
    pub(crate) async fn count_all(&self, stop: impl Future<Output = ()>) -> Result<()> {
        tokio::pin!(stop);
        loop {
            let next = self.inner.uncounted.lock().pop_front();
            let Some(cached) = next else {
                tokio::select! {
                    biased;
                    () = &mut stop => return Ok(()),
                    () = self.inner.count_wanted.notified() => continue,
                }
            };
            let counted = tokio::select! {
                biased;
                () = &mut stop => return Ok(()),
                counted = self.count_stored(&cached) => counted,
            };
            match counted {
                Ok(()) => {}
                Err(error) if needs_reopen(&error) => return Err(error),
                Err(error) => {
                    tracing::warn!(queue = %cached.queue, %error, "the stored deliveries of a queue could not be counted; it is tried again");
                    self.inner.uncounted.lock().push_back(cached);
                    tokio::select! {
                        biased;
                        () = &mut stop => return Ok(()),
                        () = tokio::time::sleep(PAUSE) => {}
                    }
                }
            }
        }
    }

    async fn count_stored(&self, cached: &Arc<CachedQueue>) -> Result<()> {
        let epoch = cached.look(LeaseQueue::epoch);
        let read = self.read_stored(cached, epoch).await?;
        // With the turn, no delivery is stored that is not known to be.
        let Ok(_turn) = cached.turn.acquire().await else {
            return Ok(());
        };
        self.with_state(cached, |state| {
            // Not after a reset: what is stored is void then.
            if let Some(counting) = state.counting.take() {
                state.stored = counting.stored(read);
            }
        });
        Ok(())
    }

    async fn read_stored(
        &self,
        cached: &CachedQueue,
        epoch: SubscriptionEpoch,
    ) -> Result<HashSet<Offset>> {
        let (start, end) = LeaseKey::queue_range(cached.queue);
        let scan = Scan::range(start, end).with_entries_max(ROWS_AT_ONCE);
        let mut stored = HashSet::new();
        self.inner
            .store
            .for_each_page(LEASE, scan, |entries| {
                let rows = entries
                    .into_iter()
                    .filter_map(|entry| Checkpoint::decode(entry.value).ok());
                let rows = rows.filter(|row| row.identity.epoch == epoch);
                stored.extend(rows.map(|row| row.identity.offset));
                Ok::<_, Error>(true)
            })
            .await?;
        Ok(stored)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_begins_and_ends_during_a_count_is_counted_once() {
        let offsets = |offsets: &[u64]| offsets.iter().copied().map(Offset::new).collect();
        let mut counting = Counting::default();
        // Stored before and over, stored meanwhile and read, meanwhile and not read, and
        // both.
        counting.ended(Offset::new(1));
        counting.began(Offset::new(5));
        counting.began(Offset::new(6));
        counting.began(Offset::new(7));
        counting.ended(Offset::new(7));
        // Mutant: the rows that were read are added to what changed; 6 would be 7.
        assert_eq!(counting.stored(offsets(&[1, 2, 3, 5, 7])), 4);
    }
}
