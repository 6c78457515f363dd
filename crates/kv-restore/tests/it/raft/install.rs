//! The switch: what a node holds that fails in it, and what it goes on with.

use kv_restore::raft::Snapshots;
use pop_store::{
    Durability, Store, WriteBatch,
    testkit::{Call, Effect, Fault},
};

use super::{
    group::{Group, content},
    machine::{APPLIED, Types},
};

async fn applied(snapshots: &Snapshots<Types>) -> u64 {
    let applied = snapshots.applied().await.unwrap();
    assert_eq!(applied.last_membership.membership().voter_ids().count(), 3);
    applied.last_log_id.unwrap().index()
}

// Mutant: `Load::commit` leaves the seal out; `applied` does not read it.
#[tokio::test(start_paused = true)]
async fn a_follower_that_dies_in_the_switch_has_the_old_content_or_the_new_and_catches_up() {
    use Effect::{DidNotHappen, Happened};
    let crash = |effect, keep| Fault::Crash { effect, keep };
    for (fault, switched) in [
        (crash(DidNotHappen, 0), false),
        (crash(DidNotHappen, usize::MAX), false),
        (crash(Happened, usize::MAX), true),
        (Fault::InDoubt(DidNotHappen), false),
        (Fault::InDoubt(Happened), true),
        (Fault::Refuse, false),
        (Fault::Panic(DidNotHappen), false),
        (Fault::Panic(Happened), true),
    ] {
        let mut group = Group::with_a_laggard().await;
        let synced = group
            .of(3)
            .store
            .write(WriteBatch::new(), Durability::Synced);
        synced.await.unwrap();
        let old = (content(group.of(3)).await, group.of(3).applied());
        let new = (content(group.of(1)).await, group.of(1).applied());
        group.of(3).faults.arm(Call::Publish, 1, fault);
        group.network.heal(3);
        group.of(3).has_ended().await;
        group.restart(3).await;
        group.network.cut(3);
        let found = (
            content(group.of(3)).await,
            applied(&group.of(3).snapshots).await,
        );
        let expected = if switched { new } else { old };
        assert_eq!(found, expected, "{fault:?}");
        group.network.heal(3);
        group.agrees().await;
        group.write(3).await;
        group.agrees().await;
    }
}

// Mutant: `read` takes the seal for the later one, or the row.
#[tokio::test(start_paused = true)]
async fn how_far_a_node_has_come_is_the_later_of_its_install_and_its_entries() {
    let mut group = Group::with_a_laggard().await;
    let before = applied(&group.of(3).snapshots).await;
    group.network.heal(3);
    group.agrees().await;
    let installed = applied(&group.of(3).snapshots).await;
    assert!(installed > before);
    assert_eq!(installed, group.of(1).applied());
    group.write(1).await;
    group.agrees().await;
    assert_eq!(applied(&group.of(3).snapshots).await, installed + 1);
}

// Mutant: `install` wants something staged always.
#[tokio::test(start_paused = true)]
async fn a_node_that_starts_anew_is_given_what_it_holds() {
    let mut group = Group::with_a_laggard().await;
    group.network.heal(3);
    group.agrees().await;
    group.restart(3).await;
    let member = group.of(3);
    let current = member.current().await;
    let again = member.snapshots.install(&current.meta, current.snapshot);
    again.await.unwrap();
    assert_eq!(member.begins(), 0);
    group.agrees().await;
}

// Mutant: `install` takes for granted that it is there.
#[tokio::test(start_paused = true)]
async fn what_was_not_staged_is_not_installed() {
    let group = Group::with_a_laggard().await;
    let newer = group.of(1).current().await;
    let follower = group.of(3);
    let installed = follower.snapshots.install(&newer.meta, newer.snapshot);
    installed.await.unwrap_err();
}

// Mutant: a session that fails is an answer to the leader.
#[tokio::test(start_paused = true)]
async fn a_refusal_and_a_panic_in_every_call_of_a_follower_end_with_all_equal() {
    let calls = [
        (Call::BeginReplace, 1),
        (Call::Load, 3),
        (Call::Publish, 1),
        (Call::Get, 3),
        (Call::Scan, 1),
        (Call::Write, 2),
    ];
    let faults = [Fault::Refuse, Fault::Panic(Effect::DidNotHappen)];
    let (mut injected, mut given_up) = (0, 0);
    for (call, nths) in calls {
        for (nth, fault) in (1..=nths).flat_map(|nth| faults.map(|fault| (nth, fault))) {
            let mut group = Group::with_a_laggard().await;
            group.of(3).faults.arm(call, nth, fault);
            group.network.heal(3);
            let caught_up = group.catches_up(3).await;
            injected += group.of(3).faults.injected_count();
            if !caught_up {
                let ended = group.of(3).metrics().running_state.is_err();
                assert!(ended, "{call:?} {nth} {fault:?}");
                given_up += 1;
                group.restart(3).await;
            }
            group.write(2).await;
            if !group.catches_up(3).await {
                group.restart(3).await;
            }
            group.agrees().await;
        }
    }
    assert!(injected > 15 && given_up > 3, "{injected} {given_up}");
}

// Mutant: the version is not looked at.
#[tokio::test(start_paused = true)]
async fn what_says_how_far_raft_is_and_can_not_be_read_is_an_error() {
    let group = Group::of_three().await;
    let member = group.of(1);
    let key: &[u8] = b"lkv";
    let row = member.store.get(APPLIED, key).await.unwrap().unwrap();
    let later = [&[2], row.get(1..).unwrap()].concat();
    let cut = row.get(..row.len() - 1).unwrap().to_vec();
    for row in [later, cut, Vec::new()] {
        let mut batch = WriteBatch::new();
        batch.put(APPLIED, key.into(), row.into());
        let written = member.store.write(batch, Durability::Synced).await;
        written.unwrap();
        member.snapshots.applied().await.unwrap_err();
        member.snapshots.current().await.unwrap_err();
    }
}
