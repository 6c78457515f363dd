//! The store of one life of the broker: opened again after a failure, until the power goes.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use parking_lot::Mutex;
use pop_broker::OpenStore;
use pop_store::{
    Durability, Error, ErrorKind, MemStore, Store, WriteBatch,
    testkit::{FaultStore, Faults},
};

/// How long what is written `Buffered` stays unsynced, as the engines have it.
pub const SYNC_EVERY: Duration = Duration::from_millis(50);

/// A content in memory under one process.
#[derive(Debug)]
pub(super) struct Life {
    store: Mutex<FaultStore<MemStore>>,
    faults: Faults,
    opens: AtomicU64,
    // What a power cut left, once somebody looked.
    remains: Mutex<Option<MemStore>>,
    over: AtomicBool,
}

impl Life {
    pub(super) fn new(content: MemStore, faults: Faults) -> Arc<Self> {
        let life = Arc::new(Self {
            store: Mutex::new(FaultStore::crashable(content, faults.clone())),
            faults,
            opens: AtomicU64::new(0),
            remains: Mutex::new(None),
            over: AtomicBool::new(false),
        });
        let syncing = Arc::downgrade(&life);
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(SYNC_EVERY).await;
                let Some(life) = syncing.upgrade() else {
                    return;
                };
                let rows = life.rows();
                if rows.unsynced_count() > 0 {
                    // A store that was closed or lost its power has nothing left to sync.
                    let _ = rows.write(WriteBatch::new(), Durability::Synced).await;
                }
            }
        });
        life
    }

    /// How often the broker opened it.
    pub(super) fn opens(&self) -> u64 {
        self.opens.load(Ordering::Relaxed)
    }

    /// The rows themselves, past the faults.
    pub(super) fn rows(&self) -> MemStore {
        self.store.lock().inner().clone()
    }

    /// Whether the power went in the middle of a call.
    pub(super) fn has_lost_power(&self) -> bool {
        self.look_for_remains();
        self.remains.lock().is_some()
    }

    /// Ends it: the power goes, if it is not gone already, and the first `keep` unsynced
    /// writes survive. Returns what is left.
    pub(super) fn end(&self, keep: usize) -> MemStore {
        self.look_for_remains();
        self.over.store(true, Ordering::Relaxed);
        let remains = self.remains.lock().take();
        remains.unwrap_or_else(|| self.store.lock().crash(keep))
    }

    fn look_for_remains(&self) {
        if let Some(remains) = self.store.lock().take_crashed() {
            self.over.store(true, Ordering::Relaxed);
            *self.remains.lock() = Some(remains);
        }
    }
}

#[async_trait]
impl OpenStore for Life {
    async fn open(&self) -> pop_store::Result<Arc<dyn Store>> {
        self.look_for_remains();
        if self.over.load(Ordering::Relaxed) {
            return Err(Error::new(ErrorKind::Locked, "memory", "open"));
        }
        self.opens.fetch_add(1, Ordering::Relaxed);
        let mut store = self.store.lock();
        // The process lives on: everything that was written is there.
        let content = store.crash(usize::MAX);
        *store = FaultStore::crashable(content, self.faults.clone());
        Ok(Arc::new(store.clone()))
    }
}
