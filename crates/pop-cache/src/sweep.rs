//! Works off what is due in memory, and stores what has stayed too long.
//!
//! All decisions of a sweep are started before any is awaited, each outcome is handled by
//! itself, and one queue never waits for another.

use std::{
    collections::{BTreeSet, HashSet},
    sync::Arc,
    task::Poll,
    time::Duration,
};

use futures::{
    Stream, StreamExt,
    future::{self, Either, OptionFuture, maybe_done},
    stream::FuturesUnordered,
};
use pop_model::{
    Checkpoint, DeliveryIdentity, Mutant, Offset, SubscriptionEpoch, SubscriptionQueue,
    revive_failure_backoff,
};
use pop_store::{Error, Outcome, Result, WriteBatch};

use crate::{
    CachedQueue, Decision, Keep, LeaseCache, LeaseQueue, RetrySink, Revival, RevivalKind,
    StagedLease, Why,
    ends::{End, batches, blames_the_batch, needs_reopen},
    sink::{decide_later, decide_now},
};

/// The most leases that one sweep of a queue stages.
const STAGED_MAX: usize = 512;
/// The most ends in one batch: each is a row and a hint, or a few more.
const ENDS_MAX: usize = 256;
/// How many batches of many ends are at the store at a time, of all queues: one is written
/// while the next waits. More would be written as one, and whoever sends meanwhile would
/// wait for all of them.
pub(crate) const BIG_WRITES_MAX: usize = 2;
/// With more ends than this a batch is one of many.
const SMALL_WRITE: usize = 32;

impl<K: RetrySink> LeaseCache<K> {
    /// Works off what is due until `stop` completes, and ends what it began.
    pub(crate) async fn sweep_all(&self, stop: impl Future<Output = ()>) -> Result<()> {
        tokio::pin!(stop);
        // What an earlier run took off the schedule and was dropped over.
        for cached in self.all_loaded() {
            self.reschedule(&cached);
        }
        let mut is_stopping = false;
        let mut jobs = FuturesUnordered::new();
        let mut busy: HashSet<SubscriptionQueue> = HashSet::new();
        loop {
            if is_stopping && jobs.is_empty() {
                return Ok(());
            }
            let due = if is_stopping {
                Vec::new()
            } else {
                self.take_due(&busy)
            };
            for cached in due {
                busy.insert(cached.queue);
                jobs.push(async move {
                    let outcome = self.sweep(&cached).await;
                    (cached, outcome)
                });
            }
            let wait = self.until_next_look();
            let ended = if jobs.is_empty() {
                Either::Left(std::future::pending())
            } else {
                Either::Right(jobs.next())
            };
            tokio::select! {
                biased;
                ended = ended => {
                    if let Some((cached, outcome)) = ended {
                        busy.remove(&cached.queue);
                        outcome?;
                        self.reschedule(&cached);
                    }
                }
                () = &mut stop, if !is_stopping => is_stopping = true,
                // What is due while it stops is left to the next run: a look that nobody takes
                // would be a wait of no length, again and again.
                () = self.inner.sooner.notified(), if !is_stopping => {}
                () = tokio::time::sleep(wait), if !is_stopping => {}
            }
        }
    }

    fn take_due(&self, busy: &HashSet<SubscriptionQueue>) -> Vec<Arc<CachedQueue>> {
        let now = self.inner.clock.lease();
        let mut due = BTreeSet::new();
        let mut looks = self.inner.looks.lock();
        while let Some(first) = looks.first().copied() {
            if first.0 > now {
                break;
            }
            looks.remove(&first);
            // What is being swept is scheduled anew at the end of it.
            if !busy.contains(&first.1) {
                due.insert(first.1);
            }
        }
        drop(looks);
        due.into_iter()
            .filter_map(|queue| self.loaded(queue))
            .collect()
    }

