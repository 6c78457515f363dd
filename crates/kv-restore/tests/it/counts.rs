//! What a restorer says of its sessions, as a whole.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use kv_restore::{ErrorKind, Phase, RestoreStats};
use pop_store::{
    Entry, Error, Estimate, Keyspace, Result, Scan, Snapshot, Store,
    testkit::{Call, Effect, Fault},
};

use crate::kit::{World, at, failed};

/// Each session is counted once, by how it ended, whichever way that was, and each row once.
/// Mutants: a session that is lost with its task is not counted; what an earlier session had
/// moved is counted as received; a phase counts the
/// ones before it.
#[tokio::test(start_paused = true)]
async fn what_a_restorer_did_is_counted() {
    let world = World::filled().await;
    assert_eq!(world.restorer.stats(), RestoreStats::default());
    world.faults.arm(Call::Load, 8, Fault::Refuse);
    failed(world.restored().await, ErrorKind::Staging);
    let cut = world.restorer.stats();
    assert_eq!((cut.begun, cut.running, cut.resumed), (1, 0, 0));
    assert!(cut.rows > 100, "{cut:?}");

    world.restored().await.unwrap();
    let done = world.restorer.stats();
    assert_eq!((done.begun, done.running, done.resumed), (2, 0, 1));
    assert!(done.rows_before > 50, "{done:?}");
    let all = world.source_rows().await;
    assert_eq!(done.rows - cut.rows + done.rows_before, all.rows());
    assert_eq!(done.bytes - cut.bytes + done.bytes_before, all.bytes());

    assert!(world.restored().await.unwrap().already);
    world.restore(at(1, 0, 11)).unwrap_err();
    let panic = Fault::Panic(Effect::DidNotHappen);
    world.faults.arm(Call::BeginReplace, 1, panic);
    let lost = world.restore(at(2, 1, 11)).unwrap();
    failed(lost.outcome().await, ErrorKind::TaskLost);

    world.offer(2).await;
    let hang = Fault::Hang(Effect::DidNotHappen);
    world.faults.arm(Call::BeginReplace, 1, hang);
    world.faults.arm(Call::Load, 1, hang);
    let session = world.restore(at(2, 1, 11)).unwrap();
    world.faults.until_hung(1).await;
    tokio::time::sleep(Duration::from_secs(20)).await;
    let now = world.restorer.stats();
    assert_eq!((now.begun, now.running), (5, 1));
    assert_eq!(now.still.unwrap().as_secs(), 20);
    assert_eq!(now.phases[&Phase::Opening].as_secs(), 20);
    world.faults.release();
    tokio::time::sleep(Duration::from_secs(7)).await;
    session.cancel();
    failed(session.outcome().await, ErrorKind::Cancelled);
    let end = world.restorer.stats();
    assert_eq!((end.running, end.still), (0, None));
    assert_eq!(end.phases[&Phase::Opening].as_secs(), 20);
    // All rows are here, and are not loaded.
    assert_eq!(end.phases[&Phase::Verifying].as_secs(), 7);
    let ended: Vec<_> = end.ended.into_iter().collect();
    assert_eq!(
        ended,
        [
            ("already", 1),
            ("cancelled", 1),
            ("installed", 1),
            ("refused", 1),
            ("staging", 1),
            ("task-lost", 1),
        ]
    );
}

// Mutants: the source does not ask its snapshot; what it says is not kept.
#[tokio::test(start_paused = true)]
async fn a_source_says_about_how_much_it_has() {
    let world = World::filled().await;
    let session = world.restore(at(1, 1, 10)).unwrap();
    assert_eq!(session.progress().borrow().about, None);
    session.outcome().await.unwrap();
    let rows = world.source_rows().await.rows();
    let bytes = None;
    assert_eq!(
        session.progress().borrow().about,
        Some(Estimate { rows, bytes })
    );
}

/// A snapshot that fails when it is asked how much it has.
#[derive(Debug)]
struct Sulking(Arc<dyn Snapshot>);

#[async_trait]
impl Snapshot for Sulking {
    async fn get(&self, keyspace: Keyspace, key: &[u8]) -> Result<Option<Bytes>> {
        self.0.get(keyspace, key).await
    }

    async fn scan(&self, keyspace: Keyspace, scan: Scan) -> Result<Vec<Entry>> {
        self.0.scan(keyspace, scan).await
    }

    async fn estimate(&self, _: Keyspace) -> Result<Option<Estimate>> {
        let kind = pop_store::ErrorKind::Unavailable;
        Err(Error::new(kind, "sulking", "estimate"))
    }
}

// Mutant: a session needs to know how much it sends.
#[tokio::test(start_paused = true)]
async fn a_source_that_can_not_say_how_much_it_has_sends_it_nevertheless() {
    let world = World::filled().await;
    let snapshot = Arc::new(Sulking(world.source.snapshot().await.unwrap()));
    let offer = world.dumper.offer(at(2, 1, 11), &world.source, snapshot);
    let _offer = offer.unwrap();
    let session = world.restore(at(2, 1, 11)).unwrap();
    session.outcome().await.unwrap();
    assert_eq!(session.progress().borrow().about, None);
    assert!(world.same().await);
}
