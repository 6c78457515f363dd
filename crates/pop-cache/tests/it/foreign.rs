//! A sink with a log of its own: no batch holds both the message that was appended there and
//! the end of its delivery. A crash between the two repeats the message, and never loses it.

use std::{sync::atomic::Ordering, time::Duration};

use pop_model::Mutant;
use pop_store::{
    Outcome,
    testkit::{Effect, Fault},
};

use crate::{
    mutants::held_against,
    sink::{Answer, Told},
    world::{HIDDEN, World},
};

const SECOND: Duration = Duration::from_secs(1);
const AT_ONCE: Answer = Answer::Append(Duration::ZERO);

/// Offset 0 is out, and appended to the log once its time is up.
async fn one_out(appended: Answer, at_once: bool) -> World {
    let mut world = World::new();
    world.sink.at_once.store(at_once, Ordering::Relaxed);
    world.sink.answer(0, appended);
    world.start();
    world.pop(1).await;
    world
}

/// The next offset that is handed out.
async fn next(world: &World) -> Option<u64> {
    let popped = world.pop(1).await;
    popped.first().map(|identity| identity.offset.get())
}

/// After a crash offset 0 is handed out again, and appended for the `times`th time.
async fn comes_again(world: &mut World, times: usize) {
    assert!(!world.is_settled(0).await);
    world.start();
    world.sink.answer(0, AT_ONCE);
    assert_eq!(next(world).await, Some(0));
    world.pass(HIDDEN + SECOND).await;
    assert_eq!(world.sink.appended(), vec![0; times]);
    assert_eq!(world.committed().await, 1);
    world.stop().await.expect("the store is well");
}

async fn a_refused_end(at_once: bool) {
    let mut world = one_out(AT_ONCE, at_once).await;
    world.sink.answer(1, Answer::Fail);
    world.pop(1).await;
    // The end of 0 and the row that 1 goes on as are one batch.
    world.fail_write(0, Fault::Refuse);
    world.pass(HIDDEN + Duration::from_millis(200)).await;
    assert_eq!(world.sink.appended(), [0]);
    assert!(world.sink.was_told(Told::Unsettled(0, Outcome::Refused)));
    assert!(!world.is_settled(0).await && !world.is_settled(1).await);
    world.sink.answer(1, AT_ONCE);
    world.pass(SECOND).await;
    assert_eq!(world.sink.appended(), [0, 0, 1], "at once {at_once}");
    assert_eq!(world.committed().await, 2);
    assert!(world.rows().await.is_empty());
    world.stop().await.expect("the store is well");
}

// Catches: leases are settled in memory although their end was refused. 1 is then nowhere.
#[test]
fn a_refused_end_appends_again_and_loses_no_neighbour() {
    let mutants = [Mutant::RefusedPlanKeepsOffsets, Mutant::DeleteBeforeWrite];
    held_against(&mutants, || async {
        a_refused_end(false).await;
        a_refused_end(true).await;
    });
}

async fn an_end_in_doubt(effect: Effect, at_once: bool) {
    let mut world = one_out(AT_ONCE, at_once).await;
    world.fail_write(0, Fault::InDoubt(effect));
    world.pass(HIDDEN + SECOND).await;
    let error = world.ended().await.expect_err("the store must be reopened");
    assert_eq!(error.outcome(), Outcome::InDoubt);
    // Once, although nobody knows: what was decided is not decided again in this run.
    assert_eq!(world.sink.appended(), [0]);
    assert!(world.sink.was_told(Told::Unsettled(0, Outcome::InDoubt)));
    world.crash(usize::MAX);
    match effect {
        Effect::DidNotHappen => comes_again(&mut world, 2).await,
        Effect::Happened => assert_eq!(next(&world).await, Some(1)),
    }
    assert!(world.is_settled(0).await);
}

// Catches: an end in doubt is taken for a refusal, and the sink asked again.
#[test]
fn an_end_in_doubt_is_decided_by_the_store_when_it_is_opened_anew() {
    held_against(&[], || async {
        for at_once in [false, true] {
            an_end_in_doubt(Effect::DidNotHappen, at_once).await;
            an_end_in_doubt(Effect::Happened, at_once).await;
        }
    });
}

async fn a_crash_before_the_end(effect: Effect, at_once: bool) {
    let mut world = one_out(AT_ONCE, at_once).await;
    world.fail_write(0, Fault::Hang(effect));
    world.pass(HIDDEN + SECOND).await;
    assert_eq!(world.sink.appended(), [0]);
    // Nothing of the store that was not synced survives.
    world.crash(0);
    comes_again(&mut world, 2).await;
}

// Catches: what is due is settled before its sink is asked; nothing is appended then.
#[test]
fn a_crash_between_the_append_and_the_end_repeats_the_message() {
    held_against(&[], || async {
        for at_once in [false, true] {
            a_crash_before_the_end(Effect::DidNotHappen, at_once).await;
            a_crash_before_the_end(Effect::Happened, at_once).await;
        }
    });
}

async fn a_crash_before_the_append(keep: usize) {
    let mut world = one_out(Answer::Append(3 * SECOND), false).await;
    world.pass(HIDDEN + SECOND).await;
    assert!(world.sink.appended().is_empty(), "it takes longer");
    // The moment that counts: the message is nowhere else.
    assert!(!world.is_settled(0).await);
    world.crash(keep);
    comes_again(&mut world, 1).await;
}

// Catches: what is due is settled, and its sink asked after that: the message is in no log.
#[test]
fn a_lease_ends_only_after_the_append() {
    held_against(&[], || async {
        a_crash_before_the_append(0).await;
        a_crash_before_the_append(usize::MAX).await;
    });
}
