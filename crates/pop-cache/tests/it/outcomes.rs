//! Whatever comes of a revive, its delivery is not lost and holds up no other.

use std::{sync::atomic::Ordering, time::Duration};

use pop_model::{LeaseTime, Mutant};
use pop_store::{Outcome, WriteBatch, testkit::Fault};

use crate::{
    mutants::held_against,
    sink::{Answer, Told},
    world::{HIDDEN, World, options, queue},
};

/// A failure of the revive of offset 1, among three that work.
// Mutant: a panic of what is decided at once is not caught, and ends the cache.
async fn backs_off(answer: Answer) {
    for at_once in [false, true] {
        backs_off_decided(answer, at_once).await;
    }
}

async fn backs_off_decided(answer: Answer, at_once: bool) {
    let mut world = World::new();
    world.sink.at_once.store(at_once, Ordering::Relaxed);
    world.sink.answer(0, Answer::Retry);
    world.sink.answer(1, answer);
    world.sink.answer(2, Answer::Retry);
    world.start();
    world.pop(4).await;
    world.pass(HIDDEN + Duration::from_secs(6)).await;
    // It is stored for later, with the failure counted; the others are done.
    let rows = world.rows().await;
    let [row] = rows.as_slice() else {
        panic!("{answer:?}, at once {at_once}: {rows:?}");
    };
    assert_eq!(row.identity.offset.get(), 1);
    assert_eq!(row.revive_failures, 1);
    let delay = row.visible_at.saturating_since(row.popped_at);
    assert_eq!(delay, Duration::from_secs(10));
    assert!(world.is_retried(0).await && world.is_retried(2).await);
    assert_eq!(world.committed().await, 4);
    assert!(world.sink.was_told(Told::Settled(3)));
    assert!(!world.sink.was_told(Told::Settled(1)));
    world.stop().await.expect("the store is well");
}

#[test]
fn a_revive_that_fails_is_tried_again_later() {
    let mutants = [
        Mutant::StagedClearedWhateverTheOutcome,
        Mutant::OneFailureAbortsTheSweep,
        Mutant::NoBackoff,
    ];
    held_against(&mutants, || backs_off(Answer::Fail));
}

#[test]
fn a_revive_that_panics_at_the_call_is_tried_again_later() {
    let mutants = [Mutant::StagedClearedWhateverTheOutcome];
    held_against(&mutants, || backs_off(Answer::PanicAtOnce));
}

#[test]
fn a_revive_that_panics_in_its_future_is_tried_again_later() {
    let mutants = [Mutant::OneFailureAbortsTheSweep];
    held_against(&mutants, || backs_off(Answer::PanicLater));
}

#[test]
fn a_revive_that_never_answers_is_tried_again_later() {
    let mutants = [Mutant::StagedClearedWhateverTheOutcome];
    held_against(&mutants, || backs_off(Answer::Hang));
}

#[tokio::test(start_paused = true)]
async fn a_revive_of_the_wrong_kind_is_tried_again_later() {
    // Mutant: what is ready again in place is taken for it in any queue.
    backs_off(Answer::Again).await;
}

#[tokio::test(start_paused = true)]
async fn a_decision_that_the_store_never_takes_is_tried_again_later() {
    // Mutant: it is asked about and refused every half second, for ever, and holds the gate.
    backs_off(Answer::Impossible).await;
    backs_off(Answer::Rows(WriteBatch::KEYS_MAX)).await;
}

#[test]
fn a_delivery_that_fails_too_often_goes_to_quarantine() {
    held_against(&[Mutant::ExhaustedIsDropped], || async {
        let mut world = World::with(options(|options| options.failures_max = 0));
        world.sink.answer(0, Answer::Fail);
        world.start();
        world.pop(1).await;
        world.pass(HIDDEN + Duration::from_secs(1)).await;
        assert_eq!(world.quarantined().await, 1);
        assert!(world.sink.was_told(Told::Quarantined(0)));
        assert_eq!(world.committed().await, 1);
    });
}

