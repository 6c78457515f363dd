//! The seed: a restore whose start fails must not be handed out for ever; and its siblings,
//! each another place at which the ancestor leaves somebody waiting.

use std::{sync::atomic::Ordering, time::Duration};

use kv_restore::{
    Backoff, ErrorKind, Phase, Request, RestoreError, Retry, SessionId, SnapshotRef, Switch,
    registry::Registry,
};
use pop_store::{
    Durability, Store, WriteBatch,
    testkit::{Call, Effect, Fault},
};
use tokio::time::Instant;

use crate::{
    kit::{SEALS, Trouble, World, at, failed, in_steps, leader, rows_of, until_hung, write},
    naive,
};

/// The fault, on the registry that has it: the same dead session again, and it never ends.
#[tokio::test(start_paused = true)]
async fn s01_the_naive_registry_hands_a_dead_session_out_for_ever() {
    let world = World::filled().await;
    world.faults.arm(Call::BeginReplace, 1, Fault::Refuse);
    let (begins, second_ends) = naive::twice(&world).await;
    assert_eq!(begins, 1, "the retry did not even try");
    assert!(!second_ends);
}

// Mutant: SlotNotEmptied.
#[tokio::test(start_paused = true)]
async fn s01_restore_whose_start_throws_fails_its_future_and_a_retry_makes_a_fresh_session() {
    let world = World::filled().await;
    let before = world.target_rows().await;
    world.faults.arm(Call::BeginReplace, 1, Fault::Refuse);
    let error = failed(world.restored().await, ErrorKind::Begin);
    assert_eq!(
        (error.phase(), error.retry()),
        (Phase::Opening, Retry::Later)
    );
    assert_eq!(world.restorer.live(), None);
    assert_eq!(world.target_rows().await, before);
    world.heals(&error).await;
}

// Mutant: GuardWithoutDrop.
#[tokio::test(start_paused = true)]
async fn s02_restore_whose_start_panics_fails_its_future_and_a_retry_makes_a_fresh_session() {
    let world = World::filled().await;
    let effect = Effect::DidNotHappen;
    world
        .faults
        .arm(Call::BeginReplace, 1, Fault::Panic(effect));
    let error = failed(world.restored().await, ErrorKind::TaskLost);
    assert_eq!(error.phase(), Phase::Opening);
    world.heals(&error).await;
}

// Mutant: NoLocalDeadline.
#[tokio::test(start_paused = true)]
async fn s03_restore_whose_start_hangs_is_given_up_and_its_late_end_changes_nothing() {
    let effects = [Effect::Happened, Effect::DidNotHappen];
    // Whether its end comes before the retry, or after it.
    for (effect, first) in effects.into_iter().flat_map(|it| [(it, true), (it, false)]) {
        let world = World::filled().await;
        let started = Instant::now();
        let session = until_hung(&world, Call::BeginReplace, effect).await;
        let error = failed(session.outcome().await, ErrorKind::Stalled);
        assert_eq!(error.phase(), Phase::Opening);
        assert!(started.elapsed() <= Duration::from_secs(61));
        if first {
            world.faults.release();
        }
        world.heals(&error).await;
        world.faults.release();
        world.is_quiet().await;
        assert!(world.same().await);
    }
}

#[tokio::test(start_paused = true)]
async fn s04_a_source_that_can_not_be_asked_fails_the_future_at_once() {
    let world = World::filled().await;
    world.way.set(&leader(), Trouble::Refused);
    let started = Instant::now();
    let error = failed(world.restored().await, ErrorKind::Transport);
    assert!(started.elapsed() < Duration::from_millis(100));
    world.way.set(&leader(), Trouble::None);
    world.heals(&error).await;
}

// Mutant: GuardWithoutDrop.
#[tokio::test(start_paused = true)]
async fn s05_a_transport_that_panics_fails_the_future_and_gives_the_staging_back() {
    let world = World::filled().await;
    world.way.set(&leader(), Trouble::Panics);
    let error = failed(world.restored().await, ErrorKind::TaskLost);
    assert_eq!(error.phase(), Phase::Pulling);
    world.way.set(&leader(), Trouble::None);
    world.heals(&error).await;
}

