//! Groups that consume in order (P7): the messages of a message group one after the other,
//! one batch of them at a time, and different message groups side by side.

use std::{collections::BTreeMap, time::Duration};

use pop_broker::{BrokerError, Delivery, Filter, NewMessage, ReceiveRequest, ResetTo};
use pop_model::{LogKey, MessageKind, StoredKey, TopicName};
use pop_store::{
    Durability, Store, WriteBatch,
    table::{LEASE, LOG},
    testkit::{Call, Effect, Fault},
};
use tokio::time::Instant;

use crate::{
    audit::{Place, all, audit, messages},
    world::{INVISIBLE, SECOND, World, group, message, request, seen, topic},
};

/// More attempts than any of these tests needs.
const MANY: u32 = 17;

/// A world with one queue and a group `g` that consumes in order.
async fn world() -> World {
    world_with(MANY).await
}

async fn world_with(attempts: u32) -> World {
    let world = World::new().await;
    world.create_fifo_group("g", attempts).await;
    world
}

/// Sends a message to the message group that its id begins with.
async fn send(world: &World, id: &str) {
    send_to(world, "orders", id).await;
}

async fn send_to(world: &World, to: &str, id: &str) {
    let of = id.get(..1).unwrap().to_owned();
    let sent = NewMessage {
        kind: MessageKind::Fifo,
        message_group: Some(of),
        ..message(id)
    };
    world.try_send(to, sent).await.unwrap();
}

async fn send_all(world: &World, ids: &[&str]) {
    for id in ids {
        send(world, id).await;
    }
}

fn asking(batch_size: usize, attempt_id: Option<&str>) -> ReceiveRequest {
    ReceiveRequest {
        batch_size,
        attempt_id: attempt_id.map(str::to_owned),
        ..request("g", "orders")
    }
}

/// Receives up to `count` in the order in which they are handed out.
async fn take(world: &World, count: usize) -> Vec<Delivery> {
    let handout = world.broker.receive(asking(count, None)).await.unwrap();
    handout.take()
}

/// As `take`, under a name.
async fn take_as(world: &World, count: usize, attempt_id: &str) -> Vec<Delivery> {
    let asking = asking(count, Some(attempt_id));
    world.broker.receive(asking).await.unwrap().take()
}

