//! A consumer gives deliveries up, wherever they are.

use std::time::Duration;

use pop_cache::CacheError;
use pop_model::DeliveryIdentity;
use pop_store::{
    Durability,
    testkit::{Effect, Fault},
};

use crate::{
    sink::{Answer, Told},
    world::{HIDDEN, World, queue},
};

const BUFFERED: Durability = Durability::Buffered;

async fn give_up(world: &World, identity: &DeliveryIdentity) -> Result<(), CacheError> {
    let cached = world.cached(identity.queue).await;
    world.cache.dead_letter(&cached, identity, BUFFERED).await
}

/// Two messages are out, and the sink moves the first to the dead letters.
async fn two_out(world: &World) -> Vec<DeliveryIdentity> {
    world.sink.answer(0, Answer::Retry);
    world.pop(2).await
}

#[tokio::test(start_paused = true)]
async fn a_delivery_in_memory_ends_with_its_dead_letter() {
    let mut world = World::new();
    let popped = two_out(&world).await;
    give_up(&world, &popped[0]).await.expect("it is out");
    assert!(world.is_retried(0).await && world.is_settled(0).await);
    assert_eq!(world.committed().await, 1);
    assert!(world.sink.was_told(Told::Settled(0)));
    // It is over, for every handle and every clock.
    let again = give_up(&world, &popped[0]).await;
    assert!(matches!(again, Err(CacheError::Over)), "{again:?}");
    let acked = world.ack(&popped[0], BUFFERED).await;
    assert!(matches!(acked, Err(CacheError::Over)), "{acked:?}");
    world.start();
    world.pass(3 * HIDDEN).await;
    assert_eq!(world.sink.asked(0), 1);
}

#[tokio::test(start_paused = true)]
async fn a_delivery_in_the_store_ends_with_its_dead_letter() {
    let mut world = World::new();
    let popped = two_out(&world).await;
    world.start();
    let cached = world.cached(queue(1)).await;
    for identity in &popped {
        let longer = Duration::from_secs(60);
        let changed = world
            .cache
            .change(&cached, identity, longer, false, BUFFERED);
        changed.await.expect("it is out");
    }
    world.pass(Duration::from_secs(11)).await;
    assert_eq!(world.row_offsets().await, [0, 1]);
    let stored = cached.in_flight();
    give_up(&world, &popped[0]).await.expect("it is stored");
    // Mutant: the row stays, and the message comes again beside its dead letter.
    assert_eq!(world.row_offsets().await, [1]);
    assert!(world.is_retried(0).await);
    assert!(world.sink.was_told(Told::Settled(0)));
    assert_eq!(cached.in_flight(), stored - 1);
    let again = give_up(&world, &popped[0]).await;
    assert!(matches!(again, Err(CacheError::Over)), "{again:?}");
}

/// Whatever goes wrong, the delivery goes on as if nothing had been asked.
async fn goes_on(answer: Answer, fault: Option<Fault>) {
    let world = World::new();
    let popped = two_out(&world).await;
    let first = popped.first().expect("two are out");
    world.sink.answer(0, answer);
    if let Some(fault) = fault {
        world.fail_write(0, fault);
    }
    let refused = give_up(&world, first).await;
    refused.expect_err("it can't be moved");
    let cached = world.cached(queue(1)).await;
    // Mutant: it stays staged, and is nobody's for ever.
    let counts = cached.look(|leases| leases.counts());
    assert_eq!((counts.buffered, counts.staged), (2, 0), "{answer:?}");
    assert!(!world.is_retried(0).await && !world.is_settled(0).await);
    assert!(!world.sink.was_told(Told::Settled(0)));
    world.ack(first, BUFFERED).await.expect("it is out");
}

#[tokio::test(start_paused = true)]
async fn a_delivery_that_cannot_be_moved_goes_on() {
    for answer in [
        Answer::Fail,
        Answer::PanicAtOnce,
        Answer::PanicLater,
        Answer::Hang,
        Answer::Again,
        Answer::Impossible,
    ] {
        goes_on(answer, None).await;
    }
    goes_on(Answer::Retry, Some(Fault::Refuse)).await;
}

#[tokio::test(start_paused = true)]
async fn a_delivery_whose_dead_letter_is_in_doubt_stays_where_it_is() {
    let world = World::new();
    let popped = two_out(&world).await;
    world.fail_write(0, Fault::InDoubt(Effect::Happened));
    let doubt = give_up(&world, &popped[0]).await;
    assert!(matches!(doubt, Err(CacheError::Store(_))), "{doubt:?}");
    let cached = world.cached(queue(1)).await;
    // Mutant: it is back in memory, and delivered again beside its dead letter.
    assert_eq!(cached.look(|leases| leases.counts().staged), 1);
}

#[tokio::test(start_paused = true)]
async fn only_the_delivery_that_is_out_can_be_given_up() {
    let world = World::new();
    let popped = two_out(&world).await;
    let stale = DeliveryIdentity {
        generation: pop_model::Generation::NONE,
        ..popped[0]
    };
    let other = give_up(&world, &stale).await;
    assert!(matches!(other, Err(CacheError::Over)), "{other:?}");
    assert_eq!(world.sink.asked(0), 0);
}

#[tokio::test(start_paused = true)]
async fn in_order_the_next_message_of_the_group_follows_a_dead_letter() {
    let world = World::ordered();
    world.sink.answer(0, Answer::Retry);
    let first = world.pop(1).await;
    assert!(world.pop(1).await.is_empty(), "its group is blocked");
    world.sink.take_ready();
    give_up(&world, &first[0]).await.expect("it is out");
    assert!(world.sink.take_ready().contains(&queue(1)));
    let next = world.pop(1).await;
    assert_eq!(next[0].offset.get(), 1);
    // A client whose answer was lost asks until it is told so.
    give_up(&world, &first[0]).await.expect("it is done");
    assert_eq!(world.sink.asked(0), 1);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_dropped_ends_its_delivery_all_the_same() {
    let world = World::new();
    let popped = two_out(&world).await;
    world.fail_write(0, Fault::Delay(Duration::from_secs(1)));
    let call = give_up(&world, &popped[0]);
    let dropped = tokio::time::timeout(Duration::from_millis(100), call).await;
    dropped.expect_err("it is being written");
    tokio::time::sleep(Duration::from_secs(2)).await;
    let cached = world.cached(queue(1)).await;
    assert_eq!(cached.look(|leases| leases.counts().staged), 0);
    assert!(world.is_retried(0).await);
}