    fn until_next_look(&self) -> Duration {
        let next = self.inner.looks.lock().first().map(|(at, _)| *at);
        let idle_max = self.inner.options.idle_max;
        next.map_or(idle_max, |at| {
            at.saturating_since(self.inner.clock.lease()).min(idle_max)
        })
    }

    fn reschedule(&self, cached: &Arc<CachedQueue>) {
        cached.state.lock().scheduled = None;
        self.with(cached, |_| ());
    }

    /// Works off what is due in one queue now.
    async fn sweep(&self, cached: &Arc<CachedQueue>) -> Result<()> {
        loop {
            let now = self.inner.clock.lease();
            let staged = self.with_state(cached, |state| Staged {
                epoch: state.leases.epoch(),
                singly: std::mem::take(&mut state.singly),
                leases: state.leases.sweep(now, STAGED_MAX),
            });
            if staged.leases.is_empty() {
                return Ok(());
            }
            // What was refused is back in memory, and looked at again after a pause.
            self.settle_staged(cached, staged).await?;
        }
    }

    /// Stores what is in memory of a queue, whatever its time, up to `count` leases. Returns
    /// how many those were.
    ///
    /// # Errors
    ///
    /// The store's. What it refused is back in memory.
    pub(crate) async fn spill(&self, cached: &Arc<CachedQueue>, count: usize) -> Result<usize> {
        let now = self.inner.clock.lease();
        let mut staged = self.with(cached, |leases| Staged {
            epoch: leases.epoch(),
            singly: false,
            leases: leases.stage_early(now, count),
        });
        let spilled = staged.leases.len();
        // What is due is stored like the rest: whoever works off rows finds it at once.
        for lease in &mut staged.leases {
            lease.why = Why::Stayed;
        }
        match self.settle_staged(cached, staged).await? {
            None => Ok(spilled),
            Some(refused) => Err(refused),
        }
    }

    /// Brings staged leases to their ends. Whatever happens, none stays staged, unless the
    /// store must be opened anew. Returns the first refusal.
    async fn settle_staged(
        &self,
        cached: &Arc<CachedQueue>,
        staged: Staged,
    ) -> Result<Option<Error>> {
        let mut settling = Settling::new(self, cached, &staged);
        let (due, stayed): (Vec<_>, Vec<_>) = staged
            .leases
            .into_iter()
            .partition(|lease| lease.why == Why::Due);
        let stored = stayed
            .into_iter()
            .map(|lease| self.store_end(cached, lease.checkpoint));
        let stored = stored.collect();
        settling.commit(stored).await?;

        let limit = self.inner.options.decision_time_max;
        let sink = self.inner.sink.as_ref();
        let mut ends = Vec::with_capacity(due.len());
        let mut undecided = Vec::new();
        for StagedLease { checkpoint, .. } in due {
            match decide_now(sink, &checkpoint) {
                Some(decision) => match self.end(cached, checkpoint, decision) {
                    Some(end) => ends.push(end),
                    None => return Ok(settling.leave()),
                },
                None => undecided.push(checkpoint),
            }
        }
        let decisions = undecided.into_iter().map(|due| async move {
            let decision = decide_later(sink, &due, limit).await;
            (due, decision)
        });
        let mut decisions = begin_all(decisions).await.ready_chunks(ENDS_MAX);
        settling.commit(ends).await?;
        while let Some(decided) = decisions.next().await {
            let decided = decided.into_iter();
            let ends = decided.map(|(due, decision)| self.end(cached, due, decision));
            let Some(ends) = ends.collect() else {
                return Ok(settling.leave());
            };
            settling.commit(ends).await?;
        }
        Ok(settling.refused.take())
    }

