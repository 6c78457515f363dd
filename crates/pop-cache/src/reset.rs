//! Setting where a group goes on in a queue, whatever is out of it.

use std::sync::Arc;

use pop_model::{
    LeaseKey, MarkPageKey, Mutant, Offset, Progress, SubscriptionEpoch, SubscriptionRecord,
};
use pop_store::{
    Durability, WriteBatch,
    table::{LEASE, PROGRESS, meta, parked, progress},
};

use crate::{CacheError, CachedQueue, LeaseCache, Result, RetrySink, task::to_end};

impl<K: RetrySink> LeaseCache<K> {
    /// Sets where a queue's group goes on. What is out is void from then on, and so is
    /// whatever is being written of it. Synced.
    ///
    /// # Errors
    ///
    /// [`CacheError::Evicted`] when the queue must be looked up again, or the store's: then
    /// nothing has changed, unless the store must be opened anew.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops only the answer.
    pub async fn reset(&self, cached: &Arc<CachedQueue>, to: Offset) -> Result<()> {
        let (cache, queue) = (self.clone(), Arc::clone(cached));
        let work = async move { cache.write_reset(&queue, to).await };
        let is_reset = to_end(self.inner.store.as_ref(), work).await?;
        is_reset
            .then_some(())
            .ok_or(CacheError::Evicted(cached.queue))
    }

    /// Returns whether the queue was still in memory.
    async fn write_reset(&self, cached: &Arc<CachedQueue>, to: Offset) -> pop_store::Result<bool> {
        // A write that is running comes to its end first, and the next one finds the epoch.
        let Ok(_turn) = cached.turn.acquire().await else {
            return Ok(false);
        };
        let (ordered, before, is_evicted) = {
            let state = cached.state.lock();
            let leases = &state.leases;
            (leases.is_ordered(), leases.epoch(), state.is_evicted)
        };
        if is_evicted {
            return Ok(false);
        }
        let epoch = if Mutant::ResetKeepsTheEpoch.is_on() {
            before
        } else {
            before.next()
        };
        let batch = reset_batch(cached, epoch, to, ordered);
        self.inner.store.write(batch, Durability::Synced).await?;
        self.with_state(cached, |state| state.begin_anew(epoch, to));
        cached.changed.notify_waiters();
        self.wake(cached.queue);
        Ok(true)
    }
}

fn reset_batch(
    cached: &CachedQueue,
    epoch: SubscriptionEpoch,
    to: Offset,
    ordered: bool,
) -> WriteBatch {
    let queue = cached.queue;
    let mut batch = WriteBatch::new();
    let record = SubscriptionRecord { start: to, epoch };
    meta::put_subscription(&mut batch, queue, &record);
    if !Mutant::ResetKeepsMarks.is_on() {
        let (start, end) = MarkPageKey::queue_range(queue);
        batch.delete_range(PROGRESS, start, end);
    }
    let committed = Progress {
        committed: to,
        epoch,
    };
    progress::put(&mut batch, queue, &committed);
    // Other rows are void by their epoch, and go when they are due.
    if ordered {
        let (start, end) = LeaseKey::queue_range(queue);
        batch.delete_range(LEASE, start, end);
        parked::delete_all(&mut batch, queue);
    }
    batch
}
