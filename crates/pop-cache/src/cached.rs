//! One queue in memory: its states behind a lock, and what orders its writes.
//!
//! The lock is held for a few hundred nanoseconds and never across an await. The *turn*
//! orders writes and guards nothing.

use std::sync::Arc;

use parking_lot::Mutex;
use pop_model::{LeaseTime, Offset, SubscriptionEpoch, SubscriptionQueue};
use tokio::sync::{Notify, Semaphore};

use crate::{LeaseQueue, count::Counting, group::GroupCount};

/// A queue that is in memory. Cheap to share; see [`LeaseCache`](crate::LeaseCache).
#[derive(Debug)]
pub struct CachedQueue {
    pub(crate) queue: SubscriptionQueue,
    pub(crate) state: Mutex<State>,
    /// Whose turn it is to write. Pages of marks are written whole, so the writes of one
    /// queue go one after another; those of other queues don't wait.
    pub(crate) turn: Arc<Semaphore>,
    /// Whose turn it is to read new messages of an ordered queue: which group a message
    /// belongs to is known once it was read, and must be known in order.
    pub(crate) read_turn: Semaphore,
    /// Told whenever outcomes became known.
    pub(crate) changed: Notify,
    /// Deliveries of the group that are out.
    pub(crate) of_group: Arc<GroupCount>,
}

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) leases: LeaseQueue,
    /// Its state was given up: whoever still holds it must look it up again.
    pub(crate) is_evicted: bool,
    /// When the sweep will look, if it will.
    pub(crate) scheduled: Option<LeaseTime>,
    /// It is on the list of what is to be flushed.
    pub(crate) is_listed: bool,
    /// The next outcomes are written one by one: a batch of several was refused.
    pub(crate) singly: bool,
    /// A receive was held back because too many deliveries are out.
    pub(crate) is_held_back: bool,
    /// Stored deliveries that are out. Can be below zero until they have been counted.
    pub(crate) stored: i64,
    /// While those from before the queue was loaded are being counted.
    pub(crate) counting: Option<Counting>,
    pub(crate) last_used: LeaseTime,
    /// What was last added to the totals.
    counted: Counted,
    in_flight_max: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counted {
    in_memory: i64,
    in_flight: i64,
}

/// What a change of a queue asks of the cache.
#[derive(Debug, Default)]
pub(crate) struct Follow {
    pub(crate) leases: i64,
    pub(crate) in_flight: i64,
    pub(crate) look: Option<LeaseTime>,
    pub(crate) list: bool,
    /// Receives of the queue are held back no longer.
    pub(crate) freed: bool,
}

impl State {
    fn new(leases: LeaseQueue, now: LeaseTime, in_flight_max: u64) -> Self {
        Self {
            // Rows of an ordered queue are of leases that are in memory, too.
            counting: (!leases.is_ordered()).then(Counting::default),
            leases,
            is_evicted: false,
            scheduled: None,
            is_listed: false,
            singly: false,
            is_held_back: false,
            stored: 0,
            last_used: now,
            counted: Counted::default(),
            in_flight_max,
        }
    }

    /// Begins anew after a reset: nothing is out.
    pub(crate) fn begin_anew(&mut self, epoch: SubscriptionEpoch, to: Offset) {
        self.leases.reset(epoch, to);
        self.stored = 0;
        self.counting = None;
        self.scheduled = None;
        self.singly = false;
    }

    /// Gives the state up: whoever still holds it must look the queue up again, and it
    /// counts no longer.
    pub(crate) fn give_up(&mut self) -> Follow {
        self.is_evicted = true;
        let gone = std::mem::take(&mut self.counted);
        Follow {
            leases: -gone.in_memory,
            in_flight: -gone.in_flight,
            ..Follow::default()
        }
    }

    /// The group counts these already.
    pub(crate) fn claimed(&mut self, count: u64) {
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        self.counted.in_flight = self.counted.in_flight.saturating_add(count);
    }

    /// A delivery is stored from here on.
    pub(crate) fn stored_begins(&mut self, offset: Offset) {
        self.stored += 1;
        if let Some(counting) = &mut self.counting {
            counting.began(offset);
        }
    }

    /// A stored delivery is over.
    pub(crate) fn stored_ends(&mut self, offset: Offset) {
        self.stored -= 1;
        if let Some(counting) = &mut self.counting {
            counting.ended(offset);
        }
    }

    /// Compares what is with what the cache was last told.
    pub(crate) fn follow(&mut self) -> Follow {
        if self.is_evicted {
            return Follow::default();
        }
        let counts = self.leases.counts();
        let in_memory = as_i64(counts.buffered + counts.staged);
        let in_flight = as_i64(counts.in_memory()) + self.stored;
        let mut follow = Follow {
            leases: in_memory - self.counted.in_memory,
            in_flight: in_flight - self.counted.in_flight,
            ..Follow::default()
        };
        self.counted = Counted {
            in_memory,
            in_flight,
        };
        if !self.is_listed && self.leases.is_dirty() {
            self.is_listed = true;
            follow.list = true;
        }
        if let Some(look) = self.leases.next_look()
            && self.scheduled.is_none_or(|scheduled| look < scheduled)
        {
            self.scheduled = Some(look);
            follow.look = Some(look);
        }
        if self.is_held_back && self.in_flight() < self.in_flight_max {
            self.is_held_back = false;
            follow.freed = true;
        }
        follow
    }

    /// Deliveries that are out, stored ones included.
    pub(crate) fn in_flight(&self) -> u64 {
        let in_flight = as_i64(self.leases.counts().in_memory()) + self.stored;
        u64::try_from(in_flight).unwrap_or(0)
    }
}

impl CachedQueue {
    pub(crate) fn new(
        leases: LeaseQueue,
        now: LeaseTime,
        in_flight_max: u64,
        of_group: Arc<GroupCount>,
    ) -> Self {
        Self {
            queue: leases.queue(),
            state: Mutex::new(State::new(leases, now, in_flight_max)),
            turn: Arc::new(Semaphore::new(1)),
            read_turn: Semaphore::new(1),
            changed: Notify::new(),
            of_group,
        }
    }

    /// Which queue this is.
    #[must_use]
    pub fn queue(&self) -> SubscriptionQueue {
        self.queue
    }

    /// Reads something of its state.
    pub fn look<T>(&self, read: impl FnOnce(&LeaseQueue) -> T) -> T {
        read(&self.state.lock().leases)
    }

    /// Deliveries that are out, stored ones included.
    #[must_use]
    pub fn in_flight(&self) -> u64 {
        self.state.lock().in_flight()
    }
}

fn as_i64(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
