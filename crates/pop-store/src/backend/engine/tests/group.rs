//! Groups: how many writes and syncs some batches cost, and who is told what.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use tokio::task::JoinHandle;

use super::{super::EngineStore, fake::*};
use crate::{
    Durability::{self, Buffered, Synced},
    ErrorKind, OpenOptions, Result, Store, WriteBatch,
};

type Fake = EngineStore<FakeEngine>;

fn spawn(store: &Fake, batch: WriteBatch, durability: Durability) -> JoinHandle<Result<()>> {
    let store = store.clone();
    tokio::spawn(async move { store.write(batch, durability).await })
}

/// Starts `batches` while the writer is held inside a first write, so that they wait together.
async fn write_together(
    disk: &Arc<Disk>,
    store: &Fake,
    batches: Vec<(WriteBatch, Durability)>,
) -> Vec<Result<()>> {
    let (begun, release) = disk.hold();
    let first = spawn(store, put("first", "1"), Buffered);
    tokio::task::spawn_blocking(move || begun.recv().unwrap())
        .await
        .unwrap();
    let mut waiting = Vec::new();
    for (batch, durability) in batches {
        waiting.push(spawn(store, batch, durability));
        // On one thread the write is in the writer's queue once it has been polled.
        tokio::task::yield_now().await;
    }
    // Without a gate-keeper every later apply goes through.
    drop(release);
    first.await.unwrap().unwrap();
    let mut answers = Vec::new();
    for write in waiting {
        answers.push(write.await.unwrap());
    }
    answers
}

#[tokio::test]
async fn batches_that_wait_are_one_write_and_one_sync() {
    let disk = Arc::default();
    let store = open(&disk);
    let (applied, synced) = (disk.applied(), disk.synced());
    let batches = (0..20).map(|it| (put(&format!("k{it}"), "v"), Synced));
    let answers = write_together(&disk, &store, batches.collect()).await;
    assert!(answers.iter().all(Result::is_ok));
    assert_eq!(disk.applied() - applied, 2);
    assert_eq!(disk.synced() - synced, 1);
}

#[tokio::test]
async fn a_conflict_refuses_its_own_batch_alone() {
    let disk = Arc::default();
    let store = open(&disk);
    let mut wrong = put("k", "wrong");
    wrong.require(A, bytes("k"), bytes("0"));
    let mut right = put("k", "2");
    right.require(A, bytes("k"), bytes("1"));
    let batches = [put("k", "1"), wrong, right].map(|it| (it, Synced));
    let answers = write_together(&disk, &store, batches.into()).await;
    assert!(answers[0].is_ok() && answers[2].is_ok());
    let conflict = answers[1].as_ref().unwrap_err();
    assert_eq!(conflict.conflict(), Some((A, &bytes("k"))));
    assert_eq!(store.get(A, b"k").await.unwrap(), Some(bytes("2")));
}

/// Mutant: answer conflicts before the group's outcome is known. The batch below would be
/// told of a conflict with a value that was never written.
#[tokio::test]
async fn a_conflict_with_a_batch_that_was_refused_is_no_conflict() {
    let disk: Arc<Disk> = Arc::default();
    let store = open(&disk);
    let (begun, release) = disk.hold();
    let first = spawn(&store, put("first", "1"), Buffered);
    tokio::task::spawn_blocking(move || begun.recv().unwrap())
        .await
        .unwrap();
    let put_it = spawn(&store, put("k", "1"), Buffered);
    tokio::task::yield_now().await;
    let mut absent = put("k", "2");
    absent.require_absent(A, bytes("k"));
    let absent = spawn(&store, absent, Buffered);
    tokio::task::yield_now().await;
    release.send(()).unwrap();
    first.await.unwrap().unwrap();
    disk.fail_next(Fault::Refuse);
    drop(release);
    for write in [put_it, absent] {
        let error = write.await.unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    }
    store.write(put("k", "3"), Synced).await.unwrap();
}

#[tokio::test]
async fn a_full_queue_makes_callers_wait_and_not_the_runtime() {
    let disk: Arc<Disk> = Arc::default();
    let options = OpenOptions::new(&[A, B]).with_queue_bytes_max(300);
    let store = open_with(&disk, &options);
    let (begun, release) = disk.hold();
    let mut writes: Vec<_> = (0..8)
        .map(|it| spawn(&store, put(&format!("k{it}"), &"v".repeat(100)), Buffered))
        .collect();
    tokio::task::spawn_blocking(move || begun.recv().unwrap())
        .await
        .unwrap();
    // The runtime has one thread: were it blocked, this would never come.
    tokio::time::sleep(Duration::from_millis(20)).await;
    // One write is inside the engine and one fits the queue; a dropped waiter takes nothing along.
    writes.pop().unwrap().abort();
    drop(release);
    for write in writes {
        write.await.unwrap().unwrap();
    }
    assert_eq!(store.get(A, b"k7").await.unwrap(), None);
}

/// Mutant: leave out the sync after a wait that timed out.
#[tokio::test]
async fn a_buffered_write_is_synced_within_the_interval() {
    let disk: Arc<Disk> = Arc::default();
    let options = OpenOptions::new(&[A, B]).with_buffered_sync(Duration::from_millis(20));
    let store = open_with(&disk, &options);
    assert_eq!(store.capabilities().buffered_sync_ms_max, 20);
    let synced = disk.synced();
    store.write(put("k", "v"), Buffered).await.unwrap();
    assert_eq!(disk.synced(), synced);
    for _ in 0..200 {
        if disk.synced() > synced {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("the write was not synced");
}

/// Mutant: look at the time only when the queue is empty.
#[tokio::test]
async fn a_steady_stream_of_buffered_writes_is_synced_too() {
    let disk: Arc<Disk> = Arc::default();
    let options = OpenOptions::new(&[A, B]).with_buffered_sync(Duration::from_millis(5));
    let store = open_with(&disk, &options);
    disk.is_slow.store(true, Ordering::SeqCst);
    let synced = disk.synced();
    let (mut begun, release) = disk.hold();
    let mut writes = vec![spawn(&store, put("k", "v"), Buffered)];
    // While one write is in the engine the next one is queued: the queue is never empty.
    for _ in 0..50 {
        begun = tokio::task::spawn_blocking(move || {
            begun.recv().unwrap();
            begun
        })
        .await
        .unwrap();
        writes.push(spawn(&store, put("k", "v"), Buffered));
        tokio::task::yield_now().await;
        release.send(()).unwrap();
    }
    // The last write is held, so what is synced was synced under the stream.
    begun.recv().unwrap();
    assert!(disk.synced() > synced);
    drop(release);
    for write in writes {
        write.await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn an_empty_synced_batch_syncs_only_what_is_dirty() {
    let disk: Arc<Disk> = Arc::default();
    let options = OpenOptions::new(&[A, B]).with_buffered_sync(Duration::from_secs(3_600));
    let store = open_with(&disk, &options);
    store.write(put("k", "v"), Buffered).await.unwrap();
    let (applied, synced) = (disk.applied(), disk.synced());
    for _ in 0..2 {
        store.write(WriteBatch::new(), Synced).await.unwrap();
    }
    assert_eq!((disk.applied(), disk.synced()), (applied, synced + 1));
}
