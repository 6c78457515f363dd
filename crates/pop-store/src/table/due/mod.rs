//! When which shard has something due: shared by whoever writes deadlines and whoever
//! works them off. What a hint is, [`lease`](super::lease) says.

mod cursor;

use std::sync::Arc;

use parking_lot::Mutex;
use pop_model::{LeaseTime, ShardId};
use tokio::sync::Notify;

pub use cursor::DueCursor;

/// When which shard has something due. Cheap to clone.
#[derive(Clone, Debug)]
pub struct DueSchedule {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    cursors: Vec<Mutex<DueCursor>>,
    sooner: Notify,
}

impl DueSchedule {
    /// The schedule after a start; `floor` gives the stored floor of each shard.
    #[must_use]
    pub fn restore(mut floor: impl FnMut(ShardId) -> LeaseTime) -> Self {
        let cursors = ShardId::all().map(|shard| Mutex::new(DueCursor::restore(floor(shard))));
        Self {
            inner: Arc::new(Inner {
                cursors: cursors.collect(),
                sooner: Notify::new(),
            }),
        }
    }

    /// Announces a write that will put a hint for `deadline`. The ticket says which
    /// deadline to write, and must be told when the write has an outcome.
    pub fn announce(&self, shard: ShardId, deadline: LeaseTime) -> DueTicket {
        let deadline = self.cursor(shard).lock().announce(deadline);
        DueTicket {
            schedule: self.clone(),
            shard,
            deadline,
        }
    }

    /// The earliest moment at which any shard may have something due.
    #[must_use]
    pub fn earliest(&self) -> Option<LeaseTime> {
        let earliest = self
            .inner
            .cursors
            .iter()
            .map(|cursor| cursor.lock().earliest());
        earliest.flatten().min()
    }

    /// The shards that may have something due at `now`.
    #[must_use]
    pub fn due_shards(&self, now: LeaseTime) -> Vec<ShardId> {
        let due = |shard: &ShardId| {
            self.cursor(*shard)
                .lock()
                .earliest()
                .is_some_and(|at| at <= now)
        };
        ShardId::all().filter(due).collect()
    }

    /// Completes when something may be due sooner than anything known before the call
    /// that is waited on.
    pub async fn sooner(&self) {
        self.inner.sooner.notified().await;
    }

    /// Begins a pass over a shard and returns its floor: see [`DueCursor::begin_pass`].
    #[must_use]
    pub fn begin_pass(&self, shard: ShardId) -> LeaseTime {
        self.cursor(shard).lock().begin_pass()
    }

    /// Ends a pass and returns the floor to store: see [`DueCursor::end_pass`].
    pub fn end_pass(
        &self,
        shard: ShardId,
        cleared: LeaseTime,
        next: Option<LeaseTime>,
    ) -> LeaseTime {
        self.cursor(shard).lock().end_pass(cleared, next)
    }

    fn cursor(&self, shard: ShardId) -> &Mutex<DueCursor> {
        let cursor = self.inner.cursors.get(usize::from(shard.get()));
        cursor.expect("one cursor a shard is made at the start")
    }
}

/// An announced deadline. See [`DueSchedule::announce`].
///
/// Dropped without an outcome it stays announced: the floor then waits below it for the
/// rest of the run, which costs a longer scan and never a hint.
#[derive(Debug)]
#[must_use = "tell the ticket when its write has an outcome"]
pub struct DueTicket {
    schedule: DueSchedule,
    shard: ShardId,
    deadline: LeaseTime,
}

impl DueTicket {
    /// The deadline to write, in the row and in the hint.
    #[must_use]
    pub fn deadline(&self) -> LeaseTime {
        self.deadline
    }

    /// The write is committed, or is known to have had no effect. Call it once.
    pub fn landed(&self) {
        let sooner = {
            let mut cursor = self.schedule.cursor(self.shard).lock();
            let before = cursor.earliest();
            cursor.landed(self.deadline);
            before.is_none_or(|before| self.deadline < before)
        };
        if sooner {
            self.schedule.inner.sooner.notify_one();
        }
    }
}