#[tokio::test(start_paused = true)]
async fn s06_a_question_that_fails_later_fails_the_future_once() {
    let world = World::filled().await;
    world.way.set(&leader(), Trouble::FailsLater);
    let error = failed(world.restored().await, ErrorKind::Transport);
    world.way.set(&leader(), Trouble::None);
    world.heals(&error).await;
}

#[tokio::test(start_paused = true)]
async fn s07_a_commit_that_is_refused_leaves_the_old_content_and_a_retry_succeeds() {
    let world = World::filled().await;
    let before = world.target_rows().await;
    world.faults.arm(Call::Publish, 1, Fault::Refuse);
    let error = failed(world.restored().await, ErrorKind::Commit(Switch::NotDone));
    assert_eq!(world.target_rows().await, before);
    world.heals(&error).await;
}

#[tokio::test(start_paused = true)]
async fn s08_a_commit_that_panics_before_the_switch_leaves_the_old_content() {
    let world = World::filled().await;
    let before = world.target_rows().await;
    world
        .faults
        .arm(Call::Publish, 1, Fault::Panic(Effect::DidNotHappen));
    let error = failed(world.restored().await, ErrorKind::TaskLost);
    assert_eq!(error.phase(), Phase::Committing);
    assert_eq!(world.target_rows().await, before);
    world.heals(&error).await;
}

// F16: after the doubt the seal of the reopened store decides. Mutant: it is not done.
#[tokio::test(start_paused = true)]
async fn s08_a_commit_in_doubt_is_said_to_be_in_doubt_and_the_reopened_store_decides() {
    for effect in [Effect::Happened, Effect::DidNotHappen] {
        let doubt = ErrorKind::Commit(Switch::InDoubt);
        let world = World::filled().await;
        world.faults.arm(Call::Publish, 1, Fault::InDoubt(effect));
        failed(world.restored().await, doubt);
        // Nothing goes on in a store that does not know what it holds.
        failed(world.restored().await, ErrorKind::Begin);

        let world = World::filled().await;
        let fault = Fault::Crash {
            effect,
            keep: usize::MAX,
        };
        world.faults.arm(Call::Publish, 1, fault);
        let error = failed(world.restored().await, doubt);
        assert_eq!(error.retry(), Retry::Never);
        let reopened = world.target.take_crashed().unwrap();
        let rows = rows_of(&reopened).await;
        let installed = rows == world.source_rows().await;
        assert_eq!(installed, effect == Effect::Happened);
    }
}

// Mutants: the drop of the staging ends the task before its outcome is told, or the process;
// the place of a session is lost with it.
#[tokio::test(start_paused = true)]
async fn s09_a_staging_whose_drop_panics_changes_no_outcome_and_keeps_no_room() {
    let effect = Effect::DidNotHappen;
    let faults = [
        (Fault::Refuse, ErrorKind::Staging),
        (Fault::Full, ErrorKind::NoSpace),
        (Fault::Hang(effect), ErrorKind::Stalled),
        (Fault::Panic(effect), ErrorKind::TaskLost),
    ];
    for (fault, kind) in faults {
        let world = World::filled().await;
        world.faults.arm(Call::Load, 2, fault);
        world.faults.arm(Call::Drop, 1, Fault::Panic(effect));
        let error = failed(world.restored().await, kind);
        assert_eq!(world.faults.injected_count(), 2, "{fault:?}");
        assert_eq!(world.admission.free(), 2, "{fault:?}");
        world.faults.release();
        world.heals(&error).await;
    }
}

// Mutants: a panic of the sweep is what is told; it is waited for until the switch is stalled.
#[tokio::test(start_paused = true)]
async fn s09_a_full_disk_is_told_whatever_becomes_of_the_sweep_that_it_needs() {
    let effect = Effect::DidNotHappen;
    for fault in [Fault::Refuse, Fault::Panic(effect), Fault::Hang(effect)] {
        let world = World::filled().await;
        world.faults.arm(Call::Publish, 1, Fault::Full);
        world.faults.arm(Call::BeginReplace, 2, fault);
        let error = failed(world.restored().await, ErrorKind::NoSpace);
        assert_eq!(world.faults.injected_count(), 2, "{fault:?}");
        world.heals(&error).await;
    }
}