#[tokio::test(start_paused = true)]
async fn all_revives_are_begun_before_any_is_waited_for() {
    for at_once in [false, true] {
        all_are_begun_first(at_once).await;
    }
}

async fn all_are_begun_first(at_once: bool) {
    let mut world = World::new();
    world.sink.at_once.store(at_once, Ordering::Relaxed);
    // More than one batch of outcomes; the last one is slow, the others answer at once.
    world.sink.answer(399, Answer::Slow(Duration::from_secs(2)));
    world.pop(400).await;
    world.start();
    world.pass(HIDDEN + Duration::from_millis(200)).await;
    let told = world.sink.told.lock().clone();
    let last_asked = told.iter().rposition(|it| matches!(it, Told::Asked(_)));
    let first_settled = told.iter().position(|it| matches!(it, Told::Settled(_)));
    // Mutant: a batch of outcomes is written before the rest are asked about.
    assert!(last_asked < first_settled);
    assert_eq!(world.sink.asked(399), 1);
    // And none waits for the slow one.
    assert!(world.sink.was_told(Told::Settled(398)));
    assert!(!world.sink.was_told(Told::Settled(399)));
    world.pass(Duration::from_secs(3)).await;
    assert!(world.sink.was_told(Told::Settled(399)));
    assert_eq!(world.committed().await, 400);
}

#[tokio::test(start_paused = true)]
async fn a_queue_in_order_gets_its_message_again_where_it_lies() {
    let mut world = World::ordered();
    for offset in 0..2 {
        world.sink.answer(offset, Answer::Again);
    }
    world.start();
    let first = world.pop(2).await;
    assert!(world.pop(2).await.is_empty(), "its group is out");
    world.sink.take_ready();
    world.pass(HIDDEN + Duration::from_secs(1)).await;
    // Mutant: nobody is told that its group may be handed out again.
    assert!(world.sink.take_ready().contains(&queue(1)));
    let again = world.try_pop(queue(1), 2).await.expect("there is room");
    assert_eq!((again[0].attempt, again[1].attempt), (2, 2));
    assert_eq!(again[0].identity.offset, first[0].offset);
    assert_eq!(world.committed().await, 0);
    // The rows say so for a restart: nothing is out, and the next is the second attempt.
    let rows = world.rows().await;
    let of_rows = rows
        .iter()
        .map(|row| (row.visible_at, row.delivery_attempt));
    assert!(of_rows.eq([(LeaseTime::ZERO, 2), (LeaseTime::ZERO, 2)]));
}

#[tokio::test(start_paused = true)]
async fn a_revive_in_doubt_ends_the_run_and_settles_nothing() {
    let mut world = World::new();
    world.sink.answer(0, Answer::Retry);
    world.start();
    let popped = world.pop(1).await;
    world.fail_write(0, Fault::InDoubt(pop_store::testkit::Effect::Happened));
    world.pass(HIDDEN + Duration::from_secs(1)).await;
    let error = world.ended().await.expect_err("the store must be reopened");
    assert_eq!(error.outcome(), Outcome::InDoubt);
    // Mutant: the outcome of its write is taken for a refusal, and it is written twice.
    assert_eq!(world.sink.asked(0), 1);
    assert!(world.sink.was_told(Told::Unsettled(0, Outcome::InDoubt)));
    let cached = world.cached(queue(1)).await;
    assert_eq!(cached.look(|leases| leases.counts().staged), 1);
    assert_eq!(cached.look(|leases| leases.gate().get()), 0);
    let busy = world.ack(&popped[0], pop_store::Durability::Buffered).await;
    assert!(
        matches!(busy, Err(pop_cache::CacheError::Busy(_))),
        "{busy:?}"
    );
    // After the reopen the store tells: it happened, once.
    world.crash(usize::MAX);
    assert!(world.is_retried(0).await);
    assert_eq!(world.pop(1).await[0].offset.get(), 1);
}
