//! Leaders that meet: dead, overruled, or of the same term.

use std::{sync::atomic::Ordering, time::Duration};

use openraft::{type_config::alias::VoteOf, vote::Vote};
use pop_store::testkit::{Call, Effect, Fault};
use tokio::time::Instant;

use super::{group::Group, machine::Types};

fn vote(term: u64, node: u64) -> VoteOf<Types> {
    Vote::new_committed(term, node)
}

// Mutant: neither a higher vote nor a higher epoch ends what is moved.
#[tokio::test(start_paused = true)]
async fn s20_a_leader_killed_in_mid_transfer_is_followed_by_one_with_less() {
    let mut group = Group::of_three().await;
    group.network.cut(3);
    group.write(10).await;
    group.two_agree().await;
    group.of(2).compact().await;
    // The second node has the entries, and does not know that they are agreed on.
    let known = group.of(2).metrics().last_applied;
    group.network.tell_up_to(2, known);
    group.write(20).await;
    group.of(1).compact().await;
    group
        .of(3)
        .faults
        .arm(Call::Load, 1, Fault::Hang(Effect::Happened));
    group.network.heal(3);
    group.of(3).faults.until_hung(1).await;

    group.kill(1).await;
    let killed = Instant::now();
    let less = group.of(2).current().await.meta.last_log_id;
    assert_eq!(less, known);
    group.network.tell_all(2);
    group.elect(2).await;
    group.agrees().await;
    // Sooner than any clock of the session that was under way.
    assert!(killed.elapsed() < Duration::from_secs(30));
    assert_eq!(group.of(3).faults.hung_count(), 0);
    assert_eq!(group.of(3).faults.call_count(Call::Publish), 1);
    group.write(3).await;
    group.agrees().await;
}

// Mutant: the vote is not looked at before the transfer.
#[tokio::test(start_paused = true)]
async fn a_leader_that_was_overruled_costs_no_copy() {
    let mut group = Group::with_a_laggard().await;
    let (old, snapshot) = (group.of(1).vote(), group.of(1).current().await);
    group.elect(2).await;
    // The third node hears of the new leader, and can't be sent anything yet.
    let refused = Fault::Refuse;
    for nth in 1..1_000 {
        group.of(3).faults.arm(Call::BeginReplace, nth, refused);
    }
    group.network.heal(3);
    let wait = group.of(3).raft.wait(Some(Duration::from_secs(60)));
    wait.current_leader(2, "heard").await.unwrap();
    group.network.cut(3);
    let follower = group.of(3);
    follower.faults.disarm();
    let connects = group.rows.connects.load(Ordering::Relaxed);
    let begins = follower.begins();
    let received = follower.receives(old, &snapshot.meta, snapshot.snapshot.reference());
    let answer = received.await.unwrap();
    assert_eq!(answer.vote, follower.vote());
    assert_eq!(follower.begins(), begins);
    assert_eq!(group.rows.connects.load(Ordering::Relaxed), connects);
    group.network.heal(3);
    group.agrees().await;
}

// Mutant: what is there already is moved.
#[tokio::test(start_paused = true)]
async fn what_a_follower_has_already_is_not_moved() {
    let group = Group::with_a_laggard().await;
    let snapshot = group.of(1).current().await;
    let vote = group.of(1).vote();
    let reference = snapshot.snapshot.reference();
    let received = group.of(2).receives(vote, &snapshot.meta, reference);
    assert_eq!(received.await.unwrap().vote, vote);
    assert_eq!(group.of(2).begins(), 0);
}

// Mutant: `begin` does not end what a lower vote moves.
#[tokio::test(start_paused = true)]
async fn a_higher_vote_of_the_same_term_takes_the_place_also_with_less() {
    let mut group = Group::with_a_laggard().await;
    let low = group.of(2).current().await;
    group.write(5).await;
    group.two_agree().await;
    let high = group.of(1).current().await;
    let follower = group.of(3);
    follower
        .faults
        .arm(Call::Load, 1, Fault::Hang(Effect::Happened));
    let first = follower.receives(vote(5, 1), &high.meta, high.snapshot.reference());
    let first = tokio::spawn(first);
    follower.faults.until_hung(1).await;
    let second = follower.receives(vote(5, 2), &low.meta, low.snapshot.reference());
    second.await.unwrap();
    first.await.unwrap().unwrap_err();
    assert_eq!(
        Some(follower.applied()),
        low.meta.last_log_id.map(|it| it.index())
    );
    group.network.heal(3);
    group.elect(1).await;
    group.agrees().await;
}

// Mutant: `receive` lets go of its place before Raft has installed.
#[tokio::test(start_paused = true)]
async fn what_raft_was_given_keeps_its_place_until_it_is_installed() {
    let mut group = Group::of_three().await;
    // The third node applies an entry for a while, so that what it is given has to wait.
    group
        .of(3)
        .faults
        .arm(Call::Write, 1, Fault::Hang(Effect::Happened));
    group.write(1).await;
    group.of(3).faults.until_hung(1).await;
    group.network.cut(3);
    group.write(10).await;
    group.two_agree().await;
    let low = group.of(2).current().await;
    group.write(10).await;
    group.two_agree().await;
    let high = group.of(1).current().await;
    let follower = group.of(3);
    let first = follower.receives(vote(5, 1), &low.meta, low.snapshot.reference());
    let first = tokio::spawn(first);
    let accepted = follower.raft.wait(Some(Duration::from_secs(60)));
    let index = low.meta.last_log_id.map(|it| it.index());
    let accepted = accepted.metrics(|it| it.last_log_index >= index, "accepted");
    accepted.await.unwrap();
    let second = follower.receives(vote(5, 2), &high.meta, high.snapshot.reference());
    let mut second = tokio::spawn(second);
    let soon = tokio::time::timeout(Duration::from_secs(30), &mut second);
    soon.await.expect_err("it should have waited");
    follower.faults.release();
    first.await.unwrap().unwrap();
    second.await.unwrap().unwrap();
    group.network.heal(3);
    group.elect(1).await;
    group.agrees().await;
}

// Mutant: `receive` gives Raft what lost its place meanwhile.
#[test]
fn two_leaders_that_meet_at_any_moment_leave_raft_alive() {
    // Whoever yields is next after a single step of another task.
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_all().start_paused(true).event_interval(1);
    runtime.build().unwrap().block_on(async {
        let mut group = Group::with_a_laggard().await;
        let mut interrupted = 0;
        for steps in 0.. {
            group.write(1).await;
            group.two_agree().await;
            let low = group.of(2).current().await;
            group.write(1).await;
            group.two_agree().await;
            let high = group.of(1).current().await;
            let (follower, term) = (group.of(3), 5 + steps);
            let first = follower.receives(vote(term, 1), &low.meta, low.snapshot.reference());
            let first = tokio::spawn(first);
            for _ in 0..steps {
                tokio::task::yield_now().await;
            }
            let was_over = first.is_finished();
            let second = follower.receives(vote(term, 2), &high.meta, high.snapshot.reference());
            second.await.unwrap();
            interrupted += u32::from(first.await.unwrap().is_err());
            let index = high.meta.last_log_id.map(|it| it.index());
            let applied = follower.snapshots.applied().await.unwrap().last_log_id;
            assert_eq!(applied.map(|it| it.index()), index, "after {steps} steps");
            if was_over {
                break;
            }
        }
        assert!(interrupted > 3, "{interrupted}");
    });
}
