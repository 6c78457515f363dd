//! Loads that go past the writer: what is held back, what is put aside, what becomes of a
//! loader that fails.

use std::sync::Arc;

use super::{
    super::{EngineStore, OpenOptions, Space},
    fake::*,
};
use crate::{Durability::Synced, Entry, ErrorKind, Scan, Staging, Store};

const ROW_BYTES: usize = 256 << 10;
// As many rows of that size are held back at most.
const HELD_ROWS: u32 = 7;

fn open_bulk(disk: &Arc<Disk>) -> EngineStore<FakeEngine> {
    let engine = FakeEngine::new(disk).with_bulk_load();
    EngineStore::start(engine, None, &OpenOptions::new(&[A, B])).unwrap()
}

fn rows(numbers: std::ops::Range<u32>) -> Vec<Entry> {
    let row = |number: u32| Entry {
        key: bytes(&format!("{number:04}")),
        value: vec![1; ROW_BYTES].into(),
    };
    numbers.map(row).collect()
}

async fn load(staging: &mut Box<dyn Staging>, numbers: std::ops::Range<u32>) -> crate::Result<()> {
    for number in numbers {
        staging.load(A, rows(number..number + 1)).await?;
    }
    Ok(())
}

/// Mutants: begin a file with the first row; write every row as a batch.
#[tokio::test]
async fn few_rows_are_written_as_batches_and_many_are_put_aside() {
    let disk: Arc<Disk> = Arc::default();
    let store = open_bulk(&disk);
    let mut staging = store.begin_replace(&[A, B]).await.unwrap();
    load(&mut staging, 0..HELD_ROWS).await.unwrap();
    assert!(disk.aside.lock().is_empty());
    staging.publish().await.unwrap();
    let found = store.scan(A, Scan::all()).await.unwrap();
    assert!(found == rows(0..HELD_ROWS));

    let mut staging = store.begin_replace(&[A, B]).await.unwrap();
    load(&mut staging, 0..20).await.unwrap();
    let aside: Vec<_> = disk.aside.lock().keys().cloned().collect();
    assert_eq!(aside, [Space::new("a", 3)], "nothing for an empty keyspace");
    let applied = disk.applied();
    staging.publish().await.unwrap();
    assert_eq!(disk.applied(), applied + 1, "the switch alone");
    let found = store.scan(A, Scan::all()).await.unwrap();
    assert!(found == rows(0..20));
    assert!(disk.aside.lock().is_empty());
}

/// Mutant: hold the engine until the staging is dropped.
#[tokio::test]
async fn a_close_with_an_open_load_lets_go_of_the_engine() {
    let disk: Arc<Disk> = Arc::default();
    let store = open_bulk(&disk);
    let mut staging = store.begin_replace(&[A]).await.unwrap();
    load(&mut staging, 0..20).await.unwrap();
    store.close().await.unwrap();
    assert_eq!(disk.open_count.load(std::sync::atomic::Ordering::SeqCst), 0);
    let error = load(&mut staging, 20..21).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Poisoned);
    let reopened = open_bulk(&disk);
    assert!(disk.aside.lock().is_empty(), "swept at open");
    assert_eq!(reopened.scan(A, Scan::all()).await.unwrap(), []);
}

/// Mutants: try a file again that failed; publish what a broken loader has.
#[tokio::test]
async fn a_loader_that_fails_or_panics_ends_the_load_and_nothing_else() {
    for fault in [Fault::Refuse, Fault::Fail, Fault::Panic] {
        for calls_before in [0, 1] {
            let disk: Arc<Disk> = Arc::default();
            let store = open_bulk(&disk);
            store.write(put("old", "1"), Synced).await.unwrap();
            let mut staging = store.begin_replace(&[A]).await.unwrap();
            load(&mut staging, 0..HELD_ROWS + calls_before)
                .await
                .unwrap();
            *disk.bulk_fault.lock() = Some(fault);
            let kind = |it: crate::Result<()>| it.unwrap_err().kind();
            let failed = load(&mut staging, HELD_ROWS + calls_before..20).await;
            assert!(failed.is_err());
            let again = load(&mut staging, 20..21).await;
            assert_eq!(kind(again), ErrorKind::Unavailable);
            assert_eq!(kind(staging.publish().await), ErrorKind::Unavailable);

            store.write(put("more", "1"), Synced).await.unwrap();
            assert_eq!(store.get(A, b"old").await.unwrap(), Some(bytes("1")));
            store
                .begin_replace(&[A])
                .await
                .unwrap()
                .publish()
                .await
                .unwrap();
            assert_eq!(store.scan(A, Scan::all()).await.unwrap(), []);
            assert!(disk.aside.lock().is_empty());
        }
    }
}

/// Mutants: hand rows over and wait for none; forget how those before fared.
#[tokio::test]
async fn rows_that_fail_behind_their_answer_are_told_by_the_next_call_and_never_published() {
    for fault in [Fault::Refuse, Fault::Fail, Fault::Panic] {
        let disk: Arc<Disk> = Arc::default();
        let store = open_bulk(&disk);
        store.write(put("old", "1"), Synced).await.unwrap();
        let mut staging = store.begin_replace(&[A]).await.unwrap();
        load(&mut staging, 0..20).await.unwrap();
        *disk.bulk_fault.lock() = Some(fault);
        staging.load_rows(A, rows(20..22).into()).await.unwrap();
        let told = staging.load_rows(A, rows(22..24).into()).await;
        assert!(told.is_err(), "of the rows before");
        let error = staging.publish().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert_eq!(store.get(A, b"old").await.unwrap(), Some(bytes("1")));
    }
}

#[tokio::test]
async fn a_finish_that_fails_leaves_the_old_content() {
    for fault in [Fault::Refuse, Fault::Panic] {
        let disk: Arc<Disk> = Arc::default();
        let store = open_bulk(&disk);
        store.write(put("old", "1"), Synced).await.unwrap();
        let mut staging = store.begin_replace(&[A]).await.unwrap();
        load(&mut staging, 0..20).await.unwrap();
        *disk.bulk_fault.lock() = Some(fault);
        let error = staging.publish().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert_eq!(store.get(A, b"old").await.unwrap(), Some(bytes("1")));
        store.close().await.unwrap();
        open_bulk(&disk);
        assert_eq!(disk.space_names(), ["a@1", "b@1", "pop@0"]);
    }
}
