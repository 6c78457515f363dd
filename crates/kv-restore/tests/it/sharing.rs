//! Requests that meet: the same ones share a session, others give way or are refused.

use std::{sync::atomic::Ordering, time::Duration};

use kv_restore::{ErrorKind, PeerId, Phase};
use pop_store::testkit::{Call, Effect, Fault};

use crate::kit::{Trouble, World, at, failed, leader, other, until_hung};

#[tokio::test(start_paused = true)]
async fn s13_the_same_request_shares_the_session_and_both_get_its_outcome() {
    let world = World::filled().await;
    let first = until_hung(&world, Call::Load, Effect::Happened).await;
    let second = world.restore(at(1, 1, 10)).unwrap();
    assert_eq!(first.id(), second.id());
    world.faults.release();
    assert_eq!(
        first.outcome().await.unwrap(),
        second.outcome().await.unwrap()
    );
    assert_eq!(world.begins(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s14_two_hundred_callers_at_once_share_one_session() {
    let world = std::sync::Arc::new(World::filled().await);
    let callers: Vec<_> = (0..200)
        .map(|_| {
            let world = std::sync::Arc::clone(&world);
            tokio::spawn(async move { world.restored().await.unwrap() })
        })
        .collect();
    let mut moved = 0;
    for caller in callers {
        moved += u32::from(!caller.await.unwrap().already);
    }
    // Who comes late is told that it is installed; who came in time was in the one session.
    assert!(moved >= 1);
    assert_eq!(world.begins(), 1);
    assert!(world.same().await);
}

#[tokio::test(start_paused = true)]
async fn s16_the_same_request_after_a_failure_is_another_session() {
    let world = World::filled().await;
    world.faults.arm(Call::Load, 1, Fault::Refuse);
    let error = failed(world.restored().await, ErrorKind::Staging);
    world.heals(&error).await;
}

#[tokio::test(start_paused = true)]
async fn s17_the_last_handle_that_is_dropped_cancels_and_no_other() {
    let world = World::filled().await;
    let first = until_hung(&world, Call::Load, Effect::Happened).await;
    let second = world.restore(at(1, 1, 10)).unwrap();
    drop(first);
    world.faults.release();
    second.outcome().await.unwrap();

    let world = World::filled().await;
    let session = until_hung(&world, Call::Load, Effect::Happened).await;
    let progress = session.progress();
    drop(session);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(world.restorer.live(), None);
    assert_eq!(progress.borrow().phase, Phase::Ended);
    world.faults.release();
    world.is_quiet().await;
}

#[tokio::test(start_paused = true)]
async fn s17_a_detached_session_goes_on_and_can_be_joined_again() {
    let world = World::filled().await;
    let session = until_hung(&world, Call::Load, Effect::Happened).await;
    let id = session.id();
    session.detach();
    drop(session);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let again = world.restore(at(1, 1, 10)).unwrap();
    assert_eq!(again.id(), id);
    drop(again);
    world.faults.release();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(world.same().await);
}

// Mutant: who gives way is not told to.
#[tokio::test(start_paused = true)]
async fn s18_a_newer_snapshot_takes_the_place_and_waits_for_the_staging() {
    let world = World::filled().await;
    world.offer(2).await;
    let old = until_hung(&world, Call::Load, Effect::Happened).await;
    let new = world.restore(at(2, 1, 11)).unwrap();
    failed(old.outcome().await, ErrorKind::Superseded);
    // A second staging while the first is open would be refused by the target.
    assert_eq!(new.outcome().await.unwrap().seal.applied, 11);
    assert_eq!(world.begins(), 2);
    world.faults.release();
    world.is_quiet().await;
}

// Mutant: AgeIgnored.
#[tokio::test(start_paused = true)]
async fn s19_an_older_snapshot_is_refused_and_the_running_one_goes_on() {
    let world = World::filled().await;
    let running = until_hung(&world, Call::Load, Effect::Happened).await;
    let error = world.restore(at(2, 1, 9)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Obsolete);
    world.faults.release();
    running.outcome().await.unwrap();
    // The same holds once it is installed.
    let late = world.restore(at(2, 1, 9)).unwrap().outcome().await;
    failed(late, ErrorKind::Obsolete);
}

// Mutant: ToldBeforeReleased.
#[tokio::test(start_paused = true)]
async fn s20_a_higher_epoch_with_less_takes_the_place_of_a_dead_source_at_once() {
    let world = World::filled().await;
    world.offer(2).await;
    world.way.set(&leader(), Trouble::Silent);
    let dead = world.restore(at(1, 1, 10)).unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let started = tokio::time::Instant::now();
    let new = world.restorer.restore(at(2, 2, 5), &[other()]).unwrap();
    failed(dead.outcome().await, ErrorKind::Superseded);
    let installed = new.outcome().await.unwrap();
    assert_eq!((installed.seal.epoch.0, installed.seal.applied), (2, 5));
    assert!(started.elapsed() < Duration::from_secs(1));
}

// Mutants: EpochIgnored, FenceIgnored.
#[tokio::test(start_paused = true)]
async fn s21_a_lower_epoch_is_refused_before_and_after_the_install() {
    let world = World::filled().await;
    world
        .faults
        .arm(Call::Load, 1, Fault::Hang(Effect::Happened));
    let running = world.restore(at(1, 5, 10)).unwrap();
    world.faults.until_hung(1).await;
    let error = world.restore(at(2, 4, 99)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StaleEpoch);
    world.faults.release();
    running.outcome().await.unwrap();
    let error = world.restore(at(2, 4, 99)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StaleEpoch);
    // The seal says so also to who was not there.
    let target = world.target.inner().clone();
    let late = world.asked_in(target, at(2, 4, 99)).await;
    failed(late, ErrorKind::StaleEpoch);
    assert!(world.same().await);
}

// Mutant: EpochIgnored. What the higher epoch asked for failed, or was there already.
#[tokio::test(start_paused = true)]
async fn s21_a_lower_epoch_is_refused_also_if_the_higher_one_installed_nothing() {
    let world = World::filled().await;
    world.restored().await.unwrap();
    for (id, epoch) in [(1, 7), (9, 8)] {
        let asked = world.restore(at(id, epoch, 11)).unwrap().outcome().await;
        assert!(asked.map_or(true, |installed| installed.already));
        let error = world.restore(at(2, epoch - 1, 99)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::StaleEpoch);
    }
}

// Mutants: StopDuringCommit, TurnNotTaken.
#[tokio::test(start_paused = true)]
async fn s22_a_newer_request_waits_for_a_commit_and_then_runs_or_is_covered() {
    for (id, applied, already) in [(2, 11, false), (1, 11, true)] {
        let world = World::filled().await;
        world.offer(2).await;
        let committing = until_hung(&world, Call::Publish, Effect::DidNotHappen).await;
        let newer = world.restore(at(id, 1, applied)).unwrap();
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert_eq!(world.begins(), 1);
        world.faults.release();
        committing.outcome().await.unwrap();
        assert_eq!(newer.outcome().await.unwrap().already, already);
    }
}

// Mutant: SlotNotEmptied.
#[tokio::test(start_paused = true)]
async fn s23_a_storm_of_requests_has_one_staging_open_and_the_last_one_wins() {
    let world = World::filled().await;
    world.offer(2).await;
    let mut sessions = Vec::new();
    for n in 0..100 {
        sessions.push(
            world
                .restore(at(1 + u128::from(n % 2 == 1), 1, 10 + n))
                .unwrap(),
        );
        if n % 3 == 0 {
            tokio::task::yield_now().await;
        }
    }
    let last = sessions.pop().unwrap();
    assert_eq!(last.outcome().await.unwrap().seal.applied, 109);
    for session in sessions {
        let outcome = session.outcome().await;
        let gave_way = |error: kv_restore::RestoreError| {
            // Two stagings at once would end one of them with `Begin`.
            assert_eq!(error.kind(), ErrorKind::Superseded, "{error}");
        };
        outcome.map_or_else(gave_way, |_| ());
    }
    world.is_quiet().await;
}

#[tokio::test(start_paused = true)]
async fn s24_a_source_that_breaks_is_followed_by_another_which_goes_on() {
    let world = World::filled().await;
    world.way.set(&leader(), Trouble::FailsLater);
    let sources = [leader(), other()];
    let session = world.restorer.restore(at(1, 1, 10), &sources).unwrap();
    session.outcome().await.unwrap();
    assert!(world.same().await);
    assert_eq!(world.begins(), 1, "what was loaded is kept");
    assert_eq!(session.progress().borrow().source, 1);
    assert_eq!(world.way.connects.load(Ordering::Relaxed), 2);
    // One that has nothing is followed, too; and if nobody has it, that is said.
    let gone = world
        .restorer
        .restore(at(7, 1, 11), &[leader(), PeerId::new("nobody")]);
    failed(gone.unwrap().outcome().await, ErrorKind::Transport);
    let gone = world.restorer.restore(at(7, 1, 11), &[other()]);
    failed(gone.unwrap().outcome().await, ErrorKind::SourceGone);
}
