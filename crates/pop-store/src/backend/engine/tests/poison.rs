//! After a failure: nothing more is done, and nobody waits for ever.

use std::{sync::Arc, sync::atomic::Ordering};

use super::{super::EngineStore, fake::*};
use crate::{
    Durability::{Buffered, Synced},
    Error, ErrorKind, OpenOptions, Outcome, Scan, Store, WriteBatch,
    backend::folder::DataFolder,
};

async fn check_poisoned(store: &impl Store) {
    let kinds = [
        store
            .write(put("k", "3"), Buffered)
            .await
            .map_err(|it| it.kind()),
        store.get(A, b"k").await.map(drop).map_err(|it| it.kind()),
        store
            .scan(A, Scan::all())
            .await
            .map(drop)
            .map_err(|it| it.kind()),
        store.snapshot().await.map(drop).map_err(|it| it.kind()),
        store
            .begin_replace(&[A])
            .await
            .map(drop)
            .map_err(|it| it.kind()),
    ];
    assert_eq!(kinds, [Err(ErrorKind::Poisoned); 5]);
}

/// Mutant: go on after an error of the engine.
#[tokio::test]
async fn a_failed_write_is_in_doubt_and_poisons() {
    let disk: Arc<Disk> = Arc::default();
    let store = open(&disk);
    disk.fail_next(Fault::Fail);
    let error = store.write(put("k", "1"), Synced).await.unwrap_err();
    assert_eq!(error.outcome(), Outcome::InDoubt, "{error}");
    check_poisoned(&store).await;
}

#[tokio::test]
async fn a_panic_of_the_engine_is_in_doubt_and_poisons() {
    let disk: Arc<Disk> = Arc::default();
    let store = open(&disk);
    disk.fail_next(Fault::Panic);
    let error = store.write(put("k", "1"), Buffered).await.unwrap_err();
    assert_eq!(error.outcome(), Outcome::InDoubt, "{error}");
    check_poisoned(&store).await;
}

/// Mutant: answer an empty synced batch with the error and go on, as a retry would.
#[tokio::test]
async fn a_failed_sync_poisons() {
    let disk: Arc<Disk> = Arc::default();
    let store = open(&disk);
    store.write(put("k", "1"), Buffered).await.unwrap();
    disk.fail_next(Fault::Fail);
    // The background sync may have met the fault before this batch: then it finds the poison.
    store.write(WriteBatch::new(), Synced).await.unwrap_err();
    check_poisoned(&store).await;
}

#[tokio::test]
async fn a_refusal_of_the_engine_changes_nothing_and_does_not_poison() {
    let disk: Arc<Disk> = Arc::default();
    let store = open(&disk);
    disk.fail_next(Fault::Refuse);
    let error = store.write(put("k", "1"), Synced).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert_eq!(store.get(A, b"k").await.unwrap(), None);
    store.write(put("k", "2"), Synced).await.unwrap();
}

/// Mutant: ask the disk only after the write.
#[tokio::test]
async fn a_disk_that_is_nearly_full_refuses_writes_and_nothing_else() {
    let disk: Arc<Disk> = Arc::default();
    let path = tempfile::TempDir::new().unwrap();
    let folder = DataFolder::claim(path.path(), "fake").unwrap();
    let options = OpenOptions::new(&[A, B]).with_free_bytes_min(u64::MAX);
    let store = EngineStore::start(FakeEngine::new(&disk), Some(folder), &options).unwrap();
    let applied = disk.applied();
    let error = store.write(put("k", "1"), Synced).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoSpace);
    let text = error.to_string();
    assert!(
        text.contains("KiB free in") && text.contains("free some space"),
        "{text}"
    );
    assert_eq!(disk.applied(), applied);
    assert_eq!(store.get(A, b"k").await.unwrap(), None);
    store.write(WriteBatch::new(), Synced).await.unwrap();
    store.close().await.unwrap();
}

#[tokio::test]
async fn a_panic_in_a_read_answers_the_reader_and_poisons() {
    let disk: Arc<Disk> = Arc::default();
    let store = open(&disk);
    let error = store.get(A, b"panic").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Poisoned);
    // The reader that answered may stop the store a moment later.
    while store.get(A, b"k").await.is_ok() {}
    check_poisoned(&store).await;
}

#[tokio::test]
async fn waiters_are_answered_when_the_writer_dies() {
    let disk: Arc<Disk> = Arc::default();
    let store = open(&disk);
    let (begun, release) = disk.hold();
    let writes: Vec<_> = (0..8)
        .map(|_| {
            let store = store.clone();
            tokio::spawn(async move { store.write(put("k", "1"), Synced).await })
        })
        .collect();
    tokio::task::spawn_blocking(move || begun.recv().unwrap())
        .await
        .unwrap();
    store.kill_writer();
    drop(release);
    let mut outcomes = Vec::new();
    for write in writes {
        outcomes.push(write.await.unwrap().map_err(|it: Error| it.kind()));
    }
    // Those of the first group are done; those behind the death were never begun.
    assert!(
        outcomes
            .iter()
            .all(|it| matches!(it, Ok(()) | Err(ErrorKind::Poisoned)))
    );
    check_poisoned(&store).await;
}

#[tokio::test]
async fn a_closed_store_lets_go_of_its_engine_while_handles_are_held() {
    let disk: Arc<Disk> = Arc::default();
    let store = open(&disk);
    let snapshot = store.snapshot().await.unwrap();
    store.write(put("k", "1"), Buffered).await.unwrap();
    let synced = disk.synced();
    store.close().await.unwrap();
    assert_eq!(disk.synced(), synced + 1);
    assert_eq!(disk.open_count.load(Ordering::SeqCst), 0);
    check_poisoned(&store).await;
    let read = snapshot.get(A, b"k").await.unwrap_err();
    assert_eq!(read.kind(), ErrorKind::Poisoned);
    store.close().await.unwrap();
}

#[tokio::test]
async fn a_poisoned_store_says_so_when_it_is_closed_and_still_lets_go() {
    let disk: Arc<Disk> = Arc::default();
    let store = open(&disk);
    disk.fail_next(Fault::Fail);
    store.write(put("k", "1"), Synced).await.unwrap_err();
    let error = store.close().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Poisoned);
    assert_eq!(disk.open_count.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn a_store_that_is_dropped_leaves_no_engine_behind() {
    let disk: Arc<Disk> = Arc::default();
    let store = open(&disk);
    store.write(put("k", "1"), Buffered).await.unwrap();
    let synced = disk.synced();
    drop(store);
    assert_eq!(disk.open_count.load(Ordering::SeqCst), 0);
    assert_eq!(disk.synced(), synced + 1);
}
