//! Makes acknowledgements durable: the marks of all queues that have some, in one write.

use std::{sync::Arc, time::Duration};

use futures::{FutureExt, future::join_all};
use pop_model::Mutant;
use pop_store::{Durability, Outcome, Result, StoreExt, WriteBatch};
use tokio::sync::OwnedSemaphorePermit;

use crate::{CachedQueue, LeaseCache, RetrySink, SettlePlan, ends::needs_reopen, task::to_end};

/// The most keys and bytes of one write of several queues. One plan alone stays far below
/// the store's limit.
const KEYS_MAX: usize = 500;
const BYTES_MAX: usize = 400 << 10;
const _: () = assert!(
    KEYS_MAX + SettlePlan::KEYS_MAX <= WriteBatch::KEYS_MAX
        && BYTES_MAX + SettlePlan::KEYS_MAX * 640 <= WriteBatch::BYTES_MAX,
    "what is not full yet has room for one plan more"
);

/// The plan of one queue, and its turn.
#[derive(Debug)]
struct Flushed {
    cached: Arc<CachedQueue>,
    turn: OwnedSemaphorePermit,
}

impl<K: RetrySink> LeaseCache<K> {
    /// Flushes what was acknowledged, every so often while there is something, until
    /// `stop` completes.
    pub(crate) async fn flush_all(&self, stop: impl Future<Output = ()>) -> Result<()> {
        tokio::pin!(stop);
        loop {
            tokio::select! {
                biased;
                () = &mut stop => return Ok(()),
                () = self.inner.flush_wanted.notified() => {}
            }
            // More come meanwhile, and share the sync.
            tokio::select! {
                biased;
                () = &mut stop => return Ok(()),
                () = self.inner.flush_now.notified() => {}
                () = tokio::time::sleep(self.inner.options.flush_every) => {}
            }
            if Mutant::FlushOnlyWithTraffic.is_on() && self.is_quiet() {
                continue;
            }
            // Whoever the last flush answered goes on first, and shares this one.
            tokio::task::yield_now().await;
            match self.flush().await {
                Err(error) if needs_reopen(&error) => return Err(error),
                Err(error) => {
                    tracing::warn!(%error, "acknowledgements could not be flushed; they are tried again");
                    tokio::time::sleep(self.inner.options.flush_every).await;
                    self.inner.flush_wanted.notify_one();
                }
                Ok(()) => {}
            }
        }
    }

    /// Whether nothing was received since the last flush: what the mutant looks at.
    fn is_quiet(&self) -> bool {
        let now = self.inner.clock.lease();
        let quiet = Duration::from_millis(1);
        let loaded = self.all_loaded();
        loaded
            .iter()
            .all(|cached| now.saturating_since(cached.state.lock().last_used) > quiet)
    }

    /// Makes everything durable that was acknowledged before the call.
    ///
    /// # Errors
    ///
    /// The store's. What was refused is flushed with the next one.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops only the answer.
    pub async fn flush(&self) -> Result<()> {
        let cache = self.clone();
        let work = async move { cache.flush_listed().await };
        to_end(self.inner.store.as_ref(), work).await
    }

    /// What is free goes in as few writes as it fits in. A queue whose turn another write
    /// has waits for it by itself, so that no queue waits for the writes of two others; the
    /// store syncs together what comes meanwhile.
    async fn flush_listed(&self) -> Result<()> {
        let mut writes = Vec::new();
        let mut write = FlushWrite::default();
        let mut planned = Ok(());
        let listed = self.inner.dirty.lock().len();
        for _ in 0..listed {
            let Some(cached) = self.inner.dirty.lock().pop_front() else {
                break;
            };
            match Arc::clone(&cached.turn).try_acquire_owned() {
                Ok(turn) => planned = planned.and(self.plan_flush(cached, turn, &mut write)),
                Err(_) => writes.push(self.flush_busy(cached).boxed()),
            }
            if write.is_full() {
                writes.push(self.write_flush(std::mem::take(&mut write)).boxed());
            }
        }
        writes.push(self.write_flush(write).boxed());
        let written = join_all(writes).await;
        written.into_iter().chain([planned]).fold(Ok(()), worse)
    }

    /// Flushes a queue once the write that has its turn has ended.
    async fn flush_busy(&self, cached: Arc<CachedQueue>) -> Result<()> {
        let Ok(turn) = Arc::clone(&cached.turn).acquire_owned().await else {
            return Ok(());
        };
        let mut write = FlushWrite::default();
        self.plan_flush(cached, turn, &mut write)?;
        self.write_flush(write).await
    }

    fn plan_flush(
        &self,
        cached: Arc<CachedQueue>,
        turn: OwnedSemaphorePermit,
        write: &mut FlushWrite,
    ) -> Result<()> {
        let plan = {
            let mut state = cached.state.lock();
            state.is_listed = false;
            let wanted = state.leases.is_dirty() && !state.is_evicted;
            wanted.then(|| state.leases.plan(Vec::new(), Vec::new()))
        };
        match plan {
            Some(Some(plan)) => {
                self.write_plan(&mut write.batch, &cached, &plan);
                write.plans.push(plan);
                write.flushed.push(Flushed { cached, turn });
                Ok(())
            }
            Some(None) => Err(self.never_ended(&cached)),
            None => Ok(()),
        }
    }

    async fn write_flush(&self, write: FlushWrite) -> Result<()> {
        if write.plans.is_empty() {
            return Ok(());
        }
        let FlushWrite {
            batch,
            plans,
            flushed,
        } = write;
        let store = &self.inner.store;
        match store.settle(plans, batch, Durability::Synced).await {
            Ok(settled) => {
                for (plan, Flushed { cached, turn }) in settled.into_each().zip(flushed) {
                    self.with(&cached, |leases| leases.settled(plan, Durability::Synced));
                    drop(turn);
                    cached.changed.notify_waiters();
                }
                Ok(())
            }
            Err(unsettled) => {
                if unsettled.error.outcome() == Outcome::Refused {
                    let now = self.inner.clock.lease();
                    for (plan, Flushed { cached, turn }) in unsettled.work.into_iter().zip(flushed)
                    {
                        self.with(&cached, |leases| leases.refused(plan, now));
                        drop(turn);
                    }
                }
                Err(unsettled.error)
            }
        }
    }
}

/// Of two ends the one to tell: an error, and before others one that ends this cache.
fn worse(one: Result<()>, other: Result<()>) -> Result<()> {
    match (&one, &other) {
        (Err(_), Ok(())) => one,
        (Err(first), Err(second)) if needs_reopen(first) || !needs_reopen(second) => one,
        _ => other,
    }
}

#[derive(Debug, Default)]
struct FlushWrite {
    batch: WriteBatch,
    plans: Vec<SettlePlan>,
    flushed: Vec<Flushed>,
}

impl FlushWrite {
    fn is_full(&self) -> bool {
        self.batch.key_count() >= KEYS_MAX || self.batch.byte_count() >= BYTES_MAX
    }
}
