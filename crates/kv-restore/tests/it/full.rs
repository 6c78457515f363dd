//! S69 on a real disk that is full.

use std::{fs, path::Path, sync::Arc};

use kv_restore::{Digest, ErrorKind};
use pop_store::{Durability, Error, OpenOptions, Store, WriteBatch};

use crate::{
    backends::{KEYSPACES, Source, filled_with, old_rows},
    disk::Disk,
    kit::{A, failed, rows_of},
};

const DISK: &str = "size=512m";
/// What a store keeps free, and some rows more: others don't fit.
const LEFT_BYTES: u64 = (64 << 20) + (4 << 20);
/// Of 16 KiB. They are more than a store writes before it looks at the disk again.
const ROWS: u32 = 2_000;

/// The rows that are in use while it happens and afterwards, the room that is needed for them,
/// and the same restore once there is room.
async fn s69_is_full<S: Store>(
    open: fn(&Path, OpenOptions) -> Result<S, Error>,
    gives_room_back: bool,
) {
    let mounted = tempfile::tempdir().unwrap();
    let Some(disk) = Disk::mount(mounted.path(), DISK) else {
        return;
    };
    let memory = filled_with(ROWS, 0).await;
    let expected = rows_of(&memory).await;
    let source = Source::of(&memory).await;
    let folder = disk.path().join("store");
    let open = || -> Arc<dyn Store> {
        let options = OpenOptions::new(&KEYSPACES).with_staging_kept();
        Arc::new(open(&folder, options).unwrap())
    };
    let store = open();
    let mut old = old_rows(&*store).await;
    let filler = disk.fill(LEFT_BYTES);
    for _ in 0..2 {
        let (outcome, _) = source.restore(&store, u64::MAX).await;
        let error = failed(outcome, ErrorKind::NoSpace);
        assert!(error.detail().contains("free some space"), "{error}");
        assert_eq!(rows_of(&*store).await, old);
        if gives_room_back {
            // What had come is gone again, so that the store in use has its room.
            old = write_one_more(&*store, &old).await;
        }
    }
    store.close().await.unwrap();
    let store = open();
    assert_eq!(rows_of(&*store).await, old);
    fs::remove_file(filler).unwrap();
    let (outcome, _) = source.restore(&store, u64::MAX).await;
    assert_eq!(outcome.unwrap().seal.totals, expected);
    assert_eq!(rows_of(&*store).await, expected);
    store.close().await.unwrap();
}

async fn write_one_more(store: &dyn Store, before: &Digest) -> Digest {
    let mut batch = WriteBatch::new();
    let key = before.rows().to_be_bytes();
    batch.put(A, key.to_vec().into(), "more".into());
    store.write(batch, Durability::Synced).await.unwrap();
    rows_of(store).await
}

// Mutants: keep what was loaded (on RocksDB); take a full disk for any other refusal.
// fjall's journal keeps its room until it is full: until some space is free, the store may
// be read alone.
#[cfg(feature = "fjall")]
#[tokio::test]
async fn s69_a_real_disk_that_is_full_leaves_what_is_in_use_on_fjall() {
    s69_is_full(
        |path, options| pop_store::FjallStore::open(path, options),
        false,
    )
    .await;
}

#[cfg(feature = "rocksdb")]
#[tokio::test]
async fn s69_a_real_disk_that_is_full_leaves_what_is_in_use_and_its_room_on_rocksdb() {
    s69_is_full(
        |path, options| pop_store::RocksStore::open(path, options),
        true,
    )
    .await;
}

// sled's file never gets shorter.
#[cfg(feature = "sled")]
#[tokio::test]
async fn s69_a_real_disk_that_is_full_leaves_what_is_in_use_on_sled() {
    s69_is_full(
        |path, options| pop_store::SledStore::open(path, options),
        false,
    )
    .await;
}
