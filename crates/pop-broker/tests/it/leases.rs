//! Leases between memory and the store: what costs a write and what does not, what happens
//! to one that is being stored, how many may be out, and what an idle queue keeps.

use std::time::Duration;

use pop_broker::{BrokerError, Delivery, NewMessage, ReceiveRequest};
use pop_model::{Checkpoint, MessageKind, Offset, StoredValue};
use pop_store::{
    table::LEASE,
    testkit::{Call, Effect, Fault},
};
use tokio::time::Instant;

use crate::{
    audit::{all, assert_each_in_one_place, audit},
    world::{INVISIBLE, SECOND, STAY, World, group, ids, message, request, seen, topic},
};

const DONE: Effect = Effect::Happened;
const NOT_DONE: Effect = Effect::DidNotHappen;

async fn world_with(ids: &[&str]) -> World {
    let world = World::new().await;
    for id in ids {
        world.send("orders", id).await;
    }
    world
}

async fn row_count(world: &World) -> usize {
    all(&world.rows(), LEASE).await.len()
}

/// In flight and open, of the one queue and of the retry queue.
async fn in_flight(world: &World) -> (u64, u64) {
    let progress = world.broker.progress(&group("g"), &topic("orders")).await;
    let progress = progress.unwrap();
    (progress[0].in_flight, progress[1].in_flight)
}

