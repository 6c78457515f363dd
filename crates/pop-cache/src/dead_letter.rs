//! A consumer gives a delivery up: its message goes to the dead-letter topic at once.

use std::sync::Arc;

use pop_model::{Checkpoint, DeliveryIdentity, Offset, SubscriptionEpoch};
use pop_store::{Durability, Error, ErrorKind, Outcome, StoreExt, WriteBatch, table::lease};

use crate::{
    CacheError, CachedQueue, Failure, LeaseCache, LeaseQueue, Result, RetrySink, Revival,
    RevivalKind, Taken,
    ends::{End, blames_the_batch},
    settle::TRIES_MAX,
    sink::outcome_of,
    task::to_end,
};

impl<K: RetrySink> LeaseCache<K> {
    /// Ends a delivery by giving its message to the sink's [`dead_letter`](RetrySink::dead_letter),
    /// in one batch with what the sink writes. `Synced` answers once that survives a power
    /// cut.
    ///
    /// A delivery that is ready again is over for this: it comes again, and can be given up
    /// then. In an ordered queue one whose message is done was given up already.
    ///
    /// # Errors
    ///
    /// As [`ack`](Self::ack), and [`CacheError::NotDeadLettered`] if the sink would not or
    /// could not. The delivery goes on then, as it does where the sink passes on what the
    /// store would not do, whatever the delivery: that is [`CacheError::Store`], as of any
    /// other call.
    ///
    /// # Cancel safety
    ///
    /// Dropped, it drops only the answer.
    pub async fn dead_letter(
        &self,
        cached: &Arc<CachedQueue>,
        identity: &DeliveryIdentity,
        durability: Durability,
    ) -> Result<()> {
        let (cache, cached, identity) = (self.clone(), Arc::clone(cached), *identity);
        let work = async move {
            let taken = cache.retried(&cached, |leases| match leases.take(&identity) {
                Taken::Wait => None,
                other => Some((leases.epoch(), other)),
            });
            match taken.await? {
                (epoch, Taken::Staged(due)) => cache.end_staged(&cached, epoch, due).await?,
                (_, Taken::Stored) => cache.end_row(&identity).await?,
                // It was given up before, and the answer was lost: a client that is told
                // anything else asks for ever.
                (_, Taken::Settled) => {}
                (_, Taken::Over | Taken::Wait) => return Err(CacheError::Over),
            }
            if durability == Durability::Synced {
                cache.inner.store.sync().await?;
            }
            Ok(())
        };
        to_end(self.inner.store.as_ref(), work).await
    }

    async fn end_staged(
        &self,
        cached: &Arc<CachedQueue>,
        epoch: SubscriptionEpoch,
        due: Box<Checkpoint>,
    ) -> Result<()> {
        let staged = StagedAlone {
            cache: self,
            cached,
            epoch,
            offset: Some(due.identity.offset),
        };
        let revival = self.given_up(&due).await?;
        // The plan of the write answers for it from here on.
        staged.written();
        let identity = due.identity;
        let written = self.commit(cached, epoch, vec![End::Revived(due, revival)]);
        written.await.map_err(|error| refused(&identity, error))?;
        // A reset made it void, and nothing was written.
        match cached.look(LeaseQueue::epoch) == epoch {
            true => Ok(()),
            false => Err(CacheError::Over),
        }
    }

    async fn end_row(&self, identity: &DeliveryIdentity) -> Result<()> {
        for _ in 0..TRIES_MAX {
            let (row, due) = self.row(identity).await?;
            let revival = self.given_up(&due).await?;
            let mut batch = WriteBatch::new();
            lease::remove(&mut batch, row, &due);
            batch.append(revival.writes);
            let written = self
                .inner
                .store
                .settle(revival.token, batch, Durability::Buffered);
            match written.await {
                Ok(token) => {
                    self.inner.sink.settled(&due, token);
                    self.stored_ended(identity);
                    return Ok(());
                }
                Err(unsettled) => {
                    let outcome = unsettled.error.outcome();
                    self.inner.sink.unsettled(&due, unsettled.work, outcome);
                    if unsettled.error.kind() != ErrorKind::Conflict {
                        return Err(unsettled.error.into());
                    }
                }
            }
        }
        Err(CacheError::Busy(identity.queue))
    }

    /// What the sink makes of a delivery that its consumer gave up.
    async fn given_up(&self, due: &Checkpoint) -> Result<Revival<K::Token>> {
        let limit = self.inner.options.decision_time_max;
        let sink = self.inner.sink.as_ref();
        let not_done = |reason| not_done(&due.identity, reason);
        let decided = outcome_of(async { sink.dead_letter(due).await }, limit).await;
        let revival = decided.map_err(|failure| match of_the_store(failure) {
            Ok(error) => error.into(),
            Err(failure) => not_done(failure.to_string()),
        })?;
        match revival.kind {
            RevivalKind::DeadLettered | RevivalKind::Gone => Ok(revival),
            RevivalKind::Retried | RevivalKind::Again(_) => {
                sink.unsettled(due, revival.token, Outcome::Refused);
                Err(not_done("it would be delivered again".into()))
            }
        }
    }
}

/// What the sink passed on of the store, unless it is a matter of this delivery alone: a
/// store that takes nothing now, or must be opened anew, is so for whoever comes.
fn of_the_store(failure: Failure) -> Result<Error, Failure> {
    match failure {
        Failure::Error(error) => match error.downcast::<Error>() {
            Ok(error) if blames_the_batch(&error) || error.kind() == ErrorKind::Corrupt => {
                Err(Failure::Error(error))
            }
            Ok(error) => Ok(*error),
            Err(error) => Err(Failure::Error(error)),
        },
        failure => Err(failure),
    }
}

fn not_done(of: &DeliveryIdentity, reason: String) -> CacheError {
    CacheError::NotDeadLettered {
        queue: of.queue,
        offset: of.offset,
        reason,
    }
}

/// Where what the sink requires does not hold, nothing was written, and the delivery goes on.
fn refused(of: &DeliveryIdentity, error: Error) -> CacheError {
    match error.kind() {
        ErrorKind::Conflict => not_done(of, error.to_string()),
        _ => error.into(),
    }
}

/// One staged lease that nothing is written for yet. Dropped, it is in memory again.
struct StagedAlone<'a, K: RetrySink> {
    cache: &'a LeaseCache<K>,
    cached: &'a Arc<CachedQueue>,
    epoch: SubscriptionEpoch,
    offset: Option<Offset>,
}

impl<K: RetrySink> StagedAlone<'_, K> {
    fn written(mut self) {
        self.offset = None;
    }
}

impl<K: RetrySink> Drop for StagedAlone<'_, K> {
    fn drop(&mut self) {
        let Some(offset) = self.offset else {
            return;
        };
        let again = self.cache.inner.clock.lease();
        self.cache.with(self.cached, |leases| {
            if leases.epoch() == self.epoch {
                leases.unstage(offset, again);
            }
        });
        self.cached.changed.notify_waiters();
    }
}
