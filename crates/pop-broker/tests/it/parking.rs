//! Message groups of which more waits than fits in memory: what is parked in the store
//! holds up no other group, and comes back in order (P1, P5, P7).

use std::time::Duration;

use pop_broker::{BrokerError, Delivery, NewMessage, ReceiveRequest, ResetTo};
use pop_model::{
    MarkPage, MarkPageKey, MessageKind, Offset, ParkedKey, QueueId, StoredKey, StoredValue,
};
use pop_store::{
    Entry,
    table::{LEASE, PROGRESS},
    testkit::{Call, Effect, Fault},
};

use crate::{
    audit::all,
    world::{INVISIBLE, SECOND, World, group, ids, message, request, seen, topic},
};

/// How many messages may wait in memory.
const HELD: usize = 4;
/// How many messages the big group has: more than one look reads.
const BIG: usize = 200;

/// A world with one queue, and a group `g` that consumes in order.
async fn world() -> World {
    let world = World::with(|options| options.cache.held_max = HELD).await;
    world.create_fifo_group("g", 3).await;
    world
}

async fn send(world: &World, id: &str) {
    let sent = NewMessage {
        kind: MessageKind::Fifo,
        message_group: Some(id.get(..1).unwrap().to_owned()),
        ..message(id)
    };
    world.try_send("orders", sent).await.unwrap();
}

fn big(number: usize) -> String {
    format!("a{number:03}")
}

/// As `world`, with the big group before two small ones.
async fn unread() -> World {
    let world = world().await;
    for number in 0..BIG {
        send(&world, &big(number)).await;
    }
    send(&world, "b1").await;
    send(&world, "c1").await;
    world
}

/// As `unread`, with the first message of the big group out.
async fn blocked() -> (World, Delivery) {
    let world = unread().await;
    let first = take(&world, 1).await.remove(0);
    assert_eq!(first.message.message_id, "a000");
    (world, first)
}

async fn take(world: &World, batch_size: usize) -> Vec<Delivery> {
    let asking = ReceiveRequest {
        batch_size,
        ..request("g", "orders")
    };
    world.broker.receive(asking).await.unwrap().take()
}

async fn ack(world: &World, deliveries: &[Delivery]) {
    for delivery in deliveries {
        world.ack("g", "orders", delivery).await.unwrap();
    }
}

/// The offsets that are parked.
async fn parked(world: &World) -> Vec<u64> {
    let rows = all(&world.rows(), PROGRESS).await.into_iter();
    let parked = |row: Entry| ParkedKey::decode(row.key).ok();
    rows.filter_map(parked)
        .map(|key| key.offset.get())
        .collect()
}

/// Waits until everything that was acknowledged is flushed, which takes more than one write.
async fn at_rest(world: &World) {
    for _ in 0..4 {
        world.rest().await;
    }
}

/// Whether the store says that an offset is settled.
async fn is_marked(world: &World, offset: u64) -> bool {
    let (number, place) = MarkPage::locate(Offset::new(offset));
    let pages = all(&world.rows(), PROGRESS).await.into_iter();
    let mut pages = pages.filter_map(|row| {
        let key = MarkPageKey::decode(row.key).ok()?;
        Some((key.page, MarkPage::decode(row.value).unwrap()))
    });
    pages.any(|(page, marks)| page == number && marks.get(place))
}

/// Takes what is ready in batches of `size` until nothing is, acknowledges it, and returns
/// the ids.
async fn drain(world: &World, size: usize) -> Vec<String> {
    let mut drained = Vec::new();
    loop {
        let batch = take(world, size).await;
        if batch.is_empty() {
            return drained;
        }
        ack(world, &batch).await;
        drained.extend(ids(&batch).into_iter().map(str::to_owned));
    }
}

fn rest_of_big() -> Vec<String> {
    (1..BIG).map(big).collect()
}

#[tokio::test(start_paused = true)]
async fn a_blocked_group_of_any_size_holds_up_no_other_one_and_keeps_its_order() {
    // Mutants: nothing is read beyond the bound; what is parked is not handed out in turn.
    let (world, first) = blocked().await;
    let others = take(&world, 32).await;
    assert_eq!(seen(&others), [("b1", 1), ("c1", 1)]);
    assert!(parked(&world).await.len() >= BIG - 2 * HELD);
    ack(&world, &others).await;
    ack(&world, &[first]).await;
    // What comes later waits behind what is parked.
    send(&world, &big(BIG)).await;
    let drained = drain(&world, 7).await;
    let mut expected = rest_of_big();
    expected.push(big(BIG));
    assert_eq!(drained, expected);
    at_rest(&world).await;
    assert_eq!(parked(&world).await, [0; 0], "no row is left");
    assert!(all(&world.rows(), LEASE).await.is_empty());
    let progress = world.broker.progress(&group("g"), &topic("orders")).await;
    let progress = progress.unwrap();
    assert_eq!(progress[0].committed, progress[0].bounds.end);
}

