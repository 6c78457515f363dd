//! What a consumer does with a delivery, wherever it is: in memory, being written, or a row.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use pop_model::{Checkpoint, DeliveryIdentity, Mutant, QueueId, RetryKey, StoredKey, StoredValue};
use pop_store::{
    Durability, Error, ErrorKind, Outcome, WriteBatch,
    table::{LEASE, RETRY, lease},
};

use crate::{
    Ack, CacheError, CachedQueue, Change, LeaseCache, LeaseQueue, Result, RetrySink, task::to_end,
};

/// How often a compare-and-write is tried again when the row changes under it. Each change
/// is a renewal or a back-off, so more than a few mean that something is wrong.
pub(crate) const TRIES_MAX: usize = 16;

impl<K: RetrySink> LeaseCache<K> {
    /// Ends a delivery. `Buffered` answers at once and is synced with the next flush;
    /// `Synced` waits for that.
    ///
    /// # Errors
    ///
    /// [`CacheError::Over`] if the delivery is not this one any more,
    /// [`CacheError::Evicted`] if the queue must be looked up again, [`CacheError::Busy`] if
    /// the outcome of the delivery was being written for too long, or the store's.
    ///
    /// # Cancel safety
    ///
    /// Dropped, it drops only the answer, or did nothing.
    pub async fn ack(
        &self,
        cached: &Arc<CachedQueue>,
        identity: &DeliveryIdentity,
        durability: Durability,
    ) -> Result<()> {
        let acked = self
            .retried(cached, |leases| match leases.ack(identity) {
                Ack::Wait => None,
                other => Some(other),
            })
            .await?;
        match acked {
            Ack::Done(number) => {
                self.unblocked(cached);
                match durability {
                    Durability::Buffered => Ok(()),
                    Durability::Synced => self.until_durable(cached, number).await,
                }
            }
            Ack::Stored => self.ack_stored(identity, durability).await,
            Ack::Over | Ack::Wait => Err(CacheError::Over),
        }
    }

    /// Tells of what the end of a delivery makes possible: in an ordered queue, the next
    /// message of its group.
    pub(crate) fn unblocked(&self, cached: &Arc<CachedQueue>) {
        if cached.look(LeaseQueue::is_ordered) {
            self.wake(cached.queue);
        }
    }

    async fn until_durable(&self, cached: &Arc<CachedQueue>, ack: u64) -> Result<()> {
        let wait = async {
            loop {
                let changed = cached.changed.notified();
                tokio::pin!(changed);
                changed.as_mut().enable();
                let is_settled = {
                    let state = cached.state.lock();
                    // Of what was deleted nothing is left to wait for.
                    state.is_evicted || state.leases.acks_durable() >= ack
                };
                if is_settled {
                    return;
                }
                self.inner.flush_now.notify_one();
                changed.await;
            }
        };
        // It is done and not known to be synced: the next flush that the store takes syncs it.
        let limit = self.inner.options.wait_max;
        let waited = tokio::time::timeout(limit, wait).await;
        waited.map_err(|_| CacheError::Busy(cached.queue))
    }

