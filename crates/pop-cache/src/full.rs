//! What a receive does when memory holds as many leases as it may: it stores as many as it
//! adds, so that memory stays bounded and nobody is turned away.

use std::sync::Arc;

use crate::{
    CacheError, CachedQueue, GiveBack, Granted, LeaseCache, LeaseQueue, Result, RetrySink,
    ends::needs_reopen,
};

impl<K: RetrySink> LeaseCache<K> {
    pub(crate) fn is_within_leases_max(&self) -> bool {
        let max = self.inner.options.leases_max;
        usize::try_from(self.lease_count()).unwrap_or(usize::MAX) <= max
    }

    /// Stores as many leases of a queue as were just granted, before these go out.
    pub(crate) async fn write_through(
        &self,
        cached: &Arc<CachedQueue>,
        granted: Vec<Granted>,
    ) -> Result<Vec<Granted>> {
        // A row of an ordered queue takes no lease out of memory: what it holds is bounded
        // by `held_max`.
        if granted.is_empty() || cached.look(LeaseQueue::is_ordered) {
            return Ok(granted);
        }
        let count = granted.len();
        let mut granted = Ungiven {
            cache: self,
            cached,
            granted,
        };
        match self.spill(cached, count).await {
            Ok(_) => Ok(std::mem::take(&mut granted.granted)),
            Err(error) if needs_reopen(&error) => Err(error.into()),
            Err(error) => {
                tracing::warn!(queue = %cached.queue, %error, "memory is full of leases and none could be stored; a receive is turned away");
                granted.give_back().await;
                Err(CacheError::Full {
                    queue: cached.queue,
                    in_flight: cached.in_flight(),
                })
            }
        }
    }
}

/// Leases that nobody has been told of yet: dropped, they are given back.
struct Ungiven<'a, K: RetrySink> {
    cache: &'a LeaseCache<K>,
    cached: &'a Arc<CachedQueue>,
    granted: Vec<Granted>,
}

impl<K: RetrySink> Ungiven<'_, K> {
    /// Gives back those that are stored, too. All at once: each may have to wait for the same
    /// write, and the receive waits for all of them.
    async fn give_back(mut self) {
        let granted = std::mem::take(&mut self.granted);
        let given = granted.iter().map(|it| self.cache.give_back(&it.identity));
        for given in futures::future::join_all(given).await {
            if let Err(error) = given {
                tracing::debug!(queue = %self.cached.queue, %error, "its deadline brings a delivery back that reached nobody");
            }
        }
    }
}

impl<K: RetrySink> Drop for Ungiven<'_, K> {
    fn drop(&mut self) {
        if self.granted.is_empty() {
            return;
        }
        let given = self.cache.with(self.cached, |leases| {
            let given = self.granted.iter();
            let given = given.filter(|it| leases.give_back(&it.identity) == GiveBack::Ready);
            given.count()
        });
        if given > 0 {
            self.cache.wake(self.cached.queue);
        }
    }
}