// Mutant: the drop of the staging ends the task before its outcome is told.
#[tokio::test(start_paused = true)]
async fn s09_what_a_store_that_is_gone_could_not_clean_up_is_no_hindrance_to_the_next_open() {
    let world = World::filled().await;
    let before = world.target_rows().await;
    let (effect, keep) = (Effect::DidNotHappen, usize::MAX);
    world
        .faults
        .arm(Call::Load, 2, Fault::Crash { effect, keep });
    world.faults.arm(Call::Drop, 1, Fault::Panic(effect));
    let error = failed(world.restored().await, ErrorKind::Staging);
    assert_eq!(error.phase(), Phase::Receiving);
    assert_eq!(world.restorer.live(), None);
    let reopened = world.target.take_crashed().unwrap();
    assert_eq!(rows_of(&reopened).await, before);
    world.restored_in(reopened.clone()).await.unwrap();
    assert_eq!(rows_of(&reopened).await, world.source_rows().await);
}

#[test]
fn s10_a_runtime_that_shuts_down_answers_every_waiter() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    let (world, session) = runtime.block_on(async {
        let world = World::filled().await;
        let session = until_hung(&world, Call::Load, Effect::DidNotHappen).await;
        (world, session)
    });
    runtime.shutdown_background();
    let waiting = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let error = failed(waiting.block_on(session.outcome()), ErrorKind::TaskLost);
    assert_eq!(error.phase(), Phase::Verifying);
    // A spawn that is refused is no exception.
    let session = world.restore(at(1, 1, 10)).unwrap();
    failed(waiting.block_on(session.outcome()), ErrorKind::TaskLost);
    assert_eq!(world.restorer.live(), None);
}

// Mutant: FenceIgnored.
#[tokio::test(start_paused = true)]
async fn s11_a_step_after_an_install_fails_by_itself_and_its_retry_copies_nothing() {
    let (effect, keep) = (Effect::DidNotHappen, 0);
    for fault in [Fault::Refuse, Fault::Crash { effect, keep }] {
        let world = World::filled().await;
        let session = world.restore(at(1, 1, 10)).unwrap();
        let installed = session.outcome().await.unwrap();
        // The caller notes the install in a row of its own, and that fails.
        world.faults.arm(Call::Write, 1, fault);
        let mut note = WriteBatch::new();
        note.put(SEALS, "note".into(), "installed".into());
        let noted = world.target.write(note, Durability::Synced).await;
        assert!(noted.is_err());
        assert_eq!(session.outcome().await.unwrap(), installed);
        // It tries the whole of it again, maybe in a process that remembers nothing.
        let connects = world.way.connects.load(Ordering::Relaxed);
        let left = world.target.take_crashed();
        let store = left.unwrap_or_else(|| world.target.inner().clone());
        let again = world.restored_in(store.clone()).await.unwrap();
        assert!(again.already, "{fault:?}");
        assert_eq!(again.seal, installed.seal);
        assert_eq!(world.way.connects.load(Ordering::Relaxed), connects);
        assert_eq!(rows_of(&store).await, world.source_rows().await);
    }
}

// Mutant: FenceIgnored.
#[tokio::test(start_paused = true)]
async fn s15_what_is_installed_is_not_copied_again() {
    let world = World::filled().await;
    let first = world.restored().await.unwrap();
    assert!(!first.already);
    let copied = (world.begins(), world.way.connects.load(Ordering::Relaxed));
    let second = world.restored().await.unwrap();
    assert!(second.already);
    assert_eq!(second.seal, first.seal);
    let now = (world.begins(), world.way.connects.load(Ordering::Relaxed));
    assert_eq!(now, copied);
}

#[tokio::test(start_paused = true)]
async fn s12_a_request_that_can_not_be_read_is_refused_without_a_session() {
    let world = World::filled().await;
    let mut unknown = at(1, 1, 10);
    unknown.keyspaces.push("nowhere".into());
    let mut nameless = at(1, 1, 10);
    nameless.space.clear();
    for request in [unknown, nameless] {
        let error = world.restore(request).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Protocol, "{error}");
        assert_eq!(error.session(), None);
    }
    let error = world.restorer.restore(at(1, 1, 10), &[]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Protocol);
    // Also of a registry without a restorer around it.
    let nobody = Request {
        at: at(1, 1, 10).into(),
        sources: [].into(),
        hold: false,
    };
    let error = Registry::default().enter(nobody, SessionId(1)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Protocol, "{error}");
    let mut bytes = at(1, 1, 10).to_bytes().to_vec();
    bytes[20] ^= 1;
    assert!(SnapshotRef::from_bytes(&bytes).is_err());
    assert_eq!(world.begins(), 0);
}

