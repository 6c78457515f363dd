//! What goes on by itself: sweeps, flushes, and giving up what is idle; and the end of it.

use std::{sync::Arc, time::Duration};

use futures::FutureExt;
use pop_model::{LogQueue, Offset};
use pop_store::{Error, ErrorKind, Result, StoreExt};

use crate::{CachedQueue, LeaseCache, LeaseQueue, RetrySink, ends::needs_reopen};

/// The most leases that are stored at once when a queue is given up or the cache closes.
const SPILL_AT_ONCE: usize = 4_096;
/// How soon offsets that are on their way are looked at again.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

impl<K: RetrySink> LeaseCache<K> {
    /// Runs until `stop` completes, or until the store must be opened anew.
    ///
    /// # Errors
    ///
    /// The error of a store that must be opened anew: this cache is void then.
    ///
    /// # Cancel safety
    ///
    /// Dropped in the middle, it leaves every lease in memory or with its outcome written,
    /// and may be run again. One at a time runs on a cache.
    pub async fn run(&self, stop: impl Future<Output = ()> + Send) -> Result<()> {
        let stop = stop.shared();
        let sweeps = self.sweep_all(stop.clone());
        let flushes = self.flush_all(stop.clone());
        let counts = self.count_all(stop.clone());
        let evictions = self.evict_all(stop);
        tokio::try_join!(sweeps, flushes, counts, evictions)?;
        Ok(())
    }

    /// Stores every lease and every acknowledgement. [`run`](Self::run) must have ended,
    /// and nothing be handed out meanwhile.
    ///
    /// # Errors
    ///
    /// The first of the store. What it refused is not stored; the rest is.
    pub async fn close(&self) -> Result<()> {
        let mut closed = Ok(());
        for cached in self.all_loaded() {
            match self.spill_all(&cached).await {
                Err(error) if needs_reopen(&error) => return Err(error),
                spilled => closed = closed.and(spilled),
            }
        }
        while !self.inner.dirty.lock().is_empty() {
            self.flush().await?;
        }
        self.inner.store.sync().await?;
        closed
    }

    /// Stores every lease of a queue, or as many as the store takes.
    async fn spill_all(&self, cached: &Arc<CachedQueue>) -> Result<()> {
        while self.spill(cached, SPILL_AT_ONCE).await? > 0 {}
        Ok(())
    }

    /// Stores the leases of all groups in a log queue, where one has an open offset below
    /// `below`: whoever looks at rows then finds what is out, and what becomes of it.
    ///
    /// # Errors
    ///
    /// The store's; unavailable where an outcome is being written for too long.
    pub async fn store_leases(&self, queue: LogQueue, below: Offset) -> Result<()> {
        for cached in self.all_loaded() {
            let is_open = |leases: &LeaseQueue| !leases.is_ordered() && leases.gate() < below;
            if cached.queue.log_queue() == queue && cached.look(is_open) {
                let limit = self.inner.options.wait_max;
                let stored = self.store_below(&cached, below);
                let stored = tokio::time::timeout(limit, stored).await;
                stored.unwrap_or_else(|_| Err(self.too_long(&cached)))?;
            }
        }
        Ok(())
    }

    async fn store_below(&self, cached: &Arc<CachedQueue>, below: Offset) -> Result<()> {
        loop {
            self.spill_all(cached).await?;
            // What is being handed over becomes a lease, and what is being written a row.
            if !cached.look(|leases| leases.is_moving_below(below)) {
                return Ok(());
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    fn too_long(&self, cached: &CachedQueue) -> Error {
        let detail = format!(
            "an outcome of {} is being written for too long",
            cached.queue
        );
        let store = self.inner.store.name();
        Error::new(ErrorKind::Unavailable, store, "store leases").with_detail(detail)
    }

    async fn evict_all(&self, stop: impl Future<Output = ()>) -> Result<()> {
        tokio::pin!(stop);
        let every = self.inner.options.idle_after / 4;
        loop {
            tokio::select! {
                biased;
                () = &mut stop => return Ok(()),
                () = tokio::time::sleep(every) => {}
            }
            for cached in self.all_loaded() {
                match self.evict_if_idle(&cached).await {
                    Err(error) if needs_reopen(&error) => return Err(error),
                    Err(error) => {
                        tracing::warn!(queue = %cached.queue, %error, "an idle queue stays in memory");
                    }
                    Ok(()) => {}
                }
            }
        }
    }

    /// Stores what an idle queue holds, and gives it up once the store has all of it.
    async fn evict_if_idle(&self, cached: &Arc<CachedQueue>) -> Result<()> {
        let now = self.inner.clock.lease();
        let idle_after = self.inner.options.idle_after;
        let idle = now.saturating_since(cached.state.lock().last_used);
        if idle < idle_after {
            return Ok(());
        }
        if !cached.look(LeaseQueue::is_ordered) {
            self.spill(cached, SPILL_AT_ONCE).await?;
        }
        self.evict(cached);
        Ok(())
    }
}
