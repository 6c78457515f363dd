//! How many sessions run at once.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::SnapshotRef;

/// The room for sessions. Clones share it, and nothing else does: what is to be bounded
/// together, as all that a process receives, is given clones of one.
#[derive(Clone, Debug)]
pub struct Admission {
    permits: Arc<Semaphore>,
    small_bytes: u64,
}

/// The room that one session takes, until it is dropped.
#[derive(Debug)]
pub(crate) struct Permit(#[expect(dead_code, reason = "held")] Option<OwnedSemaphorePermit>);

impl Admission {
    /// Lets so many sessions run at once, first come, first served.
    #[must_use]
    pub fn new(sessions: usize) -> Self {
        Self {
            permits: Arc::new(Semaphore::new(sessions)),
            small_bytes: 100 << 10,
        }
    }

    /// Waits for room. A snapshot that is known to be small does not have to.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the line.
    pub(crate) async fn enter(&self, at: &SnapshotRef) -> Permit {
        let small = at
            .totals
            .is_some_and(|totals| totals.bytes() <= self.small_bytes);
        if small {
            return Permit(None);
        }
        // It fails only once the semaphore is closed, which nothing does.
        Permit(Arc::clone(&self.permits).acquire_owned().await.ok())
    }

    /// How many sessions could begin now.
    #[must_use]
    pub fn free(&self) -> usize {
        self.permits.available_permits()
    }
}

impl Default for Admission {
    fn default() -> Self {
        Self::new(2)
    }
}
