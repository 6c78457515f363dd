//! Leases in memory, for those benches that are about them.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use pop_cache::{
    CacheOptions, Foundation, LeaseCache, LeaseQueue, Restored, RestoredParked, RetrySink, Revival,
    Run, SinkError, Terms,
};
use pop_model::{
    Checkpoint, DeliveryIdentity, Incarnation, LeaseTime, LogBounds, ManualClock, Offset,
    SubscriptionEpoch, WallTime,
};
use pop_store::{
    Durable, MemStore, Outcome, Store,
    table::{DueSchedule, KEYSPACES},
};

/// When everything begins.
pub const START: LeaseTime = LeaseTime::from_millis(1_000_000);

/// How long a lease stays in memory here: longer than any bench lasts.
pub const STAY: Duration = Duration::from_secs(3_600);

/// A log of this many messages.
#[must_use]
pub fn bounds(messages: u64) -> LogBounds {
    LogBounds {
        start: Offset::ZERO,
        end: Offset::new(messages),
    }
}

/// A queue that nobody has consumed.
#[must_use]
pub fn queue() -> LeaseQueue {
    let restored = Restored {
        queue: crate::checkpoint(0).identity.queue,
        epoch: SubscriptionEpoch::default(),
        committed: Offset::ZERO,
        pages: Vec::new(),
        ordered: None,
        parked: RestoredParked::default(),
        log_start: Offset::ZERO,
        log_end: Offset::new(u64::MAX),
        found_end: Offset::new(u64::MAX),
    };
    let run = Run {
        incarnation: Incarnation::new(1),
        previous: None,
        stay: STAY,
        held_max: usize::MAX,
    };
    LeaseQueue::restore(restored, run)
}

/// What a receive at the beginning asks for.
#[must_use]
pub fn terms(invisible_for: Duration) -> Terms<'static> {
    Terms {
        now: START,
        invisible_for,
        attempt: 1,
        attempt_id: None,
        auto_renew: false,
    }
}

/// Hands out `messages` in batches, and returns the deliveries.
pub fn identities(queue: &mut LeaseQueue, messages: u64, batch: usize) -> Vec<DeliveryIdentity> {
    let mut identities = Vec::with_capacity(usize::try_from(messages).unwrap_or(0));
    hand_out(
        queue,
        messages,
        batch,
        Duration::from_secs(30),
        |identity| {
            identities.push(identity);
        },
    );
    identities
}

/// Hands out `messages` in batches, each 1 ms after the one before.
pub fn hand_out(
    queue: &mut LeaseQueue,
    messages: u64,
    batch: usize,
    invisible_for: Duration,
    mut each: impl FnMut(DeliveryIdentity),
) {
    let mut round = 0;
    loop {
        let reservation = queue.reserve(batch, bounds(messages));
        if reservation.offsets.is_empty() {
            return;
        }
        let terms = Terms {
            now: START.saturating_add(Duration::from_millis(round / 32)),
            ..terms(invisible_for)
        };
        round += 1;
        for granted in queue.lease(reservation.epoch, &reservation.offsets, &terms) {
            each(granted.identity);
        }
    }
}

/// A cache on memory.
#[must_use]
pub fn cache() -> LeaseCache<NoRevive> {
    cache_on(Arc::new(MemStore::new(&KEYSPACES)))
}

/// A cache whose expired leases are nobody's business, and whose clock stands still.
#[must_use]
pub fn cache_on(store: Arc<dyn Store>) -> LeaseCache<NoRevive> {
    let mut options = CacheOptions::default();
    options.stay = STAY;
    cache_at(store, &clock(), options)
}

/// A clock that is moved by hand.
#[must_use]
pub fn clock() -> ManualClock {
    ManualClock::new(START, WallTime::from_unix_millis(0))
}

/// The same cache with a clock and options.
#[must_use]
pub fn cache_at(
    store: Arc<dyn Store>,
    clock: &ManualClock,
    options: CacheOptions,
) -> LeaseCache<NoRevive> {
    let on = Foundation {
        store,
        clock: Arc::new(clock.clone()),
        due: DueSchedule::restore(|_| LeaseTime::ZERO),
        quarantine: Arc::default(),
        sink: Arc::new(NoRevive),
        incarnation: Incarnation::new(1),
        previous: None,
    };
    LeaseCache::new(on, options)
}

/// Revives nothing.
#[derive(Debug)]
pub struct NoRevive;

#[async_trait]
impl RetrySink for NoRevive {
    type Token = ();

    async fn revive(&self, _due: &Checkpoint) -> Result<Revival<()>, SinkError> {
        Err("nothing expires here".into())
    }

    fn settled(&self, _due: &Checkpoint, _token: Durable<()>) {}

    fn unsettled(&self, _due: &Checkpoint, _token: (), _outcome: Outcome) {}
}
