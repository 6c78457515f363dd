//! What a receive does when memory holds as many leases as it may: it stores as many as it
//! adds, so that memory stays bounded and nobody is turned away.
//!
//! A delivery begins with its lease in memory or its row in the store, and not before: what
//! the store refuses is a reserved offset still, so that no attempt of it counts.

use pop_model::Offset;
use pop_store::Error;

use crate::{
    CacheError, CachedQueue, Granted, LeaseCache, LeaseQueue, Result, RetrySink, Terms,
    ends::{End, batches, needs_reopen},
    hand_out::Reserved,
};

impl<K: RetrySink> LeaseCache<K> {
    /// Whether `count` leases more may be in memory.
    pub(crate) fn has_room(&self, count: usize) -> bool {
        let leases = usize::try_from(self.lease_count()).unwrap_or(usize::MAX);
        leases.saturating_add(count) <= self.inner.options.leases_max
    }
}

impl<K: RetrySink> Reserved<K> {
    pub(crate) async fn lease_when_full(
        &mut self,
        offsets: &[Offset],
        terms: &Terms<'_>,
    ) -> Result<Vec<Granted>> {
        let freed = match self.cache.spill(&self.cached, offsets.len()).await {
            Ok(freed) => freed,
            Err(error) => return Err(turned_away(&self.cached, error)),
        };
        let (in_memory, as_rows) = offsets.split_at(freed.min(offsets.len()));
        let (stored, refused) = self.lease_as_rows(as_rows, terms).await;
        let is_empty = in_memory.is_empty() && stored.is_empty();
        if let Some(error) = refused.filter(|error| needs_reopen(error) || is_empty) {
            return Err(turned_away(&self.cached, error));
        }
        let mut granted = self.lease_in_memory(in_memory, terms);
        granted.extend(stored);
        Ok(granted)
    }

    /// Returns those that began, and why others did not: they are ready again.
    async fn lease_as_rows(
        &mut self,
        offsets: &[Offset],
        terms: &Terms<'_>,
    ) -> (Vec<Granted>, Option<Error>) {
        let epoch = self.epoch;
        let rows = self.cache.with(&self.cached, |leases| {
            leases.lease_as_rows(epoch, offsets, terms)
        });
        self.forget(offsets);
        let (cache, cached) = (&self.cache, &self.cached);
        let ends = rows
            .into_iter()
            .map(|row| cache.store_end(cached, Box::new(row)));
        let mut stored = Vec::with_capacity(offsets.len());
        let is_ordered = cached.look(LeaseQueue::is_ordered);
        for batch in batches(ends.collect(), usize::MAX, is_ordered) {
            let batch_granted: Vec<_> = batch.iter().filter_map(granted).collect();
            if let Err(error) = cache.commit(cached, epoch, batch).await {
                return (stored, Some(error));
            }
            // After a reset nothing of it was written, or all of it is void.
            if cached.look(LeaseQueue::epoch) == epoch {
                stored.extend(batch_granted);
            }
        }
        (stored, None)
    }
}

fn granted<T>(end: &End<T>) -> Option<Granted> {
    match end {
        End::Stored(row, _) => Some(Granted {
            identity: row.identity,
            attempt: row.delivery_attempt,
        }),
        _ => None,
    }
}

fn turned_away(cached: &CachedQueue, error: Error) -> CacheError {
    if needs_reopen(&error) {
        return error.into();
    }
    tracing::warn!(queue = %cached.queue, %error, "memory is full of leases and none could be stored; a receive is turned away");
    CacheError::Full {
        queue: cached.queue,
        in_flight: cached.in_flight(),
    }
}