async fn ack(world: &World, deliveries: &[Delivery]) {
    for delivery in deliveries {
        world.ack("g", "orders", delivery).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn concurrent_receives_get_each_message_group_in_order_and_none_of_it_twice_at_once() {
    // BR-F03, BR-F05. Mutants: `FifoSecondBatch`, `FifoPassesTheHead`.
    let world = world().await;
    for number in 0..12 {
        for of in ["a", "b", "c", "d", "e"] {
            send(&world, &format!("{of}{number:02}")).await;
        }
    }
    let mut last: BTreeMap<char, String> = BTreeMap::new();
    let mut total = 0;
    while total < 60 {
        // Of different sizes: a second batch would show only behind the first.
        let receives = (3..7).map(|size| world.broker.receive(asking(size, None)));
        let handouts = futures::future::join_all(receives).await;
        let mut out: BTreeMap<char, usize> = BTreeMap::new();
        let mut batches = Vec::new();
        for (receiver, handout) in handouts.into_iter().enumerate() {
            let batch = handout.unwrap().take();
            for delivery in &batch {
                let id = delivery.message.message_id.clone();
                let of = id.chars().next().unwrap();
                let owner = out.entry(of).or_insert(receiver);
                assert_eq!(*owner, receiver, "{of} is out at two receivers");
                let before = last.insert(of, id.clone());
                assert!(
                    before.is_none_or(|before| before < id),
                    "{id} is out of order"
                );
            }
            total += batch.len();
            batches.push(batch);
        }
        assert!(!out.is_empty(), "something is ready: {total}");
        for batch in batches {
            ack(&world, &batch).await;
        }
    }
    assert!(take(&world, 32).await.is_empty());
    assert!(last.values().all(|id| id.ends_with("11")), "{last:?}");
}

#[tokio::test(start_paused = true)]
async fn a_message_group_whose_head_fails_for_ever_blocks_no_other() {
    // BR-F06: consumers come and go, and none of them can work on group `p`.
    let world = world().await;
    send_all(&world, &["p1", "p2"]).await;
    for round in 0..5 {
        send(&world, &format!("a{round}")).await;
        send(&world, &format!("b{round}")).await;
        let batch = take(&world, 32).await;
        let expected = [
            ("p1".to_owned(), round + 1),
            ("p2".to_owned(), round + 1),
            (format!("a{round}"), 1),
            (format!("b{round}"), 1),
        ];
        let batch_seen: Vec<_> = seen(&batch)
            .into_iter()
            .map(|(id, attempt)| (id.to_owned(), attempt))
            .collect();
        assert_eq!(batch_seen, expected);
        ack(&world, &batch[2..]).await;
        world.advance(INVISIBLE).await;
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_of_a_message_group_comes_while_its_head_is_hidden() {
    // BR-F02. Mutant: `FifoSecondBatch`: 2 and 3 overtook 1.
    let world = world().await;
    send_all(&world, &["a1", "a2", "a3"]).await;
    let batch = take(&world, 32).await;
    assert_eq!(seen(&batch), [("a1", 1), ("a2", 1), ("a3", 1)]);
    world
        .change("g", "orders", &batch[0], INVISIBLE * 3)
        .await
        .unwrap();
    world.advance(INVISIBLE).await;
    assert!(take(&world, 32).await.is_empty());
    send(&world, "b1").await;
    assert_eq!(seen(&take(&world, 32).await), [("b1", 1)]);
    world.advance(INVISIBLE * 2).await;
    // Due, in order, and the other message group beside it.
    let again = take(&world, 2).await;
    assert_eq!(seen(&again), [("a1", 2), ("a2", 2)]);
    assert_eq!(seen(&take(&world, 32).await), [("b1", 2)]);
    ack(&world, &again).await;
    assert_eq!(seen(&take(&world, 32).await), [("a3", 2)]);
}

#[tokio::test(start_paused = true)]
async fn a_batch_that_expired_comes_again_in_its_order() {
    // BR-F04, with deadlines that pass in another order. BR-C05: nobody has to settle
    // anything first.
    let world = world().await;
    send_all(&world, &["a1", "a2", "a3", "a4"]).await;
    for attempt in 1..5 {
        let batch = take(&world, 3).await;
        assert_eq!(seen(&batch), ["a1", "a2", "a3"].map(|id| (id, attempt)));
        let (first, last) = (INVISIBLE + SECOND, INVISIBLE - SECOND);
        for (delivery, invisible_for) in [(&batch[0], first), (&batch[2], last)] {
            world
                .change("g", "orders", delivery, invisible_for)
                .await
                .unwrap();
        }
        world.advance(INVISIBLE - SECOND).await;
        world.advance(SECOND).await;
        assert!(take(&world, 32).await.is_empty(), "a1 is hidden still");
        world.advance(SECOND).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_new_message_waits_behind_one_that_is_to_be_delivered_again() {
    // BR-F07: the retry waits until there is room in flight, and new messages arrive.
    // Mutant: `FifoPassesTheHead`.
    let world = World::with(|options| options.cache.in_flight_per_group_max = 2).await;
    world.create_fifo_group("g", MANY).await;
    send_all(&world, &["a1"]).await;
    send_to(&world, "payments", "p").await;
    send_to(&world, "payments", "q").await;
    let payment = || ReceiveRequest {
        batch_size: 1,
        invisible_for: INVISIBLE * 9,
        ..request("g", "payments")
    };
    assert_eq!(seen(&take(&world, 1).await), [("a1", 1)]);
    send_all(&world, &["a2"]).await;
    assert!(take(&world, 1).await.is_empty(), "it is read, and waits");
    let first = world.broker.receive(payment()).await.unwrap().take();
    world.advance(INVISIBLE).await;
    // `a1` is ready again, and its place is taken.
    let second = world.broker.receive(payment()).await.unwrap().take();
    send_all(&world, &["b1"]).await;
    let full = world.broker.receive(asking(32, None)).await;
    assert!(
        matches!(full, Err(BrokerError::TooManyInFlight(_))),
        "{full:?}"
    );
    world.ack("g", "payments", &first[0]).await.unwrap();
    let again = take(&world, 32).await;
    assert_eq!(seen(&again), [("a1", 2)]);
    world.ack("g", "payments", &second[0]).await.unwrap();
    assert_eq!(seen(&take(&world, 32).await), [("b1", 1)]);
    ack(&world, &again).await;
    assert_eq!(seen(&take(&world, 32).await), [("a2", 1)]);
}

#[tokio::test(start_paused = true)]
async fn a_receive_that_is_repeated_gets_its_batch_again_and_nothing_else() {
    // BR-F01. Mutant: `FifoForgetsTheAttemptId`: the repeat came back empty, and the
    // group waited for the deadline.
    let world = World::with(|options| options.catalog.queues = 4).await;
    world.create_fifo_group("g", MANY).await;
    send_all(&world, &["a1", "a2", "a3", "b1", "c1", "d1", "e1"]).await;
    let batch = take_as(&world, 2, "x").await;
    let first: Vec<_> = seen(&batch);
    // Under contention, and whichever queue is looked at first.
    for _ in 0..3 {
        let repeats = (0..3).map(|_| take_as(&world, 2, "x"));
        for repeat in futures::future::join_all(repeats).await {
            assert_eq!(seen(&repeat), first);
        }
        let other = take(&world, 1).await;
        assert!(!first.contains(&seen(&other)[0]), "{other:?}");
        ack(&world, &other).await;
    }
    // What was acknowledged of it is done; the rest is what a repeat is about.
    ack(&world, &batch[..1]).await;
    let repeat = take_as(&world, 2, "x").await;
    assert_eq!(seen(&repeat), first[1..]);
    // Every handle is good.
    ack(&world, &batch[1..]).await;
    assert!(world.ack("g", "orders", &repeat[0]).await.is_err());
    // All of it is done: a receive like any other.
    send(&world, "f1").await;
    assert!(!take_as(&world, 32, "x").await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_repeat_hides_its_batch_anew_and_one_after_the_deadline_is_a_new_delivery() {
    let world = world().await;
    send_all(&world, &["a1"]).await;
    take_as(&world, 1, "x").await;
    world.advance(INVISIBLE - SECOND).await;
    assert_eq!(seen(&take_as(&world, 1, "x").await), [("a1", 1)]);
    world.advance(INVISIBLE - SECOND).await;
    assert!(take(&world, 1).await.is_empty(), "it is hidden anew");
    world.advance(SECOND).await;
    assert_eq!(seen(&take_as(&world, 1, "x").await), [("a1", 2)]);
}

#[tokio::test(start_paused = true)]
async fn a_repeat_that_can_not_read_its_batch_leaves_its_deadline_as_it_is() {
    // Mutant: the batch of a queue is hidden anew before it is read. Two queues, because
    // what was read of one is not hidden anew either when the other can't be read.
    let world = World::with(|options| options.catalog.queues = 2).await;
    world.create_fifo_group("g", MANY).await;
    send_all(&world, &["a1", "b1", "c1", "d1", "e1", "f1"]).await;
    let batch = take_as(&world, 32, "x").await;
    let mut queues: Vec<_> = batch.iter().map(|it| it.source.queue).collect();
    queues.dedup();
    assert_eq!((batch.len(), queues.len()), (6, 2));
    world.advance(INVISIBLE - SECOND).await;
    for nth in 1..=2 {
        world.faults.arm(Call::Scan, nth, Fault::Refuse);
        let asked = world.broker.receive(asking(32, Some("x"))).await;
        assert!(matches!(asked, Err(BrokerError::Store(_))), "{asked:?}");
        world.faults.disarm();
    }
    world.advance(SECOND).await;
    let again = take(&world, 32).await;
    assert_eq!(again.len(), 6);
    assert!(again.iter().all(|it| it.delivery_attempt == 2));
}

#[tokio::test(start_paused = true)]
async fn a_repeat_that_is_dropped_takes_nothing_from_whoever_got_the_first_answer() {
    // P3: the first answer may have arrived. Mutant: a dropped repeat releases its batch:
    // it went to a second consumer while the first worked on it.
    let world = world().await;
    send_all(&world, &["a1", "a2"]).await;
    let batch = take_as(&world, 2, "x").await;
    let repeat = world.broker.receive(asking(2, Some("x"))).await.unwrap();
    assert!(!repeat.is_empty());
    drop(repeat);
    world.rest().await;
    assert!(take(&world, 2).await.is_empty());
    ack(&world, &batch).await;
}

#[tokio::test(start_paused = true)]
async fn a_receive_that_is_dropped_unblocks_its_message_group_uncounted_and_in_order() {
    let world = world().await;
    send_all(&world, &["a1", "a2", "a3"]).await;
    drop(world.broker.receive(asking(2, Some("x"))).await.unwrap());
    world.rest().await;
    assert_eq!(
        seen(&take(&world, 3).await),
        ["a1", "a2", "a3"].map(|id| (id, 1))
    );
}

#[tokio::test(start_paused = true)]
async fn a_repeat_while_its_batch_is_being_stored_waits_and_gets_it() {
    // BR-F01: "never an empty success". Mutant: a repeat that does not wait for staged
    // leases came back empty.
    let world = world().await;
    send_all(&world, &["a1", "a2"]).await;
    take_as(&world, 2, "x").await;
    let hang = Fault::Hang(Effect::DidNotHappen);
    world.faults.arm(Call::Write, 1, hang);
    world.clock.advance(crate::world::STAY);
    world.faults.until_hung(1).await;
    let repeat = take_as(&world, 2, "x");
    let release = async {
        tokio::time::sleep(SECOND).await;
        world.faults.release();
    };
    let (repeat, ()) = tokio::join!(repeat, release);
    assert_eq!(seen(&repeat), [("a1", 1), ("a2", 1)]);
}

#[tokio::test(start_paused = true)]
async fn a_blocked_queue_wakes_a_waiting_receive_once_an_append_and_at_once_on_an_ack() {
    // BR-F08. Mutant: a look at a blocked queue that wakes the next one spins.
    let world = world().await;
    send_all(&world, &["a1", "a2"]).await;
    let batch = take(&world, 1).await;
    let waiting = ReceiveRequest {
        wait_max: SECOND * 3_600,
        ..asking(1, None)
    };
    let receive = world.broker.receive(waiting);
    let blocked = async {
        tokio::time::sleep(SECOND).await;
        let before = world.faults.call_count(Call::Scan);
        tokio::time::sleep(SECOND * 60).await;
        let idle = world.faults.call_count(Call::Scan) - before;
        for number in 3..8 {
            send(&world, &format!("a{number}")).await;
            tokio::time::sleep(SECOND).await;
        }
        let busy = world.faults.call_count(Call::Scan) - before - idle;
        ack(&world, &batch).await;
        (idle, busy, Instant::now())
    };
    let (handout, (idle, busy, acked)) = tokio::join!(receive, blocked);
    let handed_out = handout.unwrap().take();
    assert!(acked.elapsed() <= Duration::from_millis(10));
    assert_eq!(seen(&handed_out), [("a2", 1)]);
    assert_eq!(idle, 0, "nothing happened, so nothing was read");
    assert!(busy <= 2 * 5, "{busy} reads for 5 messages");
}

#[tokio::test(start_paused = true)]
async fn a_waiting_receive_is_woken_when_the_batch_before_it_expires() {
    let world = world().await;
    send_all(&world, &["a1"]).await;
    take(&world, 1).await;
    let waiting = ReceiveRequest {
        wait_max: SECOND * 3_600,
        ..asking(1, None)
    };
    let expire = async {
        tokio::time::sleep(SECOND).await;
        world.clock.advance(INVISIBLE);
        Instant::now()
    };
    let (handout, expired) = tokio::join!(world.broker.receive(waiting), expire);
    assert_eq!(seen(&handout.unwrap().take()), [("a1", 2)]);
    assert!(expired.elapsed() <= Duration::from_millis(50));
}

#[tokio::test(start_paused = true)]
async fn a_head_that_used_up_its_attempts_is_a_dead_letter_and_the_next_one_comes() {
    // BR-E03. Mutant: `OneAttemptTooMany`.
    let world = world_with(2).await;
    send_all(&world, &["a1", "a2"]).await;
    for attempt in 1..=2 {
        assert_eq!(seen(&take(&world, 1).await), [("a1", attempt)]);
        world.advance(INVISIBLE).await;
    }
    let places = audit(&world.rows()).await;
    assert_eq!(places[&("g".into(), "a1".into())], [Place::DeadLettered]);
    let next = take(&world, 32).await;
    assert_eq!(seen(&next), [("a2", 1)]);
    ack(&world, &next).await;
    world.rest().await;
    assert!(all(&world.rows(), LEASE).await.is_empty(), "no row is left");
    let letters = ReceiveRequest {
        topic: TopicName::dead_letter(&group("g")),
        ..request("undertakers", "orders")
    };
    let letters = world.broker.receive(letters).await.unwrap().take();
    let origin = letters[0].message.origin.as_ref().unwrap();
    assert_eq!((letters.len(), origin.delivery_attempts), (1, 2));
}

#[tokio::test(start_paused = true)]
async fn a_suspended_delivery_is_not_counted_in_order_either() {
    let world = world_with(2).await;
    send_all(&world, &["a1", "a2"]).await;
    for _ in 0..5 {
        let batch = take(&world, 1).await;
        assert_eq!(seen(&batch), [("a1", 1)]);
        let handle = batch[0].handle.as_str();
        let (by, of) = (group("g"), topic("orders"));
        world
            .broker
            .change_invisible(&by, &of, handle, SECOND, true)
            .await
            .unwrap();
        world.advance(SECOND).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_handle_whose_message_was_handed_out_again_counts_no_more_after_a_crash() {
    // P3. Mutant: that a delivery is over is not synced before the next one goes out; the
    // crash took it, and the first handle counted as the last.
    let world = world().await;
    send_all(&world, &["a1", "a2"]).await;
    let first = take(&world, 1).await;
    world.advance(INVISIBLE).await;
    let second = take(&world, 1).await;
    assert_eq!(seen(&second), [("a1", 2)]);
    let world = world.crash(0).await;
    for delivery in [&first[0], &second[0]] {
        let acked = world.ack("g", "orders", delivery).await;
        assert!(matches!(acked, Err(BrokerError::DeliveryOver)), "{acked:?}");
    }
    assert_eq!(seen(&take(&world, 1).await), [("a1", 2)]);
}

#[tokio::test(start_paused = true)]
async fn a_change_of_what_this_run_has_not_read_survives_the_next_restart() {
    let world = world().await;
    send_all(&world, &["a1", "a2"]).await;
    let batch = take(&world, 1).await;
    let world = world.restart().await;
    let longer = 3 * INVISIBLE;
    let changed = world.change("g", "orders", &batch[0], longer).await;
    changed.unwrap();
    let world = world.restart().await;
    world.advance(longer - SECOND).await;
    // Mutant: the change is in memory alone. What is due is found when it is read, and swept.
    assert!(take(&world, 2).await.is_empty());
    world.rest().await;
    assert!(take(&world, 2).await.is_empty());
    world.advance(SECOND).await;
    assert_eq!(seen(&take(&world, 1).await), [("a1", 2)]);
}

#[tokio::test(start_paused = true)]
async fn a_late_acknowledgement_counts_until_the_message_is_handed_out_again() {
    // BR-D05: the deadline alone refuses nothing. Mutant: `AckByOffsetAlone`.
    let world = world().await;
    send_all(&world, &["a1", "a2"]).await;
    let late = take(&world, 1).await;
    world.advance(INVISIBLE).await;
    ack(&world, &late).await;
    let stale = take(&world, 1).await;
    assert_eq!(seen(&stale), [("a2", 1)]);
    world.advance(INVISIBLE).await;
    let newer = take(&world, 1).await;
    assert_eq!(seen(&newer), [("a2", 2)]);
    let refused = world.ack("g", "orders", &stale[0]).await;
    assert!(matches!(refused, Err(BrokerError::DeliveryOver)));
    ack(&world, &newer).await;
}

#[tokio::test(start_paused = true)]
async fn after_a_reset_each_message_comes_once_in_order() {
    // BR-H01. Mutant: `ResetKeepsMarks`: `a1` stayed done.
    let world = world().await;
    send_all(&world, &["a1", "a2", "b1", "a3"]).await;
    let batch = take(&world, 32).await;
    assert_eq!(seen(&batch), ["a1", "a2", "a3", "b1"].map(|id| (id, 1)));
    ack(&world, &batch[..1]).await;
    // Stored rows are void, too.
    world.stay().await;
    let (by, of) = (group("g"), topic("orders"));
    world
        .broker
        .reset_offset(&by, &of, ResetTo::Earliest)
        .await
        .unwrap();
    for delivery in &batch[1..] {
        let refused = world.ack("g", "orders", delivery).await;
        assert!(matches!(refused, Err(BrokerError::DeliveryOver)));
    }
    // A crash before anything else finds it where it was set.
    let world = world.crash(usize::MAX).await;
    let again = take(&world, 32).await;
    assert_eq!(seen(&again), ["a1", "a2", "a3", "b1"].map(|id| (id, 1)));
    for delivery in &batch {
        let refused = world.ack("g", "orders", delivery).await;
        assert!(matches!(refused, Err(BrokerError::DeliveryOver)));
    }
    ack(&world, &again).await;
    world.advance(INVISIBLE * 2).await;
    assert!(take(&world, 32).await.is_empty());
    let world = world.crash(usize::MAX).await;
    assert!(take(&world, 32).await.is_empty());
    let progress = world.broker.progress(&by, &of).await.unwrap();
    assert!(
        progress
            .iter()
            .all(|queue| (queue.lag, queue.in_flight) == (0, 0))
    );
}

#[tokio::test(start_paused = true)]
async fn a_crash_keeps_order_and_attempts_and_ends_what_was_only_in_memory() {
    // Mutant: `FifoAttemptsForgotten`: the attempts began anew.
    let mut world = world().await;
    send_all(&world, &["a1", "a2", "b1"]).await;
    for attempt in 1..4 {
        // Twice the same: a crash costs no attempt (P4).
        for _ in 0..2 {
            let batch = take(&world, 32).await;
            let expected = [("a1", attempt), ("a2", attempt), ("b1", attempt)];
            assert_eq!(seen(&batch), expected);
            world = world.crash(usize::MAX).await;
        }
        take(&world, 32).await;
        world.advance(INVISIBLE).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_was_stored_blocks_its_message_group_after_a_crash_until_its_deadline() {
    // Mutant: `FifoSecondBatch`; a row that is not looked at when the queue is loaded.
    for is_graceful in [false, true] {
        let world = world().await;
        send_all(&world, &["a1", "a2", "b1"]).await;
        let batch = take_as(&world, 1, "x").await;
        let world = if is_graceful {
            world.restart().await
        } else {
            world.stay().await;
            world.crash(usize::MAX).await
        };
        // The client finds its batch again; `a` is blocked for others; its handle is good.
        assert_eq!(seen(&take_as(&world, 1, "x").await), [("a1", 1)]);
        assert_eq!(seen(&take(&world, 32).await), [("b1", 1)]);
        world
            .change("g", "orders", &batch[0], SECOND * 20)
            .await
            .unwrap();
        world.advance(SECOND * 19).await;
        assert!(take(&world, 32).await.is_empty());
        world.advance(SECOND).await;
        assert_eq!(seen(&take(&world, 1).await), [("a1", 2)]);
        let stale = world.ack("g", "orders", &batch[0]).await;
        assert!(matches!(stale, Err(BrokerError::DeliveryOver)));
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_expires_while_the_broker_is_down_counts_as_an_attempt() {
    // BR-E06, BR-E03. Mutant: a row whose time is up taken for one that is ready: the
    // attempt was repeated at each restart, and the limit never reached.
    let mut world = world_with(3).await;
    send_all(&world, &["a1", "a2"]).await;
    for attempt in 1..=3 {
        assert_eq!(seen(&take(&world, 1).await), [("a1", attempt)]);
        world.broker.shutdown().await.unwrap();
        world.clock.advance(INVISIBLE);
        world = world.crash(0).await;
        // Whoever comes first finds the row and lets it expire.
        assert!(take(&world, 1).await.is_empty());
        world.rest().await;
    }
    assert_eq!(seen(&take(&world, 1).await), [("a2", 1)]);
}

#[tokio::test(start_paused = true)]
async fn an_acknowledged_message_of_the_middle_stays_so_over_a_crash() {
    let world = world().await;
    send_all(&world, &["a1", "a2", "a3"]).await;
    let batch = take(&world, 3).await;
    world.stay().await;
    ack(&world, &batch[1..2]).await;
    world.rest().await;
    let world = world.crash(0).await;
    world.advance(INVISIBLE).await;
    assert!(
        take(&world, 3).await.is_empty(),
        "they are to be loaded first"
    );
    world.rest().await;
    assert_eq!(seen(&take(&world, 3).await), [("a1", 2), ("a3", 2)]);
}

#[tokio::test(start_paused = true)]
async fn what_a_filter_skips_is_passed_for_good_and_its_message_group_goes_on() {
    // BR-A05. Mutant: `SkippedStaysOpen`.
    let world = world().await;
    for (id, tag) in [
        ("a1", "noise"),
        ("a2", "music"),
        ("a3", "noise"),
        ("a4", "music"),
    ] {
        let sent = NewMessage {
            kind: MessageKind::Fifo,
            message_group: Some("a".into()),
            tag: Some(tag.into()),
            ..message(id)
        };
        world.try_send("orders", sent).await.unwrap();
    }
    let picky = ReceiveRequest {
        filter: Filter::tags("music").unwrap(),
        ..asking(32, None)
    };
    let found = world.broker.receive(picky).await.unwrap().take();
    assert_eq!(seen(&found), [("a2", 1), ("a4", 1)]);
    ack(&world, &found).await;
    world.rest().await;
    let world = world.crash(usize::MAX).await;
    assert!(take(&world, 32).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_broken_row_goes_to_quarantine_in_its_turn_and_its_message_group_goes_on() {
    // P6. Mutant: `QuarantineDropped`.
    let world = world().await;
    // Without a group it can be read of, the broken one is of the group without a name.
    for id in ["1", "2", "3"] {
        world.send("orders", id).await;
    }
    let rows = messages(&world.rows()).await;
    let broken: Vec<LogKey> = rows.iter().skip(1).take(1).map(|(key, _)| *key).collect();
    let mut batch = WriteBatch::new();
    batch.put(LOG, broken[0].encode(), "not a row".into());
    world.rows().write(batch, Durability::Synced).await.unwrap();
    let found = take(&world, 32).await;
    assert_eq!(seen(&found), [("1", 1), ("3", 1)]);
    assert_eq!(world.broker.quarantined(0, 9).await.unwrap().len(), 1);
    ack(&world, &found).await;
    world.rest().await;
    let world = world.crash(usize::MAX).await;
    assert!(take(&world, 32).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn messages_of_a_group_in_order_and_of_one_in_any_order_know_nothing_of_each_other() {
    let world = world().await;
    send_all(&world, &["a1", "a2"]).await;
    take(&world, 1).await;
    assert_eq!(
        seen(&world.receive("h", "orders").await),
        [("a1", 1), ("a2", 1)]
    );
    world.advance(INVISIBLE).await;
    assert_eq!(
        seen(&world.receive("h", "orders").await),
        [("a1", 2), ("a2", 2)]
    );
    assert_eq!(seen(&take(&world, 2).await), [("a1", 2), ("a2", 1)]);
}
