//! What the handles, the writer and the readers of one store share.

use std::sync::{
    Arc, OnceLock, Weak,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

use parking_lot::{Mutex, RwLock};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::{OpenOptions, layout::Layout, snapshot::View};
use crate::{Capabilities, Error, ErrorKind, Keyspace, Result, WriteBatch};

// How many reads may wait for a reader; more wait in their callers.
const READS_MAX: usize = 1_024;

/// Shared state. It owns no channel end and no engine, so that holding it keeps nothing alive.
#[derive(Debug)]
pub(super) struct Core {
    pub(super) name: &'static str,
    pub(super) capabilities: Capabilities,
    pub(super) keyspaces: Arc<[Keyspace]>,
    /// Read while a space is being read, so that a publish, which takes it for writing,
    /// waits for the readers of the old generation before that is dropped.
    pub(super) layout: RwLock<Arc<Layout>>,
    pub(super) views: Mutex<Vec<Weak<View>>>,
    stopped: OnceLock<String>,
    closed: AtomicBool,
    stagings: AtomicU64,
    queue: Arc<Semaphore>,
    queue_bytes_max: u32,
    reads: Arc<Semaphore>,
}

impl Core {
    pub(super) fn new(
        name: &'static str,
        capabilities: Capabilities,
        layout: Layout,
        options: &OpenOptions,
    ) -> Self {
        let queue_bytes_max = options.queue_bytes_max.max(1);
        Self {
            name,
            capabilities,
            keyspaces: options.keyspaces.as_slice().into(),
            layout: RwLock::new(Arc::new(layout)),
            views: Mutex::default(),
            stopped: OnceLock::new(),
            closed: AtomicBool::new(false),
            stagings: AtomicU64::new(0),
            queue: Arc::new(Semaphore::new(
                usize::try_from(queue_bytes_max).unwrap_or(Semaphore::MAX_PERMITS),
            )),
            queue_bytes_max,
            reads: Arc::new(Semaphore::new(READS_MAX)),
        }
    }

    pub(super) fn error(&self, kind: ErrorKind, operation: &'static str) -> Error {
        Error::new(kind, self.name, operation)
    }

    /// Refuses once the store was poisoned or closed.
    pub(super) fn check(&self, operation: &'static str) -> Result<()> {
        match self.stopped.get() {
            None => Ok(()),
            Some(_) => Err(self.stopped_error(operation)),
        }
    }

    /// The error of every call after [`Core::stop`].
    pub(super) fn stopped_error(&self, operation: &'static str) -> Error {
        let reason = self
            .stopped
            .get()
            .map_or("the store stopped", String::as_str);
        self.error(ErrorKind::Poisoned, operation)
            .with_detail(reason)
    }

    /// Refuses every later call; the first reason stays. Those that wait for room in a
    /// queue are refused at once.
    pub(super) fn stop(&self, reason: impl Into<String>) {
        // Losing the race means that another reason stands.
        let _ = self.stopped.set(reason.into());
        self.queue.close();
        self.reads.close();
    }

    /// A number that no other staging of this store has.
    pub(super) fn next_staging_id(&self) -> u64 {
        // Only uniqueness matters, so nothing else is ordered by it.
        self.stagings.fetch_add(1, Ordering::Relaxed)
    }

    /// States that everything is durable and let go.
    pub(super) fn set_closed(&self) {
        self.closed.store(true, Ordering::Release);
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Waits for room for `batch` in the writer's queue.
    pub(super) async fn room_for(&self, batch: &WriteBatch) -> Result<OwnedSemaphorePermit> {
        // A batch of a few bytes costs its bookkeeping too, and an empty one must cost something.
        const KEY_COST: usize = 64;
        self.room(
            batch.byte_count() + KEY_COST * (batch.key_count() + 1),
            "write",
        )
        .await
    }

    /// Waits for room for `bytes` in the writer's queue.
    pub(super) async fn room(
        &self,
        bytes: usize,
        operation: &'static str,
    ) -> Result<OwnedSemaphorePermit> {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        Arc::clone(&self.queue)
            .acquire_many_owned(bytes.min(self.queue_bytes_max))
            .await
            .map_err(|_| self.stopped_error(operation))
    }

    /// Waits for room in the readers' queue.
    pub(super) async fn read_room(&self, operation: &'static str) -> Result<OwnedSemaphorePermit> {
        Arc::clone(&self.reads)
            .acquire_owned()
            .await
            .map_err(|_| self.stopped_error(operation))
    }

    /// The error of naming a keyspace that the store was not opened with.
    pub(super) fn check_keyspace(&self, keyspace: Keyspace, operation: &'static str) -> Result<()> {
        if self.keyspaces.contains(&keyspace) {
            return Ok(());
        }
        Err(self
            .error(ErrorKind::Invalid, operation)
            .with_detail(format!(
                "keyspace {keyspace} is not one this store was opened with"
            )))
    }
}