    async fn ack_stored(&self, identity: &DeliveryIdentity, durability: Durability) -> Result<()> {
        if Mutant::SpillForgetsTheAck.is_on() {
            return Ok(());
        }
        for _ in 0..TRIES_MAX {
            let (row, checkpoint) = self.row(identity).await?;
            let mut batch = WriteBatch::new();
            lease::remove(&mut batch, row, &checkpoint);
            if identity.queue.queue == QueueId::RETRY {
                batch.delete(RETRY, retry_key(identity).encode());
            }
            match self.inner.store.write(batch, durability).await {
                Ok(()) => {
                    self.stored_ended(identity);
                    return Ok(());
                }
                Err(error) if error.kind() == ErrorKind::Conflict => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(CacheError::Busy(identity.queue))
    }

    /// Hides a delivery for `invisible_for` from now on. Its handles stay good: they name
    /// the delivery, not its deadline.
    ///
    /// # Errors
    ///
    /// As [`ack`](Self::ack).
    ///
    /// # Cancel safety
    ///
    /// Dropped, it drops only the answer, or did nothing.
    pub async fn change(
        &self,
        cached: &Arc<CachedQueue>,
        identity: &DeliveryIdentity,
        invisible_for: Duration,
        suspend: bool,
        durability: Durability,
    ) -> Result<()> {
        let now = self.inner.clock.lease();
        let changed = self
            .retried(cached, |leases| {
                match leases.change(identity, now, invisible_for, suspend) {
                    Change::Wait => None,
                    other => Some(other),
                }
            })
            .await?;
        match changed {
            Change::Changed(_) => Ok(()),
            Change::Stored => {
                self.change_stored(identity, invisible_for, suspend, durability)
                    .await
            }
            Change::Over | Change::Wait => Err(CacheError::Over),
        }
    }

    pub(crate) async fn change_stored(
        &self,
        identity: &DeliveryIdentity,
        invisible_for: Duration,
        suspend: bool,
        durability: Durability,
    ) -> Result<()> {
        let (cache, identity) = (self.clone(), *identity);
        let work = async move {
            let changed = cache.change_row(&identity, invisible_for, suspend, durability);
            changed.await
        };
        to_end(self.inner.store.as_ref(), work).await
    }

    async fn change_row(
        &self,
        identity: &DeliveryIdentity,
        invisible_for: Duration,
        suspend: bool,
        durability: Durability,
    ) -> Result<()> {
        for _ in 0..TRIES_MAX {
            let (row, before) = match self.row(identity).await {
                Err(CacheError::Over) if Mutant::ChangeRevivesTheDead.is_on() => {
                    return self.revive_the_dead(identity, invisible_for).await;
                }
                other => other?,
            };
            let now = self.inner.clock.lease();
            let ticket = self
                .inner
                .due
                .announce(identity.queue.shard(), now.saturating_add(invisible_for));
            let after = Checkpoint {
                popped_at: now,
                invisible_for,
                visible_at: ticket.deadline(),
                suspend: suspend || before.suspend,
                ..before.clone()
            };
            let mut batch = WriteBatch::new();
            if after.visible_at >= before.visible_at {
                lease::postpone(&mut batch, row, &after);
            } else {
                lease::replace(&mut batch, row, &after);
            }
            let outcome = self.inner.store.write(batch, durability).await;
            if outcome.as_ref().err().map(Error::outcome) != Some(Outcome::InDoubt) {
                ticket.landed();
            }
            match outcome {
                Ok(()) => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Conflict => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(CacheError::Busy(identity.queue))
    }

    /// Writes a row for a delivery that is over: a mutant.
    async fn revive_the_dead(
        &self,
        identity: &DeliveryIdentity,
        invisible_for: Duration,
    ) -> Result<()> {
        let now = self.inner.clock.lease();
        let visible_at = now.saturating_add(invisible_for);
        let ticket = self.inner.due.announce(identity.queue.shard(), visible_at);
        let row = Checkpoint {
            identity: *identity,
            popped_at: now,
            invisible_for,
            visible_at: ticket.deadline(),
            delivery_attempt: 1,
            revive_failures: 0,
            attempt_id: None,
            suspend: false,
            auto_renew: false,
            retry_kind: pop_model::RetryKind::Normal,
            message_group_hash: None,
            first_popped_at: now,
        };
        let mut batch = WriteBatch::new();
        lease::store(&mut batch, &row);
        self.inner.store.write(batch, Durability::Buffered).await?;
        ticket.landed();
        Ok(())
    }

    /// The row of exactly this delivery.
    pub(crate) async fn row(&self, identity: &DeliveryIdentity) -> Result<(Bytes, Checkpoint)> {
        let store = &self.inner.store;
        let row = store.get(LEASE, &identity.lease_key()).await?;
        let row = row.ok_or(CacheError::Over)?;
        match Checkpoint::decode(row.clone()) {
            Ok(checkpoint) if checkpoint.identity == *identity => Ok((row, checkpoint)),
            Ok(checkpoint) if Mutant::AckByOffsetAlone.is_on() => Ok((row, checkpoint)),
            // Another delivery of the same message.
            Ok(_) => Err(CacheError::Over),
            Err(error) => {
                let detail = format!(
                    "lease row of {}, offset {}: {error}",
                    identity.queue, identity.offset
                );
                let error = Error::new(ErrorKind::Corrupt, store.name(), "decode");
                Err(error.with_detail(detail).into())
            }
        }
    }

    /// Asks a queue until it does not say that an outcome is being written: for a bounded
    /// time, and woken by each outcome.
    ///
    /// A queue that was given up is not asked: what it would say or do is lost.
    pub(crate) async fn retried<T>(
        &self,
        cached: &Arc<CachedQueue>,
        mut ask: impl FnMut(&mut LeaseQueue) -> Option<T>,
    ) -> Result<T> {
        let mut ask = || {
            self.with_state(cached, |state| match state.is_evicted {
                true => Some(Err(CacheError::Evicted(cached.queue))),
                false => ask(&mut state.leases).map(Ok),
            })
        };
        // Hardly ever is an outcome being written, and a wait costs more than the answer.
        if let Some(answer) = ask() {
            return answer;
        }
        let asked = async {
            loop {
                let changed = cached.changed.notified();
                tokio::pin!(changed);
                changed.as_mut().enable();
                if let Some(answer) = ask() {
                    return answer;
                }
                changed.await;
            }
        };
        let limit = self.inner.options.wait_max;
        let answer = tokio::time::timeout(limit, asked).await;
        answer.unwrap_or(Err(CacheError::Busy(cached.queue)))
    }
}

fn retry_key(identity: &DeliveryIdentity) -> RetryKey {
    RetryKey {
        group: identity.queue.group,
        topic: identity.queue.topic,
        sequence: identity.offset.get(),
    }
}
