//! Generations: what is in use, what is swept, what a snapshot holds back.

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;

use super::{
    super::{EngineStore, OpenOptions, Space, record},
    fake::*,
};
use crate::{Durability::Synced, Entry, ErrorKind, Scan, Store};

fn entry(key: &str, value: &str) -> Entry {
    Entry {
        key: bytes(key),
        value: bytes(value),
    }
}

/// Mutant: don't sweep at open.
#[tokio::test]
async fn a_staging_that_a_crash_left_is_swept_at_open() {
    let disk: Arc<Disk> = Arc::default();
    let store = open(&disk);
    store.write(put("k", "old"), Synced).await.unwrap();
    store.close().await.unwrap();
    let left = Space::new("a", 2);
    disk.spaces
        .lock()
        .entry(left)
        .or_default()
        .insert(bytes("k"), bytes("new"));
    let store = open(&disk);
    assert_eq!(disk.space_names(), ["a@1", "b@1", "pop@0"]);
    assert_eq!(store.get(A, b"k").await.unwrap(), Some(bytes("old")));
}

#[tokio::test]
async fn a_published_generation_is_the_one_after_a_reopen() {
    let disk: Arc<Disk> = Arc::default();
    let store = open(&disk);
    store.write(put("old", "1"), Synced).await.unwrap();
    let mut staging = store.begin_replace(&[A]).await.unwrap();
    staging
        .load(A, vec![entry("k", "1"), entry("k", "2")])
        .await
        .unwrap();
    assert_eq!(
        staging.load(B, vec![]).await.unwrap_err().kind(),
        ErrorKind::Invalid
    );
    let second = store.begin_replace(&[B]).await.unwrap_err();
    assert_eq!(second.kind(), ErrorKind::Unavailable);
    staging.publish().await.unwrap();
    assert_eq!(disk.space_names(), ["a@2", "b@1", "pop@0"]);
    store.close().await.unwrap();
    let store = open(&disk);
    let entries = store.scan(A, Scan::all()).await.unwrap();
    assert_eq!(entries, [entry("k", "2")]);
}

/// Mutant: the publish fails with it.
#[tokio::test]
async fn f18_an_old_generation_that_can_not_be_dropped_does_not_undo_the_publish() {
    for fault in [Fault::Fail, Fault::Panic] {
        let disk: Arc<Disk> = Arc::default();
        let store = open(&disk);
        store.write(put("k", "old"), Synced).await.unwrap();
        let mut staging = store.begin_replace(&[A]).await.unwrap();
        staging.load(A, vec![entry("k", "new")]).await.unwrap();
        *disk.drop_fault.lock() = Some(fault);
        staging.publish().await.unwrap();
        assert_eq!(disk.space_names(), ["a@1", "a@2", "b@1", "pop@0"]);
        // What the engine did not do it may have half done: the next open sweeps.
        let poisoned = store.get(A, b"k").await.unwrap_err();
        assert_eq!(poisoned.kind(), ErrorKind::Poisoned);
        let _ = store.close().await;
        let store = open(&disk);
        assert_eq!(disk.space_names(), ["a@2", "b@1", "pop@0"]);
        assert_eq!(store.get(A, b"k").await.unwrap(), Some(bytes("new")));
    }
}

#[tokio::test]
async fn a_staging_that_is_dropped_leaves_room_for_another() {
    let disk: Arc<Disk> = Arc::default();
    let store = open(&disk);
    let mut staging = store.begin_replace(&[A]).await.unwrap();
    staging.load(A, vec![entry("k", "1")]).await.unwrap();
    drop(staging);
    let staging = store.begin_replace(&[A]).await.unwrap();
    staging.abort().await.unwrap();
    assert_eq!(disk.space_names(), ["a@1", "b@1", "pop@0"]);
    assert_eq!(store.get(A, b"k").await.unwrap(), None);
}

/// Mutant: hand the staging out only once the writer has answered. Then nobody would own
/// the one whose caller went away.
#[tokio::test]
async fn a_caller_that_goes_away_while_a_staging_begins_leaves_none() {
    let disk: Arc<Disk> = Arc::default();
    let store = open(&disk);
    let (begun, release) = disk.hold();
    let write = tokio::spawn({
        let store = store.clone();
        async move { store.write(put("k", "1"), Synced).await }
    });
    tokio::task::spawn_blocking(move || begun.recv().unwrap())
        .await
        .unwrap();
    let begin = tokio::spawn({
        let store = store.clone();
        async move { store.begin_replace(&[A]).await.map(drop) }
    });
    tokio::task::yield_now().await;
    begin.abort();
    assert!(begin.await.unwrap_err().is_cancelled());
    drop(release);
    write.await.unwrap().unwrap();
    store.begin_replace(&[A]).await.unwrap();
}