#[tokio::test(start_paused = true)]
async fn the_gate_passes_what_is_parked_and_lag_counts_it() {
    let (world, first) = blocked().await;
    // Mutant: they carry no mark in the batch that parks them.
    for offset in parked(&world).await {
        assert!(is_marked(&world, offset).await, "{offset}");
    }
    let others = take(&world, 32).await;
    ack(&world, &others).await;
    ack(&world, &[first]).await;
    let lag = async || {
        let progress = world.broker.progress(&group("g"), &topic("orders")).await;
        progress.unwrap()[0].lag
    };
    // Mutant: what is parked counts as done.
    assert_eq!(lag().await, BIG as u64 - 1);
    let mut acked = 1;
    while acked < HELD + 8 {
        let batch = take(&world, 1).await;
        ack(&world, &batch).await;
        acked += batch.len();
    }
    world.rest().await;
    assert_eq!(lag().await, (BIG - acked) as u64);
    let progress = world.broker.progress(&group("g"), &topic("orders")).await;
    let progress = progress.unwrap();
    assert_eq!(progress[0].committed, progress[0].bounds.end);
}

#[tokio::test(start_paused = true)]
async fn what_is_parked_is_delivered_in_order_after_a_restart_and_after_a_crash() {
    for keep in [0, 1, 3, usize::MAX] {
        let (world, first) = blocked().await;
        let others = take(&world, 32).await;
        ack(&world, &others).await;
        ack(&world, &[first]).await;
        world.rest().await;
        // Some of it is in memory again, and out.
        let batch = take(&world, HELD + 5).await;
        ack(&world, &batch[..2]).await;
        world.rest().await;
        let world = world.crash(keep).await;
        let drained = drain(&world, 7).await;
        // Mutant: a restart does not look for what is parked.
        let done = 1 + 2;
        let expected: Vec<_> = (done..BIG).map(big).collect();
        assert_eq!(drained, expected, "{keep} unsynced writes were kept");
    }
}

#[tokio::test(start_paused = true)]
async fn a_parked_message_that_is_out_stays_out_over_a_restart_and_blocks_its_group() {
    let (world, first) = blocked().await;
    let others = take(&world, 32).await;
    ack(&world, &others).await;
    ack(&world, &[first]).await;
    // The last batch is of what was parked.
    let before = take(&world, HELD - 1).await;
    ack(&world, &before).await;
    let batch = take(&world, 5).await;
    let done = 1 + before.len();
    world.stay().await;
    let world = world.restart().await;
    assert!(take(&world, 32).await.is_empty(), "its group is blocked");
    // Mutant: what is parked counts as settled, and its handle is refused.
    ack(&world, &batch[..2]).await;
    world.advance(INVISIBLE).await;
    let again = take(&world, 32).await;
    let out = batch.len() - 2;
    let expected: Vec<_> = (done + 2..BIG).map(big).take(again.len()).collect();
    assert_eq!(ids(&again), expected);
    let attempts: Vec<u32> = again.iter().map(|it| it.delivery_attempt).collect();
    assert!(attempts[..out].iter().all(|attempt| *attempt == 2));
    assert!(attempts[out..].iter().all(|attempt| *attempt == 1));
    ack(&world, &again).await;
    let rest: Vec<_> = (done + 2 + again.len()..BIG).map(big).collect();
    assert_eq!(drain(&world, 7).await, rest);
    at_rest(&world).await;
    assert_eq!(parked(&world).await, [0; 0]);
    assert!(all(&world.rows(), LEASE).await.is_empty(), "no row is left");
}

