//! Handing out: offsets that somebody is responsible for, until they are leases.

use std::{sync::Arc, time::Duration};

use pop_model::{DeliveryIdentity, LogBounds, Mutant, Offset, SubscriptionEpoch};
use pop_store::{Durability, WriteBatch};
use tokio::sync::SemaphorePermit;

use crate::{
    CacheError, CachedQueue, GiveBack, Granted, LeaseCache, Reservation, Result, RetrySink, Terms,
    cached::State, ends::End,
};

/// Reserved offsets that are somebody's responsibility: dropped, they are ready again.
#[derive(Debug)]
#[must_use = "dropped, the offsets are ready again"]
pub struct Reserved<K: RetrySink> {
    pub(crate) cache: LeaseCache<K>,
    pub(crate) cached: Arc<CachedQueue>,
    pub(crate) epoch: SubscriptionEpoch,
    offsets: Vec<Offset>,
}

impl<K: RetrySink> LeaseCache<K> {
    /// Sets aside up to `count` ready offsets for a receive.
    ///
    /// # Errors
    ///
    /// [`CacheError::Full`] when as many deliveries are out as are allowed;
    /// [`CacheError::Evicted`] when the queue must be looked up again.
    pub fn reserve(
        &self,
        cached: &Arc<CachedQueue>,
        count: usize,
        bounds: LogBounds,
    ) -> Result<Reserved<K>> {
        self.set_aside(cached, count, |leases, room| leases.reserve(room, bounds))
    }

    /// Sets aside the next batch of an ordered queue: consecutive messages of one message
    /// group, `after` the one that was tried before.
    ///
    /// # Errors
    ///
    /// As [`reserve`](Self::reserve).
    pub fn reserve_group(
        &self,
        cached: &Arc<CachedQueue>,
        count: usize,
        after: Option<Offset>,
    ) -> Result<Reserved<K>> {
        self.set_aside(cached, count, |leases, room| {
            leases.reserve_group(room, after)
        })
    }

    fn set_aside(
        &self,
        cached: &Arc<CachedQueue>,
        count: usize,
        reserve: impl FnOnce(&mut crate::LeaseQueue, usize) -> Reservation,
    ) -> Result<Reserved<K>> {
        let now = self.inner.clock.lease();
        let (reservation, follow) = {
            let mut state = cached.state.lock();
            if state.is_evicted {
                return Err(CacheError::Evicted(cached.queue));
            }
            state.last_used = now;
            let room = self.room(cached, &mut state, count)?;
            let reservation = reserve(&mut state.leases, room);
            (reservation, state.follow())
        };
        self.follow(cached, follow);
        Ok(Reserved {
            cache: self.clone(),
            cached: Arc::clone(cached),
            epoch: reservation.epoch,
            offsets: reservation.offsets,
        })
    }

    /// How many of `count` deliveries more may be out. With none, the queue is noted to be
    /// woken.
    fn room(&self, cached: &CachedQueue, state: &mut State, count: usize) -> Result<usize> {
        if Mutant::BoundIgnored.is_on() {
            return Ok(count);
        }
        let options = &self.inner.options;
        let full = |in_flight| CacheError::Full {
            queue: cached.queue,
            in_flight,
        };
        let in_flight = state.in_flight();
        let of_queue = options.in_flight_per_queue_max.saturating_sub(in_flight);
        if of_queue == 0 {
            state.is_held_back = true;
            return Err(full(in_flight));
        }
        let wanted = of_queue.min(u64::try_from(count).unwrap_or(u64::MAX));
        let max = options.in_flight_per_group_max;
        loop {
            // Taken before they are looked for: queues of a group share it.
            let claimed = cached.of_group.claim(wanted, max);
            if claimed > 0 || wanted == 0 {
                state.claimed(claimed);
                return Ok(usize::try_from(claimed).unwrap_or(count));
            }
            if cached.of_group.hold_back(cached.queue, max) {
                return Err(full(cached.of_group.in_flight()));
            }
        }
    }