/// Every call of the target that a session makes, and everything that can go wrong in it.
#[test]
fn every_fault_in_every_call_of_the_target_ends_the_session_and_a_retry_succeeds() {
    // So that whoever is told looks before anything else is done.
    in_steps().block_on(every_fault_in_every_call());
}

async fn every_fault_in_every_call() {
    let calls = [
        (Call::Get, 2),
        (Call::BeginReplace, 1),
        (Call::Load, 4),
        (Call::Checkpoint, 3),
        (Call::Scan, 1),
        (Call::Publish, 1),
    ];
    let effects = [Effect::Happened, Effect::DidNotHappen];
    let hits = calls
        .into_iter()
        .flat_map(|(call, count)| (1..=count).map(move |nth| (call, nth)));
    for (call, nth) in hits {
        let faults = effects
            .into_iter()
            .flat_map(|effect| [Fault::Panic(effect), Fault::Hang(effect)])
            .chain([Fault::Refuse, Fault::Delay(Duration::from_secs(50))]);
        for fault in faults {
            let world = World::new();
            write(&world.target, 17, 1).await;
            write(&world.source, 100, 2).await;
            world.offer(1).await;
            let before = world.target_rows().await;
            world.faults.arm(call, nth, fault);
            let outcome = world.restored().await;
            assert_eq!(world.faults.injected_count(), 1, "{call:?} {nth}");
            let happened = world.same().await;
            match &outcome {
                Ok(_) => assert!(happened, "{call:?} {nth} {fault:?}"),
                Err(error) => {
                    // Only a switch whose answer was lost may have happened unseen.
                    let unseen = call == Call::Publish && happened;
                    assert!(unseen || world.target_rows().await == before, "{error}");
                    let kind = error.kind();
                    if error.phase() == Phase::Committing {
                        // Mutant: what can't be read while it commits is said to be its begin.
                        let named = matches!(
                            kind,
                            ErrorKind::Commit(_) | ErrorKind::Stalled | ErrorKind::TaskLost
                        );
                        assert!(named, "{call:?} {nth} {error}");
                    }
                }
            }
            // S55: at once, but for a switch that hangs. Mutant: ToldBeforeReleased.
            let hangs = |error: &RestoreError| {
                (error.kind(), error.phase()) == (ErrorKind::Stalled, Phase::Committing)
            };
            if !outcome.as_ref().is_err_and(hangs) {
                assert_eq!(world.admission.free(), 2, "{call:?} {nth} {fault:?}");
            }
            assert_eq!(world.restorer.live(), None);
            world.faults.release();
            let again = world.restored().await.unwrap();
            assert_eq!(again.already, happened || again.already);
            assert!(world.same().await, "{call:?} {nth} {fault:?}");
            world.is_quiet().await;
        }
    }
}

/// Mutants: take a full disk for any other refusal; keep what fills it.
#[tokio::test(start_paused = true)]
async fn s69_a_full_disk_in_any_call_is_named_and_leaves_the_old_content_and_its_room() {
    let calls = [
        (Call::BeginReplace, 1),
        (Call::Load, 1),
        (Call::Load, 7),
        (Call::Checkpoint, 1),
        (Call::Checkpoint, 3),
        (Call::Publish, 1),
    ];
    for (call, nth) in calls {
        let world = World::filled().await;
        let before = world.target_rows().await;
        world.faults.arm(call, nth, Fault::Full);
        let error = failed(world.restored().await, ErrorKind::NoSpace);
        assert_eq!(world.faults.injected_count(), 1, "{call:?} {nth}");
        assert_eq!(error.retry(), Retry::Later);
        let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(30));
        assert_eq!(backoff.after(&error, 0), Some(Duration::from_secs(30)));
        assert_eq!(world.target_rows().await, before);
        assert_eq!(world.target.inner().kept_bytes(), 0, "{call:?} {nth}");
        world.heals(&error).await;
    }
}
