//! The checks, one sentence each; [`conformance!`](crate::conformance) makes tests of them.
//!
//! A check fails by a panic. The comment above each names the mistake of a backend that
//! it is there to catch.

#![allow(clippy::indexing_slicing, reason = "a check fails by a panic")]

pub mod batch;
pub mod concurrent;
pub mod crash;
pub mod durable;
pub mod keys;
pub mod lifecycle;
pub mod limits;
pub mod model;
pub mod replace;
pub mod resume;
pub mod scan;
pub mod snapshot;

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

use bytes::Bytes;
use tokio::task::JoinHandle;

use super::{KEYSPACES, Kit, StoreFactory};
use crate::{
    Durability, Entry, Error, ErrorKind, Keyspace, Result, Scan, Snapshot, Store, StoreExt,
    WriteBatch,
};

const A: Keyspace = KEYSPACES[0];
const B: Keyspace = KEYSPACES[1];
const C: Keyspace = KEYSPACES[2];

/// Bytes of their own, from anything.
fn bytes(raw: impl AsRef<[u8]>) -> Bytes {
    Bytes::copy_from_slice(raw.as_ref())
}

/// An entry, from anything.
fn entry(key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Entry {
    Entry {
        key: bytes(key),
        value: bytes(value),
    }
}

/// Entries whose values are their keys.
fn entries<const N: usize>(keys: [&str; N]) -> Vec<Entry> {
    keys.iter().map(|key| entry(key, key)).collect()
}

/// A batch that puts these.
fn puts<const N: usize>(rows: [(Keyspace, &str, &str); N]) -> WriteBatch {
    let mut batch = WriteBatch::new();
    for (keyspace, key, value) in rows {
        batch.put(keyspace, bytes(key), bytes(value));
    }
    batch
}

/// Commits `batch`, which the contract says must work.
async fn commit<S: Store + ?Sized>(store: &S, batch: WriteBatch) {
    store
        .write(batch, Durability::Buffered)
        .await
        .expect("the write is committed");
}

/// Puts keys as their own values.
async fn commit_keys<S: Store, const N: usize>(store: &S, keyspace: Keyspace, keys: [&str; N]) {
    commit(store, puts(keys.map(|key| (keyspace, key, key)))).await;
}

async fn get<S: Store + ?Sized>(
    store: &S,
    keyspace: Keyspace,
    key: impl AsRef<[u8]>,
) -> Option<Bytes> {
    store
        .get(keyspace, key.as_ref())
        .await
        .expect("the key is read")
}

/// The same as text, where the check wrote text.
async fn get_text<S: Store + ?Sized>(store: &S, keyspace: Keyspace, key: &str) -> Option<String> {
    let value = get(store, keyspace, key).await?;
    Some(String::from_utf8_lossy(&value).into_owned())
}

async fn scan<S: Store + ?Sized>(store: &S, keyspace: Keyspace, scan: Scan) -> Vec<Entry> {
    store.scan(keyspace, scan).await.expect("the range is read")
}

async fn scan_snapshot(snapshot: &dyn Snapshot, keyspace: Keyspace) -> Vec<Entry> {
    snapshot
        .scan(keyspace, Scan::all())
        .await
        .expect("the range is read")
}

/// Everything in a keyspace, in pages.
async fn all<S: Store>(store: &S, keyspace: Keyspace) -> Vec<Entry> {
    let mut entries = Vec::new();
    store
        .for_each_page(keyspace, Scan::all(), |page| {
            entries.extend(page);
            Ok::<_, Error>(true)
        })
        .await
        .expect("the keyspace is read");
    entries
}

/// Checks that a call was refused, and as what.
#[track_caller]
fn refused<T>(answer: Result<T>, kind: ErrorKind) -> Error {
    match answer {
        Ok(_) => panic!("the call must be refused as: {kind}; it was done"),
        Err(error) => {
            assert_eq!(error.kind(), kind, "the kind of: {error}");
            error
        }
    }
}

/// Closes a store and opens its folder again.
async fn reopen<F: StoreFactory>(kit: &Kit<F>, store: F::Store) -> F::Store {
    store.close().await.expect("the store closes");
    drop(store);
    kit.open().await
}

/// Batches that are written one after another, by a task of its own, while a check looks on.
struct Meanwhile {
    written: Arc<AtomicU64>,
    allowed: Arc<AtomicU64>,
    task: JoinHandle<()>,
}

// How far a writer may run ahead between two looks at full speed: enough to overtake each of
// them, and not so many that scans crawl over the versions of a few keys.
const AHEAD_MAX: u64 = 64;

// The pace beyond that. A writer that stopped would be still whenever a busy machine let it
// run to its end before the look that it is there to overtake.
const AHEAD_PACE: Duration = Duration::from_millis(1);

impl Meanwhile {
    /// Writes `batch(1)`, `batch(2)` and so on until it is stopped.
    fn write<S: Store>(store: &Arc<S>, batch: impl Fn(u64) -> WriteBatch + Send + 'static) -> Self {
        let written = Arc::new(AtomicU64::new(0));
        let allowed = Arc::new(AtomicU64::new(AHEAD_MAX));
        let task = tokio::spawn({
            let (store, written, allowed) = (store.clone(), written.clone(), allowed.clone());
            async move {
                loop {
                    let next = written.load(SeqCst) + 1;
                    match allowed.load(SeqCst) {
                        0 => return,
                        last if next <= last => tokio::task::yield_now().await,
                        _ => tokio::time::sleep(AHEAD_PACE).await,
                    }
                    commit(&*store, batch(next)).await;
                    written.store(next, SeqCst);
                }
            }
        });
        Self {
            written,
            allowed,
            task,
        }
    }

    /// Waits for one more write, so that a check and its writer take turns.
    async fn progress(&self) {
        let before = self.written.load(SeqCst);
        self.allowed.store(before + AHEAD_MAX, SeqCst);
        while self.written.load(SeqCst) == before && !self.task.is_finished() {
            tokio::task::yield_now().await;
        }
    }

    async fn stop(self) {
        self.allowed.store(0, SeqCst);
        self.task.await.expect("every write is committed");
    }
}