    /// What a decision makes of a due lease. `None` only in a mutant.
    fn end(
        &self,
        cached: &CachedQueue,
        due: Box<Checkpoint>,
        decision: Decision<K::Token>,
    ) -> Option<End<K::Token>> {
        match decision {
            Ok(revival) => Some(self.decided(cached, due, revival)),
            Err(failure) if Mutant::OneFailureAbortsTheSweep.is_on() => {
                tracing::error!(%failure, "mutant: the sweep is given up");
                None
            }
            Err(failure) if Mutant::StagedClearedWhateverTheOutcome.is_on() => {
                tracing::error!(%failure, "mutant: nobody looks at the outcome");
                Some(End::Written {
                    offset: due.identity.offset,
                    writes: WriteBatch::new(),
                })
            }
            Err(failure) => Some(self.failed(cached, *due, &failure.to_string())),
        }
    }

    fn decided(
        &self,
        cached: &CachedQueue,
        due: Box<Checkpoint>,
        revival: Revival<K::Token>,
    ) -> End<K::Token> {
        match revival.kind {
            RevivalKind::Again(attempt) if cached.look(LeaseQueue::is_ordered) => {
                End::Kept(Keep::ready(*due, attempt))
            }
            RevivalKind::Again(_) => {
                let sink = &self.inner.sink;
                sink.unsettled(&due, revival.token, Outcome::Refused);
                self.failed(
                    cached,
                    *due,
                    "ready where it lies, in a queue without order",
                )
            }
            _ => End::Revived(due, revival),
        }
    }

    /// A lease that goes on as a row.
    pub(crate) fn store_end(
        &self,
        cached: &CachedQueue,
        mut checkpoint: Box<Checkpoint>,
    ) -> End<K::Token> {
        if cached.look(LeaseQueue::is_ordered) {
            return End::Kept(Keep::out(*checkpoint));
        }
        if Mutant::SpillRestartsTheDeadline.is_on() {
            checkpoint.visible_at = self
                .inner
                .clock
                .lease()
                .saturating_add(checkpoint.invisible_for);
        }
        // The index may lift the deadline to its floor; the row says the same.
        let ticket = self
            .inner
            .due
            .announce(checkpoint.identity.queue.shard(), checkpoint.visible_at);
        checkpoint.visible_at = ticket.deadline();
        End::Stored(checkpoint, ticket)
    }

    /// A lease whose revive failed: stored for later, or put away for good.
    fn failed(&self, cached: &CachedQueue, due: Checkpoint, failure: &str) -> End<K::Token> {
        let failures = due.revive_failures.saturating_add(1);
        let identity = due.identity;
        if failures > self.inner.options.failures_max {
            let reason = format!("its revive failed {failures} times, at last: {failure}");
            return End::Quarantined(Box::new(due), reason);
        }
        let delay = revive_failure_backoff(failures);
        tracing::warn!(queue = %identity.queue, offset = identity.offset.get(), failures, ?delay, %failure, "a revive failed; it is tried again");
        let now = self.inner.clock.lease();
        let delay = if Mutant::NoBackoff.is_on() {
            Duration::ZERO
        } else {
            delay
        };
        let later = Checkpoint {
            popped_at: now,
            invisible_for: delay,
            visible_at: now.saturating_add(delay),
            revive_failures: failures,
            ..due
        };
        self.store_end(cached, Box::new(later))
    }
}

/// Begins every decision before any is waited for.
async fn begin_all<F: Future>(decisions: impl Iterator<Item = F>) -> impl Stream<Item = F::Output> {
    let mut begun: Vec<_> = decisions
        .map(|decision| Box::pin(maybe_done(decision)))
        .collect();
    future::poll_fn(|context| {
        for decision in &mut begun {
            let _ = decision.as_mut().poll(context);
        }
        Poll::Ready(())
    })
    .await;
    let outcomes = begun.into_iter().map(|mut decision| async move {
        decision.as_mut().await;
        decision.as_mut().take_output()
    });
    let outcomes: FuturesUnordered<_> = outcomes.collect();
    outcomes.filter_map(std::future::ready)
}

/// What was staged together.
struct Staged {
    epoch: SubscriptionEpoch,
    /// Each end is written alone.
    singly: bool,
    leases: Vec<StagedLease>,
}