    /// Takes back a delivery that reached nobody: ready again, its attempt not counted.
    ///
    /// # Errors
    ///
    /// [`CacheError::Over`] if it is over, or the store's: then its deadline brings it back.
    pub async fn give_back(&self, identity: &DeliveryIdentity) -> Result<()> {
        let given = match self.loaded(identity.queue) {
            Some(cached) => {
                self.retried(&cached, |leases| match leases.give_back(identity) {
                    GiveBack::Wait => None,
                    other => Some(other),
                })
                .await
            }
            // What is not in memory is all stored or over.
            None => Ok(GiveBack::Stored),
        };
        match given {
            Ok(GiveBack::Ready) => {
                self.wake(identity.queue);
                Ok(())
            }
            // Due at once, and not counted.
            Ok(GiveBack::Stored) | Err(CacheError::Evicted(_)) => {
                self.change_stored(identity, Duration::ZERO, true, Durability::Buffered)
                    .await
            }
            Ok(GiveBack::Over | GiveBack::Wait) => Err(CacheError::Over),
            Err(error) => Err(error),
        }
    }
}

impl<K: RetrySink> Reserved<K> {
    /// Which ones, ascending.
    #[must_use]
    pub fn offsets(&self) -> &[Offset] {
        &self.offsets
    }

    /// The epoch in which they were reserved.
    #[must_use]
    pub fn epoch(&self) -> SubscriptionEpoch {
        self.epoch
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.offsets.is_empty()
    }

    /// Passes some of them over: nothing lies there, or a filter wants none of it.
    pub fn skip(&mut self, offsets: &[Offset]) {
        if offsets.is_empty() {
            return;
        }
        self.forget(offsets);
        let epoch = self.epoch;
        let skipped = offsets.iter().copied();
        self.cache
            .with(&self.cached, |leases| leases.skip(epoch, skipped));
    }

    /// Makes leases of some of them. What is not in the answer was reset or acknowledged
    /// meanwhile, or could not be stored, and must not go out.
    ///
    /// With as many as [`CacheOptions::leases_max`](crate::CacheOptions::leases_max) leases
    /// in memory, as many of the queue's as are added are stored first, those that have been
    /// there longest; and where there are none, those that are added.
    ///
    /// # Errors
    ///
    /// [`CacheError::Full`] when none could be stored: no delivery has begun then. Or the
    /// store's, if it must be opened anew.
    ///
    /// # Cancel safety
    ///
    /// Dropped while leases are being stored, what is not stored is ready again; what is,
    /// its deadline brings back.
    pub async fn lease(&mut self, offsets: &[Offset], terms: &Terms<'_>) -> Result<Vec<Granted>> {
        // A row of an ordered queue takes no lease out of memory: what it holds is bounded
        // by `held_max`.
        let is_ordered = self.cached.look(crate::LeaseQueue::is_ordered);
        if is_ordered || self.cache.has_room(offsets.len()) {
            return Ok(self.lease_in_memory(offsets, terms));
        }
        self.lease_when_full(offsets, terms).await
    }

    pub(crate) fn lease_in_memory(
        &mut self,
        offsets: &[Offset],
        terms: &Terms<'_>,
    ) -> Vec<Granted> {
        self.forget(offsets);
        let epoch = self.epoch;
        self.cache
            .with(&self.cached, |leases| leases.lease(epoch, offsets, terms))
    }

    /// Settles some of them by a write of their own, such as a copy in quarantine. Refused,
    /// they are ready again.
    ///
    /// # Errors
    ///
    /// The store's.
    pub async fn settle(&mut self, offset: Offset, writes: WriteBatch) -> Result<()> {
        self.forget(&[offset]);
        let ends = vec![End::Written { offset, writes }];
        Ok(self.cache.commit(&self.cached, self.epoch, ends).await?)
    }

    pub(crate) fn forget(&mut self, offsets: &[Offset]) {
        if offsets.len() == self.offsets.len() {
            self.offsets.clear();
        } else {
            self.offsets.retain(|offset| !offsets.contains(offset));
        }
    }
}

impl<K: RetrySink> Drop for Reserved<K> {
    fn drop(&mut self) {
        if self.offsets.is_empty() {
            return;
        }
        let offsets = std::mem::take(&mut self.offsets);
        let epoch = self.epoch;
        self.cache
            .with(&self.cached, |leases| leases.release(epoch, offsets));
        // Whoever found nothing because they were set aside may have them.
        self.cache.wake(self.cached.queue);
    }
}

impl CachedQueue {
    /// Waits for the turn to read new messages of an ordered queue.
    pub async fn read_turn(&self) -> Option<SemaphorePermit<'_>> {
        self.read_turn.acquire().await.ok()
    }
}