#[tokio::test(start_paused = true)]
async fn a_parked_message_expires_is_counted_and_becomes_a_dead_letter_in_its_turn() {
    let (world, first) = blocked().await;
    let others = take(&world, 32).await;
    ack(&world, &others).await;
    ack(&world, &[first]).await;
    let before = take(&world, HELD + 3).await;
    ack(&world, &before).await;
    let next = big(1 + before.len());
    for attempt in 1..=3 {
        assert_eq!(seen(&take(&world, 1).await), [(next.as_str(), attempt)]);
        world.advance(INVISIBLE).await;
    }
    let rest: Vec<_> = (2 + before.len()..BIG).map(big).collect();
    assert_eq!(drain(&world, 7).await, rest);
    at_rest(&world).await;
    assert_eq!(parked(&world).await, [0; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_receive_of_parked_messages_that_is_repeated_gets_its_batch_again() {
    let (world, first) = blocked().await;
    ack(&world, &[first]).await;
    let before = take(&world, HELD + 3).await;
    ack(&world, &before).await;
    let asking = || ReceiveRequest {
        batch_size: 5,
        attempt_id: Some("x".into()),
        ..request("g", "orders")
    };
    let batch = world.broker.receive(asking()).await.unwrap().take();
    world.stay().await;
    let world = world.restart().await;
    let again = world.broker.receive(asking()).await.unwrap().take();
    assert_eq!(seen(&again), seen(&batch));
    ack(&world, &batch).await;
}

#[tokio::test(start_paused = true)]
async fn a_refused_write_parks_nothing_and_loses_nothing() {
    // P1, P7. Mutant: what was refused is counted as parked all the same.
    let world = unread().await;
    // The first one makes the group subscribed.
    for nth in 2..5 {
        world.faults.arm(Call::Write, nth, Fault::Refuse);
    }
    let asked = world.broker.receive(request("g", "orders")).await;
    assert!(matches!(asked, Err(BrokerError::Store(_))));
    for _ in 0..2 {
        // What is in memory may go out, and reaches nobody.
        drop(world.broker.receive(request("g", "orders")).await);
        assert_eq!(parked(&world).await, [0; 0]);
    }
    world.rest().await;
    let mut drained = drain(&world, 7).await;
    assert_eq!(world.faults.injected_count(), 3);
    drained.retain(|id| id.starts_with('a'));
    let all: Vec<_> = (0..BIG).map(big).collect();
    assert_eq!(drained, all);
    let progress = world.broker.progress(&group("g"), &topic("orders")).await;
    assert_eq!(progress.unwrap()[0].lag, 0);
}

#[tokio::test(start_paused = true)]
async fn what_is_parked_waits_for_what_could_not_be_read_before_it() {
    // P7. Mutant: what was reserved once counts as read.
    let (world, _first) = blocked().await;
    let world = world.crash(usize::MAX).await;
    // The queue is loaded; the read of its first messages is refused.
    world
        .broker
        .progress(&group("g"), &topic("orders"))
        .await
        .unwrap();
    world.faults.arm(Call::Scan, 1, Fault::Refuse);
    let asked = world.broker.receive(request("g", "orders")).await;
    assert!(matches!(asked, Err(BrokerError::Store(_))));
    let mut drained = drain(&world, 7).await;
    drained.retain(|id| id.starts_with('a'));
    let all: Vec<_> = (0..BIG).map(big).collect();
    assert_eq!(drained, all);
}

#[tokio::test(start_paused = true)]
async fn a_write_in_doubt_parks_or_does_not_and_loses_nothing() {
    for effect in [Effect::Happened, Effect::DidNotHappen] {
        let world = unread().await;
        world.faults.arm(Call::Write, 2, Fault::InDoubt(effect));
        let asked = world.broker.receive(request("g", "orders")).await;
        assert!(asked.is_err());
        world.until_serving().await;
        let mut drained = drain(&world, 7).await;
        drained.retain(|id| id.starts_with('a'));
        let all: Vec<_> = (0..BIG).map(big).collect();
        assert_eq!(drained, all, "{effect:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_reset_forgets_what_is_parked() {
    let (world, first) = blocked().await;
    take(&world, 32).await;
    let to = ResetTo::Offset(QueueId::new(0), Offset::new(3));
    let (by, of) = (group("g"), topic("orders"));
    world.broker.reset_offset(&by, &of, to).await.unwrap();
    // Mutant: it is left, and comes twice.
    assert_eq!(parked(&world).await, [0; 0]);
    assert!(world.ack("g", "orders", &first).await.is_err());
    let mut drained = drain(&world, 7).await;
    drained.retain(|id| id.starts_with('a'));
    let expected: Vec<_> = (3..BIG).map(big).collect();
    assert_eq!(drained, expected);
}

#[tokio::test(start_paused = true)]
async fn a_queue_that_only_has_parked_messages_is_given_up_and_loaded_again() {
    let world = World::with(|options| {
        options.cache.held_max = HELD;
        options.cache.idle_after = SECOND;
    })
    .await;
    world.create_fifo_group("g", 3).await;
    for number in 0..BIG {
        send(&world, &big(number)).await;
    }
    let first = take(&world, 1).await;
    assert!(take(&world, 32).await.is_empty());
    ack(&world, &first).await;
    let mut acked = 1;
    while acked < HELD + 5 {
        let batch = take(&world, 1).await;
        ack(&world, &batch).await;
        acked += batch.len();
    }
    // Nothing is out, and nobody looks for a while.
    world.clock.advance(SECOND * 2);
    tokio::time::sleep(Duration::from_secs(2)).await;
    let expected: Vec<_> = (acked..BIG).map(big).collect();
    assert_eq!(drain(&world, 7).await, expected);
}

/// P1. Mutant: ParkedCountsAsGivenUp. Then the consumer is told OK and no dead letter is
/// written.
#[tokio::test(start_paused = true)]
async fn a_parked_message_is_not_given_up_by_a_handle_of_the_run_before() {
    let world = unread().await;
    let first = take(&world, HELD).await;
    ack(&world, &first).await;
    at_rest(&world).await;
    let out = take(&world, HELD).await;
    let last = out.last().unwrap();
    let world = world.crash(usize::MAX).await;
    assert_eq!(ids(&take(&world, 1).await), [big(HELD)]);
    assert!(parked(&world).await.contains(&last.offset.get()));
    let handle = last.handle.as_str();
    let (group, topic) = (group("g"), topic("orders"));
    let error = world
        .broker
        .give_up(&group, &topic, handle)
        .await
        .unwrap_err();
    assert!(matches!(error, BrokerError::DeliveryOver), "{error}");
}