/// Staged leases on the way to their ends: dropped, those that nothing is written for are
/// back in memory, so that a panic or a cancelled sweep wedges none.
struct Settling<'a, K: RetrySink> {
    cache: &'a LeaseCache<K>,
    cached: &'a Arc<CachedQueue>,
    epoch: SubscriptionEpoch,
    singly: bool,
    open: Vec<Offset>,
    refused: Option<Error>,
}

impl<'a, K: RetrySink> Settling<'a, K> {
    fn new(cache: &'a LeaseCache<K>, cached: &'a Arc<CachedQueue>, staged: &Staged) -> Self {
        let identities = staged.leases.iter().map(|lease| lease.checkpoint.identity);
        Self {
            cache,
            cached,
            epoch: staged.epoch,
            singly: staged.singly,
            open: identities.map(|identity| identity.offset).collect(),
            refused: None,
        }
    }

    /// What the mutant does that gives up: all of them stay staged, for ever.
    fn leave(&mut self) -> Option<Error> {
        self.open.clear();
        None
    }

    /// Writes ends, each batch by itself.
    ///
    /// # Errors
    ///
    /// Only one after which the store must be opened anew.
    async fn commit(&mut self, ends: Vec<End<K::Token>>) -> Result<()> {
        let count = if self.singly { 1 } else { ENDS_MAX };
        let is_ordered = self.cached.look(LeaseQueue::is_ordered);
        for batch in batches(ends, count, is_ordered) {
            let decided = match batch.as_slice() {
                [End::Revived(due, _)] if self.singly => Some(due.identity),
                _ => None,
            };
            let Err(error) = self.write(batch).await else {
                continue;
            };
            if needs_reopen(&error) {
                // Nobody knows: they stay staged until the store was opened anew.
                self.open.clear();
                return Err(error);
            }
            tracing::warn!(queue = %self.cached.queue, %error, "ends of deliveries could not be written; they are tried again");
            // Asked about again and written alone, it was refused again: it is at fault.
            if let Some(identity) = decided.filter(|_| blames_the_batch(&error)) {
                self.back_off(&identity, &error).await?;
            }
            self.refused.get_or_insert(error);
        }
        Ok(())
    }

    /// The plan of a write answers for its ends from here on.
    async fn write(&mut self, ends: Vec<End<K::Token>>) -> Result<()> {
        let mut written: Vec<_> = ends.iter().map(End::offset).collect();
        written.sort_unstable();
        self.open
            .retain(|offset| written.binary_search(offset).is_err());
        let is_big = ends.len() > SMALL_WRITE;
        let room = &self.cache.inner.big_writes;
        let _room = OptionFuture::from(is_big.then(|| room.acquire())).await;
        self.cache.commit(self.cached, self.epoch, ends).await
    }

    /// A delivery whose decision the store won't take counts as one whose revive failed.
    async fn back_off(&mut self, identity: &DeliveryIdentity, error: &Error) -> Result<()> {
        let staged = self
            .cache
            .with(self.cached, |leases| leases.stage_one(identity));
        let Some(due) = staged else {
            return Ok(());
        };
        let failure = format!("what was decided can't be written: {error}");
        let end = self.cache.failed(self.cached, due, &failure);
        match self.write(vec![end]).await {
            Err(error) if needs_reopen(&error) => Err(error),
            _ => Ok(()),
        }
    }
}

impl<K: RetrySink> Drop for Settling<'_, K> {
    fn drop(&mut self) {
        if self.open.is_empty() {
            return;
        }
        let again = self.cache.inner.clock.lease();
        let epoch = self.epoch;
        self.cache.with(self.cached, |leases| {
            if leases.epoch() == epoch {
                for offset in self.open.drain(..) {
                    leases.unstage(offset, again);
                }
            }
        });
        self.cached.changed.notify_waiters();
    }
}
