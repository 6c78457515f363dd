//! Sessions that stage a snapshot and leave the switch to whoever holds them.

use std::time::Duration;

use kv_restore::{ErrorKind, Phase, Session};
use pop_store::{Durability, MemStore, Scan, Store, WriteBatch};

use crate::kit::{A, B, SEALS, World, at, failed, leader, rows_of};

/// A session whose rows are all loaded.
async fn staged(world: &World) -> Session {
    let session = world.restorer.stage(at(1, 1, 10), &[leader()]).unwrap();
    session.staged().await.unwrap();
    session
}

// Mutant: `NotHeld`.
#[tokio::test(start_paused = true)]
async fn what_is_staged_is_switched_to_when_it_is_asked_for_and_not_before() {
    let world = World::filled().await;
    let old = world.target_rows().await;
    let session = staged(&world).await;
    // Longer than either side may be silent.
    tokio::time::sleep(Duration::from_secs(200)).await;
    assert_eq!(world.target_rows().await, old);
    assert_eq!(session.progress().borrow().phase, Phase::Staged);
    assert_eq!(world.dumper.running(), 1);
    session.commit();
    let installed = session.outcome().await.unwrap();
    assert!(!installed.already);
    assert!(world.same().await);
    world.is_quiet().await;
}

// Mutant: `stage` does not hold.
#[tokio::test(start_paused = true)]
async fn what_is_staged_and_let_go_leaves_the_old_content_and_no_staging() {
    let world = World::filled().await;
    let old = world.target_rows().await;
    drop(staged(&world).await);
    world.is_quiet().await;
    assert_eq!(world.target_rows().await, old);
    world.restored().await.unwrap();
    assert!(world.same().await);
}

// Mutant: a request that does not hold shares the session of one that does.
#[tokio::test(start_paused = true)]
async fn a_request_that_does_not_hold_takes_the_place_of_one_that_does() {
    let world = World::filled().await;
    let session = staged(&world).await;
    world.restored().await.unwrap();
    session.commit();
    failed(session.outcome().await, ErrorKind::Superseded);
    assert!(world.same().await);
}

// Mutant: a commit does not look at the seal again.
#[tokio::test(start_paused = true)]
async fn what_was_installed_meanwhile_decides_about_the_switch() {
    let world = World::filled().await;
    let session = staged(&world).await;
    let other = MemStore::new(&[A, B, SEALS]);
    world.asked_in(other.clone(), at(1, 2, 10)).await.unwrap();
    let seals = other.scan(SEALS, Scan::all()).await.unwrap();
    let mut batch = WriteBatch::new();
    for seal in seals {
        batch.put(SEALS, seal.key, seal.value);
    }
    let written = world.target.write(batch, Durability::Synced).await;
    written.unwrap();
    let old = rows_of(world.target.inner()).await;
    session.commit();
    failed(session.outcome().await, ErrorKind::StaleEpoch);
    assert_eq!(rows_of(world.target.inner()).await, old);
    world.is_quiet().await;
}

// Mutant: what is held is not told to give way.
#[tokio::test(start_paused = true)]
async fn a_higher_epoch_takes_the_place_of_what_is_staged() {
    let world = World::filled().await;
    world.offer(2).await;
    let session = staged(&world).await;
    let newer = world.restore(at(2, 2, 5)).unwrap();
    newer.outcome().await.unwrap();
    session.commit();
    failed(session.outcome().await, ErrorKind::Superseded);
    world.is_quiet().await;
}

// Mutant: a held session has no clock.
#[tokio::test(start_paused = true)]
async fn what_nobody_decides_about_gives_its_place_back() {
    let world = World::filled().await;
    let session = staged(&world).await;
    let outcome = tokio::time::timeout(Duration::from_secs(1_000), session.outcome());
    let error = failed(outcome.await.unwrap(), ErrorKind::Stalled);
    assert_eq!(error.phase(), Phase::Staged);
    world.heals(&error).await;
}

// Mutant: `staged` waits for the phase alone.
#[tokio::test(start_paused = true)]
async fn a_session_that_fails_or_is_installed_already_is_not_waited_for() {
    let world = World::filled().await;
    let session = world.restorer.stage(at(9, 1, 10), &[leader()]).unwrap();
    let error = session.staged().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::SourceGone);
    world.restored().await.unwrap();
    let session = staged(&world).await;
    assert!(session.outcome().await.unwrap().already);
}
