//! A sink with a log of its own: no batch holds both the message that was appended there and
//! the end of its delivery. A crash between the two repeats the message, and never loses it.

use std::time::Duration;

use pop_model::Offset;
use pop_store::{
    ErrorKind, Outcome,
    testkit::{Call, Effect, Fault},
};

use crate::world::{Answer, QUEUE, World};

const SECOND: Duration = Duration::from_secs(1);
const AT_ONCE: Answer = Answer::Append(Duration::ZERO);

/// Offset 0 is due, and its sink appends it.
async fn one_due(append: Answer) -> World {
    let world = World::new();
    world.lease(0, SECOND).await;
    world.answer(0, append);
    world.clock.advance(SECOND);
    world
}

fn appended(world: &World) -> Vec<u64> {
    world.sink.own_log.lock().clone()
}

/// The delivery is due still, and the next pass ends it, appended for the `times`th time.
async fn comes_again(world: &World, times: usize) {
    assert_eq!((world.rows().await.len(), world.hint_count().await), (1, 1));
    assert!(world.is_due());
    world.answer(0, AT_ONCE);
    assert_eq!(world.pass().await.retried, 1);
    assert_eq!(appended(world), vec![0; times]);
    assert_eq!(*world.sink.settled.lock(), [Offset::new(0)]);
    assert!(world.rows().await.is_empty());
}

/// Drops a pass in the middle of what it does.
async fn cut_off(world: &World) {
    let cut = tokio::time::timeout(2 * SECOND, world.reviver.pass(QUEUE.shard())).await;
    assert!(cut.is_err(), "it was to be under way: {cut:?}");
}

// Catches: a delivery counts as revived although its end was refused.
#[tokio::test(start_paused = true)]
async fn a_refused_end_leaves_the_delivery_due_and_appends_it_again() {
    let world = one_due(AT_ONCE).await;
    world.faults.arm(Call::Write, 1, Fault::Refuse);
    let report = world.pass().await;
    assert_eq!((report.retried, report.left), (0, 1));
    assert_eq!(appended(&world), [0]);
    let refused = [(Offset::new(0), Outcome::Refused)];
    assert_eq!(*world.sink.unsettled.lock(), refused);
    comes_again(&world, 2).await;
}

// Catches: an end in doubt is taken for a refusal, and the pass goes on.
#[tokio::test(start_paused = true)]
async fn an_end_in_doubt_is_decided_by_the_store_when_it_is_opened_anew() {
    for effect in [Effect::DidNotHappen, Effect::Happened] {
        let world = one_due(AT_ONCE).await;
        world.faults.arm(Call::Write, 1, Fault::InDoubt(effect));
        let error = world.reviver.pass(QUEUE.shard()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InDoubt);
        assert_eq!(appended(&world), [0]);
        let doubted = [(Offset::new(0), Outcome::InDoubt)];
        assert_eq!(*world.sink.unsettled.lock(), doubted);
        let world = world.crash(usize::MAX);
        match effect {
            Effect::DidNotHappen => comes_again(&world, 2).await,
            Effect::Happened => {
                assert_eq!(world.pass().await.retried, 0);
                assert_eq!(appended(&world), [0]);
            }
        }
    }
}

// Catches: the end is written before the sink is asked, or its hint before the rest of it.
#[tokio::test(start_paused = true)]
async fn a_crash_between_the_append_and_the_end_repeats_the_message() {
    for effect in [Effect::DidNotHappen, Effect::Happened] {
        let world = one_due(AT_ONCE).await;
        world.faults.arm(Call::Write, 1, Fault::Hang(effect));
        cut_off(&world).await;
        assert_eq!(appended(&world), [0]);
        // Nothing of the store that was not synced survives.
        comes_again(&world.crash(0), 2).await;
    }
}

// Catches: what is due is settled, and its sink asked after that: the message is in no log.
#[tokio::test(start_paused = true)]
async fn a_lease_ends_only_after_the_append() {
    for keep in [0, usize::MAX] {
        let world = one_due(Answer::Append(3 * SECOND)).await;
        cut_off(&world).await;
        assert!(appended(&world).is_empty(), "it takes longer");
        comes_again(&world.crash(keep), 1).await;
    }
}
