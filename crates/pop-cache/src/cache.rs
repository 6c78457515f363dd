//! All queues in memory: looked up, loaded, bounded, and given up again.

use std::{
    collections::{BTreeSet, HashMap, VecDeque},
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
};

use parking_lot::Mutex;
use pop_model::{
    Clock, DeliveryIdentity, GroupId, Incarnation, LeaseTime, LogBounds, Mutant, Offset, Progress,
    StartPosition, SubscriptionQueue,
};
use pop_store::{
    Store,
    table::{DueSchedule, QuarantineSequence},
};
use tokio::sync::{Notify, OnceCell, Semaphore};

use crate::{
    CacheOptions, CachedQueue, LeaseQueue, Result, RetrySink, Run,
    cached::{Follow, State},
    closing::Closed,
    group::GroupCount,
    sweep::BIG_WRITES_MAX,
};

/// The leases of all subscription queues of one opened store.
///
/// Cheap to clone. [`run`](Self::run) must run beside it: it works off what is due and
/// makes acknowledgements durable.
#[derive(Debug)]
pub struct LeaseCache<K> {
    pub(crate) inner: Arc<Inner<K>>,
}

impl<K> Clone for LeaseCache<K> {
    fn clone(&self) -> Self {
        Self {
            inner: Arc::clone(&self.inner),
        }
    }
}

#[derive(Debug)]
pub(crate) struct Inner<K> {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) due: DueSchedule,
    pub(crate) quarantine: Arc<QuarantineSequence>,
    pub(crate) sink: Arc<K>,
    pub(crate) options: CacheOptions,
    pub(crate) run: Run,
    pub(crate) queues: Mutex<HashMap<SubscriptionQueue, Cell>>,
    pub(crate) closed: Mutex<Closed>,
    groups: Mutex<HashMap<GroupId, Arc<GroupCount>>>,
    /// Leases in memory, of all queues.
    pub(crate) leases: AtomicI64,
    /// When to sweep which queue.
    pub(crate) looks: Mutex<BTreeSet<(LeaseTime, SubscriptionQueue)>>,
    pub(crate) sooner: Notify,
    /// Who may write the ends of many deliveries.
    pub(crate) big_writes: Semaphore,
    /// What is to be flushed.
    pub(crate) dirty: Mutex<VecDeque<Arc<CachedQueue>>>,
    pub(crate) flush_wanted: Notify,
    pub(crate) flush_now: Notify,
    /// Whose stored deliveries are to be counted.
    pub(crate) uncounted: Mutex<VecDeque<Arc<CachedQueue>>>,
    pub(crate) count_wanted: Notify,
}

pub(crate) type Cell = Arc<OnceCell<Arc<CachedQueue>>>;

/// How a queue is consumed that may not have been consumed before.
#[derive(Clone, Copy, Debug)]
pub struct Subscribe {
    /// Which queue.
    pub queue: SubscriptionQueue,
    /// What its log holds.
    pub bounds: LogBounds,
    /// The end of its log when this run began, before anything was appended to it. See
    /// [`Restored::found_end`](crate::Restored::found_end).
    pub found_end: Offset,
    /// Where it starts if it was never consumed.
    pub start: StartPosition,
    /// Message groups are consumed in order.
    pub ordered: bool,
}

/// What a cache stands on.
#[derive(Debug)]
pub struct Foundation<K> {
    /// Where everything is stored.
    pub store: Arc<dyn Store>,
    /// Where time comes from.
    pub clock: Arc<dyn Clock>,
    /// Where deadlines are announced; shared with whoever works off stored deliveries.
    pub due: DueSchedule,
    /// Places for records that can't be worked on.
    pub quarantine: Arc<QuarantineSequence>,
    /// Where deliveries go when their time is up.
    pub sink: Arc<K>,
    /// This run: random, synced before the first hand-out.
    pub incarnation: Incarnation,
    /// The run before it.
    pub previous: Option<Incarnation>,
}

impl<K: RetrySink> LeaseCache<K> {
    /// A cache with nothing in it.
    #[must_use]
    pub fn new(on: Foundation<K>, options: CacheOptions) -> Self {
        Self {
            inner: Arc::new(Inner {
                run: Run {
                    incarnation: on.incarnation,
                    previous: on.previous,
                    stay: options.stay,
                    held_max: options.held_max,
                },
                store: on.store,
                clock: on.clock,
                due: on.due,
                quarantine: on.quarantine,
                sink: on.sink,
                options,
                queues: Mutex::default(),
                closed: Mutex::default(),
                groups: Mutex::default(),
                leases: AtomicI64::new(0),
                looks: Mutex::default(),
                sooner: Notify::new(),
                big_writes: Semaphore::new(BIG_WRITES_MAX),
                dirty: Mutex::default(),
                flush_wanted: Notify::new(),
                flush_now: Notify::new(),
                uncounted: Mutex::default(),
                count_wanted: Notify::new(),
            }),
        }
    }

    /// The options.
    #[must_use]
    pub fn options(&self) -> &CacheOptions {
        &self.inner.options
    }

    /// How many leases are in memory.
    #[must_use]
    pub fn lease_count(&self) -> u64 {
        u64::try_from(self.inner.leases.load(Ordering::Relaxed)).unwrap_or(0)
    }

