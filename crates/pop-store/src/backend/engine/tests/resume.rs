//! Checkpoints of stagings: what an open keeps, what it sweeps, and what a damage costs.

use std::sync::Arc;

use bytes::Bytes;

use super::{
    super::{EngineStore, OpenOptions, Space, record},
    fake::*,
};
use crate::{Durability::Synced, Entry, ErrorKind, Scan, Store};

fn open_kept(disk: &Arc<Disk>, bulk: bool) -> EngineStore<FakeEngine> {
    let engine = FakeEngine::new(disk);
    let engine = if bulk {
        engine.with_bulk_load()
    } else {
        engine
    };
    let options = OpenOptions::new(&[A, B]).with_staging_kept();
    EngineStore::start(engine, None, &options).unwrap()
}

fn entry(key: &str) -> Entry {
    Entry {
        key: bytes(key),
        value: bytes("1"),
    }
}

/// Loads `a`, checkpoints, loads `b`, and is dropped.
async fn leave(store: &EngineStore<FakeEngine>) {
    let mut staging = store
        .resume_replace(&[A], bytes("n"))
        .await
        .unwrap()
        .staging;
    staging.load(A, vec![entry("a")]).await.unwrap();
    staging.checkpoint(bytes("p")).await.unwrap();
    staging.load(A, vec![entry("b")]).await.unwrap();
}

async fn resume(store: &EngineStore<FakeEngine>) -> Option<Bytes> {
    store.resume_replace(&[A], bytes("n")).await.unwrap().point
}

/// Mutants: keep it although nobody asked for that; leave its record, or its files, behind.
#[tokio::test]
async fn an_open_sweeps_a_checkpoint_unless_it_is_told_to_keep_it() {
    for bulk in [false, true] {
        let disk: Arc<Disk> = Arc::default();
        let store = open_kept(&disk, bulk);
        leave(&store).await;
        store.close().await.unwrap();
        let store = open_kept(&disk, bulk);
        assert_eq!(disk.space_names(), ["a@1", "a@2", "b@1", "pop@0"]);
        assert_eq!(resume(&store).await, Some(bytes("p")));
        store.close().await.unwrap();
        let store = open(&disk);
        assert_eq!(disk.space_names(), ["a@1", "b@1", "pop@0"]);
        assert!(disk.aside.lock().is_empty());
        assert!(!disk.spaces.lock()[&Space::system()].contains_key(record::STAGING));
        assert_eq!(resume(&store).await, None);
    }
}

/// A record of a generation that is in use would have a load go on in there.
/// Mutants: don't compare generations; don't ask whether the space is there.
#[tokio::test]
async fn a_checkpoint_of_other_generations_or_a_damaged_one_is_swept() {
    let disk: Arc<Disk> = Arc::default();
    let store = open_kept(&disk, false);
    leave(&store).await;
    let record = disk.spaces.lock()[&Space::system()][record::STAGING].clone();
    store
        .begin_replace(&[A])
        .await
        .unwrap()
        .publish()
        .await
        .unwrap();
    store.write(put("k", "used"), Synced).await.unwrap();
    store.close().await.unwrap();
    let damaged = bytes("nonsense");
    for record in [record.clone(), damaged] {
        let set_record = |record| {
            let mut spaces = disk.spaces.lock();
            let system = spaces.get_mut(&Space::system()).unwrap();
            system.insert(bytes("staging"), record);
        };
        set_record(record);
        let store = open_kept(&disk, false);
        assert_eq!(resume(&store).await, None);
        assert_eq!(store.get(A, b"k").await.unwrap(), Some(bytes("used")));
        store.close().await.unwrap();
        assert_eq!(disk.space_names(), ["a@2", "b@1", "pop@0"]);
    }
}

/// Mutant: go on with the files that are left.
#[tokio::test]
async fn a_checkpoint_whose_files_are_gone_is_begun_anew() {
    let disk: Arc<Disk> = Arc::default();
    let store = open_kept(&disk, true);
    leave(&store).await;
    disk.aside.lock().clear();
    let mut resumed = store.resume_replace(&[A], bytes("n")).await.unwrap();
    assert_eq!(resumed.point, None);
    resumed.staging.load(A, vec![entry("a")]).await.unwrap();
    resumed.staging.publish().await.unwrap();
    let found = store.scan(A, Scan::all()).await.unwrap();
    assert_eq!(found, [entry("a")]);
}

/// Mutant: go on after a load whose end nobody saw.
#[tokio::test]
async fn a_load_that_was_given_up_half_way_is_not_checkpointed() {
    let disk: Arc<Disk> = Arc::default();
    let store = open_kept(&disk, false);
    let mut staging = store
        .resume_replace(&[A], bytes("n"))
        .await
        .unwrap()
        .staging;
    let (_begun, release) = disk.hold();
    {
        let load = staging.load(A, vec![entry("a")]);
        let given_up = tokio::time::timeout(std::time::Duration::from_millis(5), load).await;
        assert!(given_up.is_err());
    }
    drop(release);
    let error = staging.checkpoint(bytes("p")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    let error = staging.load(A, vec![entry("b")]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    drop(staging);
    assert_eq!(resume(&store).await, None);
}

/// Mutant: forget the checkpoint in memory when its successor is refused.
#[tokio::test]
async fn a_checkpoint_that_is_refused_leaves_the_one_before() {
    let disk: Arc<Disk> = Arc::default();
    let store = open_kept(&disk, false);
    let mut staging = store
        .resume_replace(&[A], bytes("n"))
        .await
        .unwrap()
        .staging;
    staging.load(A, vec![entry("a")]).await.unwrap();
    staging.checkpoint(bytes("p")).await.unwrap();
    staging.load(A, vec![entry("b")]).await.unwrap();
    disk.fail_next(Fault::Refuse);
    let error = staging.checkpoint(bytes("q")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    drop(staging);
    let resumed = store.resume_replace(&[A], bytes("n")).await.unwrap();
    assert_eq!(resumed.point, Some(bytes("p")));
    resumed.staging.publish().await.unwrap();
    let found = store.scan(A, Scan::all()).await.unwrap();
    assert_eq!(found, [entry("a")]);
}
