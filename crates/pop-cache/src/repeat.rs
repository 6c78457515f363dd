//! A receive that is repeated because its answer was lost: its messages are read first, and
//! hidden anew once all of them were, so that a repeat that fails changes nothing.

use std::{sync::Arc, time::Duration};

use pop_model::Offset;

use crate::{CacheError, CachedQueue, Granted, LeaseCache, Result, RetrySink};

/// What was read of the deliveries that a receive got from one ordered queue.
#[derive(Debug)]
pub struct Reread<T> {
    /// Which queue.
    pub cached: Arc<CachedQueue>,
    /// What each of them is, in order.
    pub read: Vec<(Offset, T)>,
}

impl<K: RetrySink> LeaseCache<K> {
    /// What is out of an ordered queue of a receive with this name. One whose outcome is
    /// being written is waited for.
    ///
    /// # Errors
    ///
    /// [`CacheError::Busy`] when that takes too long; [`CacheError::Evicted`] when the queue
    /// must be looked up again.
    pub async fn out_of(&self, cached: &Arc<CachedQueue>, attempt_id: &str) -> Result<Vec<Offset>> {
        self.retried(cached, |leases| {
            let is_known = !leases.is_being_written(attempt_id);
            is_known.then(|| leases.named(attempt_id))
        })
        .await
    }

    /// Hides deliveries of a receive with this name anew, for whoever repeats the receive:
    /// all that are still out of `reread`, which names each queue once, or none at all.
    ///
    /// # Errors
    ///
    /// As [`out_of`](Self::out_of). Nothing has changed then.
    pub async fn repeat<T>(
        &self,
        attempt_id: &str,
        mut reread: Vec<Reread<T>>,
        invisible_for: Duration,
    ) -> Result<Vec<(Granted, T)>> {
        // Two repeats take the locks of their queues in one order.
        reread.sort_by_key(|of_queue| of_queue.cached.queue);
        loop {
            for of_queue in &reread {
                self.out_of(&of_queue.cached, attempt_id).await?;
            }
            if let Some(repeated) = self.repeat_now(attempt_id, &mut reread, invisible_for) {
                return repeated;
            }
        }
    }

    /// `None` if an outcome is being written.
    fn repeat_now<T>(
        &self,
        attempt_id: &str,
        reread: &mut Vec<Reread<T>>,
        invisible_for: Duration,
    ) -> Option<Result<Vec<(Granted, T)>>> {
        let now = self.inner.clock.lease();
        let queues: Vec<_> = reread.iter().map(|it| Arc::clone(&it.cached)).collect();
        let mut states: Vec<_> = queues.iter().map(|cached| cached.state.lock()).collect();
        if let Some(evicted) = states.iter().find(|state| state.is_evicted) {
            return Some(Err(CacheError::Evicted(evicted.leases.queue())));
        }
        let is_written = |leases: &crate::LeaseQueue| leases.is_being_written(attempt_id);
        if states.iter().any(|state| is_written(&state.leases)) {
            return None;
        }
        let mut repeated = Vec::new();
        let mut follows = Vec::with_capacity(states.len());
        for (state, of_queue) in states.iter_mut().zip(std::mem::take(reread)) {
            let leases = &mut state.leases;
            repeated.extend(leases.repeat(attempt_id, of_queue.read, now, invisible_for));
            follows.push(state.follow());
        }
        drop(states);
        for (cached, follow) in queues.iter().zip(follows) {
            self.follow(cached, follow);
        }
        Some(Ok(repeated))
    }
}