#[tokio::test]
async fn a_keyspace_that_is_not_opened_is_kept() {
    let disk: Arc<Disk> = Arc::default();
    let store = open(&disk);
    store.write(put("k", "1"), Synced).await.unwrap();
    store.close().await.unwrap();
    let store = open_with(&disk, &OpenOptions::new(&[B]));
    assert_eq!(
        store.get(A, b"k").await.unwrap_err().kind(),
        ErrorKind::Invalid
    );
    store.close().await.unwrap();
    assert_eq!(open(&disk).get(A, b"k").await.unwrap(), Some(bytes("1")));
}

/// Mutant: record the format together with the layout, once all spaces are made.
#[tokio::test]
async fn a_first_open_that_was_cut_short_is_begun_again() {
    let disk: Arc<Disk> = Arc::default();
    disk.fail_next(Fault::Fail);
    let options = OpenOptions::new(&[A, B]);
    EngineStore::start(FakeEngine::new(&disk), None, &options).unwrap_err();
    let store = open(&disk);
    store.write(put("k", "1"), Synced).await.unwrap();
    assert_eq!(disk.space_names(), ["a@1", "b@1", "pop@0"]);
}

#[tokio::test]
async fn a_format_of_the_future_is_refused_with_what_to_do() {
    let disk: Arc<Disk> = Arc::default();
    open(&disk).close().await.unwrap();
    let put = |key, value| {
        let mut spaces = disk.spaces.lock();
        let system = spaces.get_mut(&Space::system()).unwrap();
        system.insert(bytes(key), value);
    };
    let refused = || {
        let options = OpenOptions::new(&[A, B]);
        EngineStore::start(FakeEngine::new(&disk), None, &options).unwrap_err()
    };
    put("format", record::seal_number(2));
    let error = refused();
    assert_eq!(error.kind(), ErrorKind::Incompatible);
    assert!(error.to_string().contains("format 2"), "{error}");
    put("format", record::seal_number(1));
    put("layout", bytes("nonsense"));
    let error = refused();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.to_string().contains("layout"), "{error}");
}

/// Mutants: begin anew with what can't be read; sweep before it is read.
#[tokio::test]
async fn s67_a_switch_record_that_is_cut_or_changed_is_refused_and_nothing_is_changed() {
    let disk: Arc<Disk> = Arc::default();
    let store = open(&disk);
    store.write(put("k", "old"), Synced).await.unwrap();
    store.close().await.unwrap();
    // One that an open would sweep.
    disk.spaces.lock().entry(Space::new("a", 2)).or_default();
    let whole = disk.spaces.lock().clone();
    let record = |spaces: &mut BTreeMap<Space, Map>, value| {
        let system = spaces.get_mut(&Space::system()).unwrap();
        system.insert(bytes("layout"), value)
    };
    let sealed = record(&mut whole.clone(), Bytes::new()).unwrap();
    let cut = (0..sealed.len()).map(|end| sealed.slice(..end));
    let changed = (0..sealed.len()).map(|at| {
        let mut changed = sealed.to_vec();
        changed[at] ^= 1;
        Bytes::from(changed)
    });
    for damaged in cut.chain(changed) {
        record(&mut disk.spaces.lock(), damaged);
        let before = disk.spaces.lock().clone();
        let engine = FakeEngine::new(&disk);
        let error = EngineStore::start(engine, None, &OpenOptions::new(&[A, B])).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        assert_eq!(*disk.spaces.lock(), before);
    }
    *disk.spaces.lock() = whole;
    assert_eq!(open(&disk).get(A, b"k").await.unwrap(), Some(bytes("old")));
    assert_eq!(disk.space_names(), ["a@1", "b@1", "pop@0"]);
}

/// Mutants: begin an empty generation in its place; sweep before it is looked for.
#[tokio::test]
async fn s68_a_switch_record_that_names_what_is_not_there_is_refused_and_nothing_is_changed() {
    let disk: Arc<Disk> = Arc::default();
    let store = open(&disk);
    store.write(put("k", "old"), Synced).await.unwrap();
    let mut staging = store.begin_replace(&[A]).await.unwrap();
    staging.load(A, vec![entry("k", "new")]).await.unwrap();
    staging.publish().await.unwrap();
    store.close().await.unwrap();
    let in_use = Space::new("a", 2);
    let lost = disk.spaces.lock().remove(&in_use).unwrap();
    // One that an open would sweep.
    disk.spaces.lock().entry(Space::new("a", 3)).or_default();
    let before = disk.spaces.lock().clone();
    for _ in 0..2 {
        let options = OpenOptions::new(&[A, B]);
        let engine = FakeEngine::new(&disk);
        let error = EngineStore::start(engine, None, &options).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        let text = error.to_string();
        assert!(text.contains("space a@2 is in use and missing"), "{text}");
        assert!(text.contains("restore the folder from a backup"), "{text}");
        assert_eq!(*disk.spaces.lock(), before);
    }
    disk.spaces.lock().insert(in_use, lost);
    assert_eq!(open(&disk).get(A, b"k").await.unwrap(), Some(bytes("new")));
}
