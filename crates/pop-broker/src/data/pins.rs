//! The snapshots that are kept for peers: how many, and since when.
//!
//! A pin lasts as long as anybody holds the snapshot, whatever way it is held, so that the
//! count is exact and the age is that of what the store really keeps.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use pop_store::{Entry, Estimate, Keyspace, Result, Rows, Scan, Snapshot};
use tokio::{sync::Notify, time::Instant};

/// The room for snapshots.
#[derive(Debug)]
pub(super) struct Pins {
    max: usize,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    taken: Mutex<Taken>,
    freed: Notify,
}

#[derive(Debug, Default)]
struct Taken {
    next: u64,
    // By the order in which they were taken.
    since: BTreeMap<u64, Instant>,
}

/// The room of one snapshot, until it is dropped.
#[derive(Debug)]
pub(super) struct Slot {
    shared: Arc<Shared>,
    number: u64,
}

/// A snapshot in its slot.
#[derive(Debug)]
struct Pinned {
    snapshot: Arc<dyn Snapshot>,
    _slot: Slot,
}

impl Pins {
    pub(super) fn new(max: usize) -> Self {
        let shared = Arc::default();
        Self { max, shared }
    }

    /// Takes room, if there is any.
    pub(super) fn take(&self) -> Option<Slot> {
        let mut taken = self.shared.taken.lock();
        if taken.since.len() >= self.max {
            return None;
        }
        let number = taken.next;
        taken.next += 1;
        taken.since.insert(number, Instant::now());
        let shared = Arc::clone(&self.shared);
        Some(Slot { shared, number })
    }

    /// Waits for room.
    ///
    /// # Cancel safety
    ///
    /// Dropped, it has taken none.
    pub(super) async fn wait(&self) -> Slot {
        loop {
            if let Some(slot) = self.take() {
                return slot;
            }
            self.shared.freed.notified().await;
        }
    }

    pub(super) fn count(&self) -> usize {
        self.shared.taken.lock().since.len()
    }

    /// How long ago the oldest one was taken.
    pub(super) fn oldest(&self) -> Option<Duration> {
        let taken = self.shared.taken.lock();
        let (_, since) = taken.since.first_key_value()?;
        Some(since.elapsed())
    }
}

impl Slot {
    /// Keeps the slot as long as the snapshot is kept.
    pub(super) fn hold(self, snapshot: Arc<dyn Snapshot>) -> Arc<dyn Snapshot> {
        let _slot = self;
        Arc::new(Pinned { snapshot, _slot })
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.shared.taken.lock().since.remove(&self.number);
        self.shared.freed.notify_one();
    }
}

#[async_trait]
impl Snapshot for Pinned {
    async fn get(&self, keyspace: Keyspace, key: &[u8]) -> Result<Option<Bytes>> {
        self.snapshot.get(keyspace, key).await
    }

    async fn scan(&self, keyspace: Keyspace, scan: Scan) -> Result<Vec<Entry>> {
        self.snapshot.scan(keyspace, scan).await
    }

    async fn estimate(&self, keyspace: Keyspace) -> Result<Option<Estimate>> {
        self.snapshot.estimate(keyspace).await
    }

    async fn rows(&self, keyspace: Keyspace, scan: Scan) -> Result<Rows> {
        self.snapshot.rows(keyspace, scan).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Mutant: the slot is given back when the offer ends and not when the last reader goes.
    #[tokio::test(start_paused = true)]
    async fn room_lasts_as_long_as_anybody_holds_the_snapshot() {
        use pop_store::{MemStore, Store};
        let pins = Pins::new(1);
        let store = MemStore::new(&[Keyspace::new("rows")]);
        let held = pins.take().unwrap().hold(store.snapshot().await.unwrap());
        let reader = Arc::clone(&held);
        tokio::time::advance(Duration::from_secs(5)).await;
        drop(held);
        assert!(pins.take().is_none());
        assert_eq!(pins.oldest(), Some(Duration::from_secs(5)));
        drop(reader);
        assert_eq!((pins.count(), pins.oldest()), (0, None));
        assert!(pins.take().is_some());
    }
}
