//! What can go wrong before the switch: the follower says no, and gets it the next time.

use std::sync::atomic::Ordering;

use kv_restore::{ErrorKind, raft::ReceiveError};
use pop_store::{
    Store,
    testkit::{Call, Effect, Fault},
};

use super::{group::Group, machine::ROWS};

// Mutant: `install` does not let the session commit.
#[tokio::test(start_paused = true)]
async fn a_follower_that_lags_gets_a_snapshot_and_all_are_equal() {
    let group = Group::with_a_laggard().await;
    let snapshot = group.of(1).current().await;
    let reference = serde_json::to_vec(snapshot.snapshot.reference()).unwrap();
    assert!(reference.len() < 100);
    group.network.heal(3);
    group.agrees().await;
    assert_eq!(group.of(3).faults.call_count(Call::Publish), 1);
}

// Mutant: `NoLocalDeadline`, with which it never ends.
#[tokio::test(start_paused = true)]
async fn a_start_that_fails_panics_or_hangs_is_followed_by_one_that_succeeds() {
    for fault in [
        Fault::Refuse,
        Fault::Panic(Effect::DidNotHappen),
        Fault::Panic(Effect::Happened),
        Fault::Hang(Effect::DidNotHappen),
        Fault::Hang(Effect::Happened),
    ] {
        let group = Group::with_a_laggard().await;
        group.of(3).faults.arm(Call::BeginReplace, 1, fault);
        group.network.heal(3);
        group.agrees().await;
        assert_eq!(group.of(3).faults.injected_count(), 1);
        assert!(group.of(3).begins() >= 2);
    }
}

// Mutant: a session that fails is an answer to the leader.
#[tokio::test(start_paused = true)]
async fn rows_that_are_cut_off_are_moved_again() {
    for frames in [0, 1, 3] {
        let group = Group::with_a_laggard().await;
        group.rows.cut_after(frames);
        group.network.heal(3);
        group.agrees().await;
        assert_eq!(group.rows.connects.load(Ordering::Relaxed), 2);
        assert_eq!(group.of(3).faults.call_count(Call::Publish), 1);
    }
}

// Mutant: the offer outlives the snapshot.
#[tokio::test(start_paused = true)]
async fn a_snapshot_that_its_source_let_go_is_refused_and_the_next_one_is_installed() {
    let group = Group::with_a_laggard().await;
    let (leader, follower) = (group.of(1), group.of(3));
    let snapshot = leader.current().await;
    let reference = snapshot.snapshot.reference().clone();
    let received = follower.receives(leader.vote(), &snapshot.meta, &reference);
    drop(snapshot.snapshot);
    match received.await {
        Err(ReceiveError::Restore(error)) => assert_eq!(error.kind(), ErrorKind::SourceGone),
        other => panic!("{other:?}"),
    }
    assert_eq!(follower.faults.call_count(Call::Publish), 0);
    group.network.heal(3);
    group.agrees().await;
}

// Mutant: `receive` moves the rows in a task of its own.
#[tokio::test(start_paused = true)]
async fn a_transfer_that_nobody_waits_for_leaves_nothing() {
    let group = Group::with_a_laggard().await;
    let (leader, follower) = (group.of(1), group.of(3));
    let snapshot = leader.current().await;
    follower
        .faults
        .arm(Call::Load, 1, Fault::Hang(Effect::Happened));
    let received = follower.receives(leader.vote(), &snapshot.meta, snapshot.snapshot.reference());
    let received = tokio::spawn(received);
    follower.faults.until_hung(1).await;
    received.abort();
    assert!(received.await.unwrap_err().is_cancelled());
    follower.faults.release();
    // The session ends in a task of its own.
    while follower.store.inner().begin_replace(&[ROWS]).await.is_err() {
        tokio::task::yield_now().await;
    }
    group.network.heal(3);
    group.agrees().await;
}

// Mutant: each `receive` has a session of its own.
#[tokio::test(start_paused = true)]
async fn a_leader_that_asks_twice_has_the_rows_moved_once() {
    let group = Group::with_a_laggard().await;
    let (leader, follower) = (group.of(1), group.of(3));
    let snapshot = leader.current().await;
    let ask = || follower.receives(leader.vote(), &snapshot.meta, snapshot.snapshot.reference());
    let (first, second) = tokio::join!(ask(), ask());
    first.unwrap();
    second.unwrap();
    assert_eq!(follower.begins(), 1);
    assert_eq!(follower.applied(), group.of(1).applied());
}

// Mutant: `builder` does not sync.
#[tokio::test(start_paused = true)]
async fn what_a_snapshot_covers_does_not_depend_on_the_log() {
    let mut group = Group::of_three().await;
    group.of(1).compact().await;
    let applied = group.of(1).applied();
    group.restart(1).await;
    let at_start = group.of(1).snapshots.applied().await.unwrap();
    assert!(at_start.last_log_id.unwrap().index() >= applied);
    group.elect(1).await;
    group.agrees().await;
}

// Mutant: `builder` leaves `latest` alone.
#[tokio::test(start_paused = true)]
async fn what_is_sent_is_never_older_than_the_log_that_is_left() {
    let mut group = Group::of_three().await;
    let old = group.of(1).current().await;
    let same = group.of(1).current().await;
    assert_eq!(old.snapshot.reference(), same.snapshot.reference());
    group.write(10).await;
    group.agrees().await;
    group.of(1).compact().await;
    let new = group.of(1).current().await;
    assert_eq!(new.meta.last_log_id.unwrap().index(), group.of(1).applied());
}