    /// A queue that is in memory.
    #[must_use]
    pub fn loaded(&self, queue: SubscriptionQueue) -> Option<Arc<CachedQueue>> {
        self.inner.queues.lock().get(&queue)?.get().cloned()
    }

    /// Every queue that is in memory.
    #[must_use]
    pub fn all_loaded(&self) -> Vec<Arc<CachedQueue>> {
        let queues = self.inner.queues.lock();
        let mut loaded: Vec<_> = queues
            .values()
            .filter_map(|cell| cell.get().cloned())
            .collect();
        // One order for one content, so that one seed of a simulation is one run.
        loaded.sort_by_key(|cached| cached.queue);
        loaded
    }

    /// The queue, loaded if it is not in memory. Its first use makes the group subscribed:
    /// that is durable before anything is handed out.
    ///
    /// # Errors
    ///
    /// The store's.
    pub async fn subscribe(&self, subscribe: Subscribe) -> Result<Arc<CachedQueue>> {
        let cell = {
            let mut queues = self.inner.queues.lock();
            Arc::clone(queues.entry(subscribe.queue).or_default())
        };
        // One load at a time; whoever waits for it takes over if it is cancelled or fails.
        let cached = cell.get_or_try_init(|| self.load(subscribe)).await?;
        Ok(Arc::clone(cached))
    }

    pub(crate) fn of_group(&self, group: GroupId) -> Arc<GroupCount> {
        Arc::clone(self.inner.groups.lock().entry(group).or_default())
    }

    /// Changes the leases of a queue, and does what follows from the change.
    pub(crate) fn with<T>(
        &self,
        cached: &Arc<CachedQueue>,
        change: impl FnOnce(&mut LeaseQueue) -> T,
    ) -> T {
        self.with_state(cached, |state| change(&mut state.leases))
    }

    /// Changes a queue, and does what follows from the change.
    pub(crate) fn with_state<T>(
        &self,
        cached: &Arc<CachedQueue>,
        change: impl FnOnce(&mut State) -> T,
    ) -> T {
        let (result, follow) = {
            let mut state = cached.state.lock();
            let result = change(&mut state);
            (result, state.follow())
        };
        self.follow(cached, follow);
        result
    }

    pub(crate) fn follow(&self, cached: &Arc<CachedQueue>, follow: Follow) {
        let inner = &self.inner;
        // A bound that is looked at after a hand-out: nothing is ordered by it.
        if follow.leases != 0 {
            inner.leases.fetch_add(follow.leases, Ordering::Relaxed);
        }
        if let Some(look) = follow.look {
            let is_first = {
                let mut looks = inner.looks.lock();
                looks.insert((look, cached.queue));
                looks.first() == Some(&(look, cached.queue))
            };
            if is_first {
                inner.sooner.notify_one();
            }
        }
        if follow.list {
            inner.dirty.lock().push_back(Arc::clone(cached));
            inner.flush_wanted.notify_one();
        }
        if follow.freed {
            self.wake(cached.queue);
        }
        if follow.in_flight != 0 {
            let max = inner.options.in_flight_per_group_max;
            for queue in cached.of_group.add(follow.in_flight, max) {
                self.wake(queue);
            }
        }
    }

    /// Something of a queue may be handed out that could not be before.
    pub(crate) fn wake(&self, queue: SubscriptionQueue) {
        if !Mutant::WakeUpLost.is_on() {
            self.inner.sink.ready(queue);
        }
    }

    /// A row was written for a delivery that was in quarantine.
    pub fn stored_began(&self, began: &DeliveryIdentity) {
        let Some(cached) = self.loaded(began.queue) else {
            return;
        };
        self.with_state(&cached, |state| {
            if state.leases.epoch() == began.epoch {
                state.stored_begins(began.offset);
            }
        });
    }

    /// A stored delivery of a queue is over, and its row gone.
    pub fn stored_ended(&self, ended: &DeliveryIdentity) {
        let Some(cached) = self.loaded(ended.queue) else {
            return;
        };
        self.with_state(&cached, |state| {
            // One from before a reset is not counted any more.
            if state.leases.epoch() == ended.epoch {
                state.stored_ends(ended.offset);
            }
        });
    }

    /// Gives up the state of a queue, if the store has all of it. A receive that holds the
    /// queue finds out when it reserves: both look under one lock.
    pub(crate) fn evict(&self, cached: &Arc<CachedQueue>) -> bool {
        // Whoever has the turn is about to change what the store has.
        let Ok(_turn) = cached.turn.try_acquire() else {
            return false;
        };
        let follow = {
            let mut queues = self.inner.queues.lock();
            let mut state = cached.state.lock();
            if state.is_evicted || !state.leases.is_idle() {
                return false;
            }
            let follow = state.give_up();
            state.is_evicted = !Mutant::EvictionRacesAReceive.is_on();
            queues.remove(&cached.queue);
            follow
        };
        self.follow(cached, follow);
        true
    }

    /// What is stored of a queue's progress, given its epoch.
    pub(crate) fn progress(leases: &LeaseQueue, committed: Offset) -> Progress {
        Progress {
            committed,
            epoch: leases.epoch(),
        }
    }
}