#[tokio::test(start_paused = true)]
async fn a_receive_and_an_acknowledgement_of_a_lease_in_memory_write_nothing() {
    // Retries of a memory lease too: their entry goes with the flush. Mutant: a row for
    // each receive.
    let world = world_with(&["a", "b"]).await;
    // The first retry makes the group subscribed to its retry queue, in a write.
    for attempt in 1..3 {
        let deliveries = world.receive("g", "orders").await;
        assert_eq!(seen(&deliveries), [("a", attempt), ("b", attempt)]);
        world.advance(INVISIBLE).await;
    }
    world.send("orders", "c").await;
    world.rest().await;
    let calls = || [Call::Write, Call::Get].map(|call| world.faults.call_count(call));
    let writes = world.faults.call_count(Call::Write);
    let deliveries = world.receive("g", "orders").await;
    assert_eq!(seen(&deliveries), [("a", 3), ("b", 3), ("c", 1)]);
    assert_eq!(world.faults.call_count(Call::Write), writes);
    let before = calls();
    for delivery in &deliveries {
        world.ack("g", "orders", delivery).await.unwrap();
    }
    assert_eq!(calls(), before, "an acknowledgement touches no disk");
    // All of them in one write.
    tokio::time::sleep(Duration::from_millis(51)).await;
    assert_eq!(world.faults.call_count(Call::Write), writes + 1);
    let world = world.crash(0).await;
    assert!(world.receive("g", "orders").await.is_empty());
    assert!(audit(&world.rows()).await.values().all(Vec::is_empty));
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_stays_is_stored_as_it_is_and_its_handle_goes_on_to_work() {
    // BR-D11. Mutants: `SpillRestartsTheDeadline`, `SpillForgetsTheAck`.
    let world = world_with(&["a", "b", "c"]).await;
    let deliveries = world.receive("g", "orders").await;
    world.stay().await;
    let rows = all(&world.rows(), LEASE).await;
    let rows = rows.into_iter().map(|row| Checkpoint::decode(row.value));
    let deadline = pop_model::Clock::lease(&world.clock).saturating_add(INVISIBLE - STAY);
    for row in rows.map(Result::unwrap) {
        assert_eq!((row.visible_at, row.delivery_attempt), (deadline, 1));
    }
    assert_eq!(in_flight(&world).await, (3, 0));
    world.ack("g", "orders", &deliveries[0]).await.unwrap();
    assert!(world.ack("g", "orders", &deliveries[0]).await.is_err());
    world
        .change("g", "orders", &deliveries[1], INVISIBLE)
        .await
        .unwrap();
    world.advance(INVISIBLE - STAY).await;
    assert_eq!(seen(&world.receive("g", "orders").await), [("c", 2)]);
    world.advance(STAY).await;
    assert_eq!(seen(&world.receive("g", "orders").await), [("b", 2)]);
}

#[tokio::test(start_paused = true)]
async fn every_lease_that_goes_into_the_store_is_counted_once() {
    // In order, too, where a lease has its row and stays in memory.
    // Catches: a sink that is not told of `Told::Kept`, or that is told of a refused write.
    for is_fifo in [false, true] {
        let world = World::new().await;
        match is_fifo {
            true => world.create_fifo_group("g", 9).await,
            false => world.create_group("g", 9).await,
        }
        for id in ["a", "b"] {
            let message = NewMessage {
                kind: MessageKind::Fifo,
                message_group: Some(id.into()),
                ..message(id)
            };
            world.try_send("orders", message).await.unwrap();
        }
        let stored = || world.broker.counts().stored;
        let deliveries = world.receive("g", "orders").await;
        assert_eq!((deliveries.len(), stored()), (2, 0), "in order: {is_fifo}");
        world.ack("g", "orders", &deliveries[0]).await.unwrap();
        world.rest().await;
        world.faults.arm(Call::Write, 1, Fault::Refuse);
        world.stay().await;
        assert_eq!((world.faults.injected_count(), stored()), (1, 0));
        world.advance(SECOND).await;
        assert_eq!((row_count(&world).await, stored()), (1, 1), "{is_fifo}");
        // Ready again is not stored again.
        world.advance(INVISIBLE).await;
        assert_eq!(seen(&world.receive("g", "orders").await), [("b", 2)]);
        assert_eq!(stored(), 1, "in order: {is_fifo}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_spill_that_is_refused_leaves_the_lease_in_memory_and_is_tried_again() {
    // Failed persistence. Mutant: `RefusedPlanKeepsOffsets`: both were wedged.
    let world = world_with(&["a", "b"]).await;
    let deliveries = world.receive("g", "orders").await;
    world.faults.arm(Call::Write, 1, Fault::Refuse);
    world.stay().await;
    assert_eq!(
        (world.faults.injected_count(), row_count(&world).await),
        (1, 0)
    );
    world.ack("g", "orders", &deliveries[0]).await.unwrap();
    world.advance(SECOND).await;
    assert_eq!(row_count(&world).await, 1);
    assert_each_in_one_place(&audit(&world.rows()).await, &["a"]);
    world.advance(INVISIBLE).await;
    assert_eq!(seen(&world.receive("g", "orders").await), [("b", 2)]);
}

#[tokio::test(start_paused = true)]
async fn a_spill_in_doubt_opens_the_store_anew_and_loses_nothing() {
    // P1, P4: stored, or as if never handed out; never both and never neither. Mutant: a
    // doubt taken for a refusal (`needs_reopen` of the cache): it was written once more.
    for effect in [DONE, NOT_DONE] {
        let world = world_with(&["a"]).await;
        let delivery = world.receive_one("g", "orders").await;
        world.faults.arm(Call::Write, 1, Fault::InDoubt(effect));
        world.stay().await;
        world.until_serving().await;
        assert_each_in_one_place(&audit(&world.rows()).await, &[]);
        let ready = world.receive("g", "orders").await;
        match effect {
            DONE => {
                assert!(ready.is_empty());
                world.ack("g", "orders", &delivery).await.unwrap();
            }
            NOT_DONE => {
                assert_eq!(seen(&ready), [("a", 1)]);
                let stale = world.ack("g", "orders", &delivery).await;
                assert!(matches!(stale, Err(BrokerError::DeliveryOver)));
                world.ack("g", "orders", &ready[0]).await.unwrap();
            }
        }
        world.advance(INVISIBLE * 2).await;
        assert!(world.receive("g", "orders").await.is_empty());
    }
}

/// A lease whose end hangs in its write: the spill, or the retry entry, after `time`.
async fn staged(time: Duration) -> (World, Delivery) {
    let world = world_with(&["a"]).await;
    let delivery = world.receive_one("g", "orders").await;
    world.faults.arm(Call::Write, 1, Fault::Hang(NOT_DONE));
    world.clock.advance(time);
    world.faults.until_hung(1).await;
    (world, delivery)
}

/// Something is asked of a staged lease, is not answered until its write is released, and
/// then is.
async fn asked_while_staged<T: Send + 'static>(
    world: &World,
    call: impl Future<Output = T> + Send + 'static,
) -> T {
    let asked = tokio::spawn(call);
    tokio::time::sleep(SECOND).await;
    assert!(!asked.is_finished(), "its outcome is not known");
    world.faults.release();
    let answered = tokio::time::timeout(SECOND, asked).await;
    answered.expect("it is woken").unwrap()
}

#[tokio::test(start_paused = true)]
async fn an_acknowledgement_of_a_lease_that_is_being_stored_waits_and_is_applied() {
    // The ancestor's fault 4. Mutants: `AckMissesStaged`, `SpillForgetsTheAck`: it was
    // answered OK and came again.
    let (world, delivery) = staged(STAY).await;
    let acked = asked_while_staged(&world, world.ack("g", "orders", &delivery)).await;
    acked.unwrap();
    world.rest().await;
    assert_eq!(row_count(&world).await, 0);
    world.advance(INVISIBLE * 2).await;
    assert!(world.receive("g", "orders").await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_acknowledgement_of_a_lease_that_is_being_made_ready_waits_and_is_refused() {
    // A successor is committed: what is acknowledged is over. Mutant: `AckMissesStaged`.
    let (world, delivery) = staged(INVISIBLE).await;
    let acked = asked_while_staged(&world, world.ack("g", "orders", &delivery)).await;
    assert!(matches!(acked, Err(BrokerError::DeliveryOver)), "{acked:?}");
    world.rest().await;
    assert_eq!(seen(&world.receive("g", "orders").await), [("a", 2)]);
}

#[tokio::test(start_paused = true)]
async fn an_acknowledgement_of_a_staged_lease_whose_write_is_refused_is_applied() {
    let world = world_with(&["a"]).await;
    world.receive_one("g", "orders").await;
    world.advance(INVISIBLE).await;
    let delivery = world.receive_one("g", "orders").await;
    // The read of its entry takes long; the write that ends it is refused then.
    world.faults.arm(Call::Get, 1, Fault::Delay(SECOND));
    world.faults.arm(Call::Write, 2, Fault::Refuse);
    world.clock.advance(INVISIBLE);
    tokio::time::sleep(Duration::from_millis(100)).await;
    world.ack("g", "orders", &delivery).await.unwrap();
    world.advance(INVISIBLE).await;
    assert!(world.receive("g", "orders").await.is_empty());
    assert!(audit(&world.rows()).await.values().all(Vec::is_empty));
}

#[tokio::test(start_paused = true)]
async fn a_change_of_a_lease_that_is_being_stored_waits_and_is_applied() {
    // Mutant: a change that writes its own row beside the spill's.
    let (world, delivery) = staged(STAY).await;
    let broker = world.broker.clone();
    let handle = delivery.handle.to_string();
    let change = async move {
        let (by, of) = (group("g"), topic("orders"));
        broker
            .change_invisible(&by, &of, &handle, INVISIBLE * 2, false)
            .await
    };
    asked_while_staged(&world, change).await.unwrap();
    world.advance(INVISIBLE * 2 - SECOND).await;
    assert!(world.receive("g", "orders").await.is_empty());
    world.advance(SECOND).await;
    assert_eq!(seen(&world.receive("g", "orders").await), [("a", 2)]);
}

#[tokio::test(start_paused = true)]
async fn a_change_of_a_lease_that_is_being_made_ready_waits_and_is_refused() {
    let (world, delivery) = staged(INVISIBLE).await;
    let broker = world.broker.clone();
    let handle = delivery.handle.to_string();
    let change = async move {
        let (by, of) = (group("g"), topic("orders"));
        broker
            .change_invisible(&by, &of, &handle, INVISIBLE, false)
            .await
    };
    let changed = asked_while_staged(&world, change).await;
    assert!(matches!(changed, Err(BrokerError::DeliveryOver)));
    world.rest().await;
    assert_eq!(seen(&world.receive("g", "orders").await), [("a", 2)]);
}

#[tokio::test(start_paused = true)]
async fn an_acknowledgement_of_a_staged_lease_is_answered_in_a_bounded_time() {
    // P5: the write never ends. Whoever waits is told, and the store is opened anew.
    let (world, delivery) = staged(STAY).await;
    let begun = Instant::now();
    let acked = world.ack("g", "orders", &delivery).await;
    assert!(acked.is_err());
    assert!(begun.elapsed() <= SECOND * 20, "{:?}", begun.elapsed());
    // The longest that a store call may take.
    tokio::time::sleep(SECOND * 30).await;
    world.until_serving().await;
    assert_eq!(ids(&world.receive("g", "orders").await), ["a"]);
}

fn waiting(batch_size: usize, wait_max: Duration) -> ReceiveRequest {
    ReceiveRequest {
        batch_size,
        wait_max,
        ..request("g", "orders")
    }
}

async fn bounded(queue_max: u64, messages: usize) -> World {
    let world = World::with(|options| options.cache.in_flight_per_queue_max = queue_max).await;
    for number in 0..messages {
        world.send("orders", &format!("m{number:02}")).await;
    }
    world
}

#[tokio::test(start_paused = true)]
async fn beyond_the_bound_in_flight_receives_get_as_many_as_fit_and_then_a_clear_error() {
    // BR-J02. Mutant: `BoundIgnored`.
    let world = bounded(5, 12).await;
    let first = world.broker.receive(waiting(3, Duration::ZERO)).await;
    assert_eq!(first.unwrap().take().len(), 3);
    let second = world.receive("g", "orders").await;
    assert_eq!(second.len(), 2);
    let full = world.try_receive("g", "orders").await;
    let Err(BrokerError::TooManyInFlight(why)) = full else {
        panic!("{full:?}");
    };
    assert!(why.contains("acknowledge some"), "{why}");
    // Another group is not concerned.
    assert_eq!(world.receive("h", "orders").await.len(), 5);
    // Stored ones count as well, and each that ends makes room for one.
    world.stay().await;
    assert!(world.try_receive("g", "orders").await.is_err());
    world.ack("g", "orders", &second[0]).await.unwrap();
    assert_eq!(world.receive("g", "orders").await.len(), 1);
    assert!(world.try_receive("g", "orders").await.is_err());
    assert_eq!(in_flight(&world).await, (5, 0));
}

#[tokio::test(start_paused = true)]
async fn a_receive_that_is_held_back_is_woken_by_an_acknowledgement_within_its_wait() {
    // BR-G02, BR-C03: whether the lease is in memory or stored. Mutants: `WakeUpLost`; a
    // receive that is refused before its wait is over.
    for is_stored in [false, true] {
        let world = bounded(2, 4).await;
        let out = world.receive("g", "orders").await;
        if is_stored {
            world.stay().await;
        }
        let receive = world.broker.receive(waiting(1, SECOND * 3_600));
        let ack = async {
            tokio::time::sleep(SECOND).await;
            world.ack("g", "orders", &out[0]).await.unwrap();
            Instant::now()
        };
        let (handout, acked) = tokio::join!(receive, ack);
        assert_eq!(ids(&handout.unwrap().take()), ["m02"]);
        assert!(acked.elapsed() <= Duration::from_millis(10), "{is_stored}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_receive_that_is_held_back_is_woken_by_an_expiry() {
    // BR-G02: the deadline makes room, in the queue and with a retry that is ready.
    for is_stored in [false, true] {
        let world = bounded(2, 2).await;
        world.receive("g", "orders").await;
        if is_stored {
            world.stay().await;
        }
        let receive = world.broker.receive(waiting(1, SECOND * 3_600));
        let expire = async {
            tokio::time::sleep(SECOND).await;
            world.clock.advance(INVISIBLE);
            Instant::now()
        };
        let (handout, expired) = tokio::join!(receive, expire);
        assert_eq!(handout.unwrap().take()[0].delivery_attempt, 2);
        assert!(expired.elapsed() <= Duration::from_millis(100));
    }
}

#[tokio::test(start_paused = true)]
async fn a_receive_that_is_held_back_to_the_end_of_its_wait_is_told_why_and_reads_nothing() {
    // BR-G03, and no look after look meanwhile. Mutant: a look that wakes itself.
    let world = bounded(2, 4).await;
    world.receive("g", "orders").await;
    let (begun, before) = (Instant::now(), world.faults.call_count(Call::Scan));
    let held_back = world.broker.receive(waiting(1, SECOND * 10)).await;
    assert!(matches!(held_back, Err(BrokerError::TooManyInFlight(_))));
    assert_eq!(begun.elapsed(), SECOND * 10);
    assert!(world.faults.call_count(Call::Scan) - before <= 2);
}

#[tokio::test(start_paused = true)]
async fn the_bound_of_a_group_is_over_all_its_queues() {
    let world = World::with(|options| {
        options.cache.in_flight_per_group_max = 4;
        options.catalog.queues = 3;
    })
    .await;
    for number in 0..12 {
        world.send("orders", &format!("m{number:02}")).await;
    }
    let mut out = world.receive("g", "orders").await;
    assert_eq!(out.len(), 4);
    assert!(world.try_receive("g", "orders").await.is_err());
    for delivery in out.drain(..) {
        world.ack("g", "orders", &delivery).await.unwrap();
    }
    assert_eq!(world.receive("g", "orders").await.len(), 4);
}

#[tokio::test(start_paused = true)]
async fn the_count_in_flight_is_that_of_the_live_deliveries_whatever_happens() {
    // BR-C04, BR-I01: double acknowledgements, late ones, changes, expiries, restarts.
    let mut world = bounded(100, 8).await;
    let out = world.receive("g", "orders").await;
    assert_eq!(in_flight(&world).await, (8, 0));
    for _ in 0..2 {
        let _ = world.ack("g", "orders", &out[0]).await;
    }
    assert_eq!(in_flight(&world).await, (7, 0));
    world
        .change("g", "orders", &out[1], INVISIBLE * 2)
        .await
        .unwrap();
    world.stay().await;
    for _ in 0..2 {
        let _ = world.ack("g", "orders", &out[2]).await;
    }
    world
        .change("g", "orders", &out[3], INVISIBLE * 2)
        .await
        .unwrap();
    assert_eq!(in_flight(&world).await, (6, 0));
    world.advance(INVISIBLE).await;
    // Two were changed; the other four are ready, and out again.
    assert_eq!(in_flight(&world).await, (2, 0));
    let again = world.receive("g", "orders").await;
    assert_eq!((again.len(), in_flight(&world).await), (4, (2, 4)));
    world.ack("g", "orders", &again[0]).await.unwrap();
    world.stay().await;
    world.ack("g", "orders", &again[1]).await.unwrap();
    assert_eq!(in_flight(&world).await, (2, 2));
    world = world.restart().await;
    world.receive("g", "orders").await;
    world.rest().await;
    assert_eq!(in_flight(&world).await, (2, 2), "after a restart");
    world.advance(INVISIBLE * 3).await;
    assert_eq!(in_flight(&world).await, (0, 0));
    assert_eq!(world.receive("g", "orders").await.len(), 4);
}

#[tokio::test(start_paused = true)]
async fn a_group_that_comes_once_an_hour_keeps_its_offset_and_its_leases() {
    // BR-J07. Mutant: a state that is given up with what it holds.
    let world = world_with(&["a", "b", "c"]).await;
    let mut seen_once = Vec::new();
    let mut open: Option<Delivery> = None;
    for _ in 0..3 {
        let hidden = ReceiveRequest {
            batch_size: 1,
            invisible_for: SECOND * 5 * 3_600,
            ..request("g", "orders")
        };
        let mut got = world.broker.receive(hidden).await.unwrap().take();
        assert_eq!(got.len(), 1, "one more: {seen_once:?}");
        let delivery = got.remove(0);
        seen_once.push(delivery.message.message_id.clone());
        // The first one is worked on for hours.
        match open {
            None => open = Some(delivery),
            Some(_) => world.ack("g", "orders", &delivery).await.unwrap(),
        }
        // The cleaner runs by tokio's time, and judges by the other clock.
        world.advance(SECOND * 3_600).await;
        tokio::time::sleep(SECOND * 100).await;
    }
    assert_eq!(seen_once, ["a", "b", "c"]);
    assert!(world.receive("g", "orders").await.is_empty());
    world.ack("g", "orders", &open.unwrap()).await.unwrap();
    world.advance(INVISIBLE * 1_000).await;
    assert!(world.receive("g", "orders").await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_idle_group_reaches_the_end_within_one_flush_and_over_a_restart() {
    // BR-I02. Mutant: `FlushOnlyWithTraffic`.
    let world = world_with(&["a", "b", "c"]).await;
    for delivery in world.receive("g", "orders").await {
        world.ack("g", "orders", &delivery).await.unwrap();
    }
    world.clock.advance(SECOND);
    tokio::time::sleep(Duration::from_millis(51)).await;
    let end = async |world: &World| {
        let progress = world.broker.progress(&group("g"), &topic("orders")).await;
        let queue = progress.unwrap().remove(0);
        (queue.committed, queue.lag, queue.in_flight)
    };
    assert_eq!(end(&world).await, (Offset::new(3), 0, 0));
    let world = world.crash(0).await;
    assert_eq!(end(&world).await, (Offset::new(3), 0, 0));
}
