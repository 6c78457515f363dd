//! Setting where a group goes on, whatever is out: durable when it is answered, and what
//! was before is void.

use std::time::Duration;

use pop_broker::{BrokerError, Delivery, QueueProgress, ReceiveRequest, ResetTo};
use pop_model::{Offset, QueueId};

use crate::{
    audit::{assert_each_in_one_place, audit},
    world::{INVISIBLE, World, group, ids, message, request, seen, topic},
};

async fn reset(world: &World, to: ResetTo) {
    let (by, of) = (group("g"), topic("orders"));
    world.broker.reset_offset(&by, &of, to).await.unwrap();
}

fn at(offset: u64) -> ResetTo {
    ResetTo::Offset(QueueId::new(0), Offset::new(offset))
}

async fn progress(world: &World) -> Vec<QueueProgress> {
    let progress = world.broker.progress(&group("g"), &topic("orders")).await;
    progress.unwrap()
}

/// A world whose one queue has `count` messages, all acknowledged.
async fn acknowledged(count: usize) -> World {
    let world = World::new().await;
    for number in 0..count {
        world.send("orders", &format!("m{number}")).await;
    }
    for delivery in world.receive("g", "orders").await {
        world.ack("g", "orders", &delivery).await.unwrap();
    }
    world.rest().await;
    world
}

#[tokio::test(start_paused = true)]
async fn a_reset_survives_a_power_cut_and_begins_with_its_message() {
    // BR-A10. Mutant: the reset is not synced: `m3` was lost.
    let world = acknowledged(6).await;
    reset(&world, at(3)).await;
    let world = world.crash(0).await;
    let again = world.receive("g", "orders").await;
    assert_eq!(seen(&again), [("m3", 1), ("m4", 1), ("m5", 1)]);
}

#[tokio::test(start_paused = true)]
async fn a_reset_takes_every_queue_and_whatever_is_out_of_it() {
    // BR-H02. Mutant: what was stored before it goes on to count.
    let world = World::new().await;
    world.create_topic("orders", 3).await;
    let names: Vec<String> = (0..18).map(|number| format!("m{number:02}")).collect();
    for name in &names {
        world.send("orders", name).await;
    }
    let some = |batch_size| ReceiveRequest {
        batch_size,
        ..request("g", "orders")
    };
    let take = async |batch_size| -> Vec<Delivery> {
        world.broker.receive(some(batch_size)).await.unwrap().take()
    };
    // Ready again and out for the second time, stored, acknowledged, in memory, not read.
    let mut out = take(6).await;
    world.advance(INVISIBLE).await;
    out.extend(take(3).await);
    out.extend(take(3).await);
    world.stay().await;
    let done = take(3).await;
    for delivery in &done {
        world.ack("g", "orders", delivery).await.unwrap();
    }
    out.extend(take(3).await);
    world.rest().await;
    reset(&world, ResetTo::Earliest).await;

    for delivery in &out {
        let refused = world.ack("g", "orders", delivery).await;
        assert!(matches!(refused, Err(BrokerError::DeliveryOver)));
    }
    let queues = progress(&world).await;
    let (retry, own) = queues.split_last().unwrap();
    assert!(own.iter().all(|it| it.committed == it.bounds.start));
    assert!(own.iter().all(|it| it.in_flight == 0));
    assert_eq!(own.iter().map(|it| it.lag).sum::<u64>(), 18);
    assert_eq!(retry.queue, QueueId::RETRY);
    assert_each_in_one_place(&audit_of_new(&world).await, &[]);

    let again = world.receive("g", "orders").await;
    let expected: Vec<_> = names.iter().map(|name| (name.as_str(), 1)).collect();
    assert_eq!(seen(&again), expected);
    for delivery in &again {
        world.ack("g", "orders", delivery).await.unwrap();
    }
    world.advance(INVISIBLE * 3).await;
    assert!(world.receive("g", "orders").await.is_empty());
}

/// Where each message is once everything that the reset made void is gone.
async fn audit_of_new(world: &World) -> crate::audit::Audit {
    world.advance(INVISIBLE * 2).await;
    let mut places = audit(&world.rows()).await;
    for places in places.values_mut() {
        // What is void goes when it is met.
        places.retain(|place| *place == crate::audit::Place::Ready);
    }
    places
}

#[tokio::test(start_paused = true)]
async fn acknowledgements_around_a_reset_do_not_move_it() {
    // BR-H06. Two are acknowledged and not flushed, two come after it.
    let hour = Duration::from_secs(3_600);
    let world = World::with(|options| options.cache.flush_every = hour).await;
    for id in ["a", "b", "c", "d"] {
        world.send("orders", id).await;
    }
    let old = world.receive("g", "orders").await;
    for delivery in &old[..2] {
        world.ack("g", "orders", delivery).await.unwrap();
    }
    reset(&world, ResetTo::Earliest).await;
    for delivery in &old[2..] {
        let refused = world.ack("g", "orders", delivery).await;
        assert!(matches!(refused, Err(BrokerError::DeliveryOver)));
    }
    tokio::time::sleep(hour * 2).await;
    let world = world.crash(usize::MAX).await;
    assert_eq!(
        ids(&world.receive("g", "orders").await),
        ["a", "b", "c", "d"]
    );
}

#[tokio::test(start_paused = true)]
async fn lag_is_known_right_after_a_reset() {
    // BR-I05. Mutant: the lag is computed from what was handed out.
    let world = acknowledged(10).await;
    assert_eq!(progress(&world).await[0].lag, 0);
    for (to, lag) in [
        (at(4), 6),
        (ResetTo::Latest, 0),
        (ResetTo::Earliest, 10),
        (at(9), 1),
    ] {
        reset(&world, to).await;
        assert_eq!(progress(&world).await[0].lag, lag, "{to:?}");
    }
    world.try_send("orders", message("late")).await.unwrap();
    let world = world.crash(usize::MAX).await;
    assert_eq!(progress(&world).await[0].lag, 2);
}
