//! What a receipt handle may do, and to which delivery (P3): acknowledgement and change of
//! the invisible duration, in time, late, twice, stale and foreign.

use std::time::Duration;

use pop_broker::{BrokerError, Delivery};
use pop_model::{HandleError, limits::INVISIBLE_MS_MAX};

use crate::{
    audit::{Place, audit},
    world::{INVISIBLE, SECOND, World, group, seen, topic},
};

/// Where message `a` of group `g` is.
async fn place(world: &World) -> Vec<Place> {
    audit(&world.rows()).await[&("g".into(), "a".into())].clone()
}

#[tokio::test(start_paused = true)]
async fn an_acknowledged_message_never_comes_again() {
    let world = World::new().await;
    world.send("orders", "a").await;
    let delivery = world.receive_one("g", "orders").await;
    world.ack("g", "orders", &delivery).await.unwrap();
    world.rest().await;
    assert!(place(&world).await.is_empty());
    world.advance(INVISIBLE * 4).await;
    assert!(world.receive("g", "orders").await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_acknowledgement_works_once() {
    let world = World::new().await;
    world.send("orders", "a").await;
    let delivery = world.receive_one("g", "orders").await;
    world.ack("g", "orders", &delivery).await.unwrap();
    let again = world.ack("g", "orders", &delivery).await;
    assert!(matches!(again, Err(BrokerError::DeliveryOver)), "{again:?}");
    let changed = world.change("g", "orders", &delivery, SECOND).await;
    assert!(matches!(changed, Err(BrokerError::DeliveryOver)));
}

#[tokio::test(start_paused = true)]
async fn a_late_acknowledgement_counts_while_the_message_was_not_made_ready() {
    // The deadline alone refuses nothing. The clock jumps; the sweep has not looked yet.
    let world = World::new().await;
    world.send("orders", "a").await;
    let delivery = world.receive_one("g", "orders").await;
    world.clock.advance(INVISIBLE * 2);
    world.ack("g", "orders", &delivery).await.unwrap();
    world.rest().await;
    assert!(place(&world).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_stale_handle_is_refused_and_leaves_the_newer_delivery_alone() {
    // P3, BR-D05, BR-D10: the second delivery is one of the retry queue. Mutant: an
    // acknowledgement of a settled offset without a row that is answered OK.
    let world = World::new().await;
    world.send("orders", "a").await;
    let stale = world.receive_one("g", "orders").await;
    world.advance(INVISIBLE).await;
    let refused = world.ack("g", "orders", &stale).await;
    assert!(matches!(refused, Err(BrokerError::DeliveryOver)));

    let newer = world.receive_one("g", "orders").await;
    let before = place(&world).await;
    let refused = world.ack("g", "orders", &stale).await;
    assert!(matches!(refused, Err(BrokerError::DeliveryOver)));
    let refused = world.change("g", "orders", &stale, Duration::ZERO).await;
    assert!(matches!(refused, Err(BrokerError::DeliveryOver)));
    world.rest().await;
    assert_eq!(place(&world).await, before);
    world.ack("g", "orders", &newer).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_handle_is_good_in_its_own_group_and_topic_only() {
    let world = World::new().await;
    world.send("orders", "a").await;
    world.send("payments", "b").await;
    let delivery = world.receive_one("g", "orders").await;
    let other_group = world.receive_one("h", "orders").await;
    world.receive_one("g", "payments").await;
    for (by, of) in [("h", "orders"), ("g", "payments")] {
        let refused = world.ack(by, of, &delivery).await;
        assert!(matches!(refused, Err(BrokerError::HandleOfAnother)));
        let refused = world.change(by, of, &delivery, SECOND).await;
        assert!(matches!(refused, Err(BrokerError::HandleOfAnother)));
    }
    world.ack("g", "orders", &delivery).await.unwrap();
    world.ack("h", "orders", &other_group).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_handle_of_another_broker_is_not_one_of_ours() {
    // The other broker has the same names, ids and offsets, and keys of its own.
    let world = World::new().await;
    let stranger = world.stranger().await;
    for world in [&world, &stranger] {
        world.send("orders", "a").await;
    }
    let own = world.receive_one("g", "orders").await;
    let foreign = stranger.receive_one("g", "orders").await;
    let refused = world.ack("g", "orders", &foreign).await;
    assert!(
        matches!(refused, Err(BrokerError::Handle(HandleError::Forged))),
        "{refused:?}"
    );
    world.ack("g", "orders", &own).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_handle_that_was_cut_or_made_up_is_a_clear_error() {
    let world = World::new().await;
    world.send("orders", "a").await;
    let delivery = world.receive_one("g", "orders").await;
    let whole = delivery.handle.to_string();
    let (by, of) = (group("g"), topic("orders"));
    for wrong in [
        "",
        "x",
        &whole[1..],
        &whole[..whole.len() - 1],
        &whole.repeat(2),
    ] {
        let refused = world.broker.ack(&by, &of, wrong).await;
        assert!(matches!(refused, Err(BrokerError::Handle(_))), "{wrong:?}");
    }
    world.ack("g", "orders", &delivery).await.unwrap();
}

/// Hides a message anew, `after` it was received, and says when it comes again.
async fn check_change(after: Duration, invisible_for: Duration) {
    let world = World::new().await;
    world.send("orders", "a").await;
    let delivery = world.receive_one("g", "orders").await;
    world.advance(after).await;
    let changed = world
        .change("g", "orders", &delivery, invisible_for)
        .await
        .unwrap();
    assert!(!changed.is_empty());
    if invisible_for.is_zero() {
        // The due index is in milliseconds, and what was looked at is not looked at again.
        world.advance(Duration::from_millis(1)).await;
    } else {
        // BR-D09: it counts from the call.
        world
            .advance(invisible_for - Duration::from_millis(1))
            .await;
        assert!(world.receive("g", "orders").await.is_empty());
        world.advance(Duration::from_millis(1)).await;
    }
    assert_eq!(seen(&world.receive("g", "orders").await), [("a", 2)]);
}

#[tokio::test(start_paused = true)]
async fn a_change_to_a_shorter_time_brings_the_message_sooner() {
    check_change(SECOND, SECOND).await;
}

#[tokio::test(start_paused = true)]
async fn a_change_to_a_longer_time_brings_the_message_later() {
    check_change(SECOND, INVISIBLE * 3).await;
}

#[tokio::test(start_paused = true)]
async fn a_change_to_the_deadline_that_it_has_keeps_the_message() {
    // BR-A03. Mutant: deletes after puts in a batch would drop the row here.
    check_change(Duration::ZERO, INVISIBLE).await;
    check_change(SECOND, INVISIBLE - SECOND).await;
}

#[tokio::test(start_paused = true)]
async fn a_change_to_zero_makes_the_message_ready_at_once() {
    check_change(Duration::ZERO, Duration::ZERO).await;
    check_change(SECOND, Duration::ZERO).await;
}

#[tokio::test(start_paused = true)]
async fn a_change_above_twelve_hours_is_refused_and_changes_nothing() {
    let world = World::new().await;
    world.send("orders", "a").await;
    let delivery = world.receive_one("g", "orders").await;
    let before = place(&world).await;
    let too_long = Duration::from_millis(INVISIBLE_MS_MAX + 1);
    for invisible_for in [too_long, Duration::MAX] {
        let refused = world.change("g", "orders", &delivery, invisible_for).await;
        assert!(matches!(refused, Err(BrokerError::InvisibleDuration(_))));
    }
    assert_eq!(place(&world).await, before);
}

#[tokio::test(start_paused = true)]
async fn every_handle_of_a_delivery_works_however_often_its_time_was_changed() {
    // BR-D08, BR-D01, BR-D03.
    let world = World::new().await;
    world.send("orders", "a").await;
    let delivery = world.receive_one("g", "orders").await;
    let (by, of) = (group("g"), topic("orders"));
    let mut newest = delivery.handle.to_string();
    for round in 0..50 {
        // Longer, shorter, longer: hints go both ways.
        let invisible_for = INVISIBLE + SECOND * (round * 37 % 10);
        let changed = world
            .broker
            .change_invisible(&by, &of, &newest, invisible_for, false)
            .await;
        newest = changed.unwrap().to_string();
        world.advance(INVISIBLE / 2).await;
        assert!(world.receive("g", "orders").await.is_empty());
    }
    // The first handle, which a consumer may be all that is left of.
    world.ack("g", "orders", &delivery).await.unwrap();
    world.advance(INVISIBLE * 3).await;
    assert!(world.receive("g", "orders").await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_acknowledgement_and_a_change_at_once_end_the_delivery() {
    let world = World::new().await;
    for round in 0..20 {
        world.send("orders", "a").await;
        let delivery = world.receive_one("g", "orders").await;
        let change = world.change("g", "orders", &delivery, INVISIBLE * 2);
        let (acked, _) = if round % 2 == 0 {
            tokio::join!(world.ack("g", "orders", &delivery), change)
        } else {
            let (changed, acked) = tokio::join!(change, world.ack("g", "orders", &delivery));
            (acked, changed)
        };
        acked.unwrap();
        world.advance(INVISIBLE * 3).await;
        assert!(world.receive("g", "orders").await.is_empty());
    }
}

/// `a` is acknowledged and `b` comes again at its deadline, both delivered in a run before.
async fn check_outlives(world: World, deliveries: &[Delivery]) {
    // Nothing is ready: both are out still.
    assert!(world.receive("g", "orders").await.is_empty());
    world.ack("g", "orders", &deliveries[0]).await.unwrap();
    world.advance(INVISIBLE).await;
    assert_eq!(seen(&world.receive("g", "orders").await), [("b", 2)]);
    // The delivery of the old run was handed out again since.
    let refused = world.ack("g", "orders", &deliveries[1]).await;
    assert!(matches!(refused, Err(BrokerError::DeliveryOver)));
}

#[tokio::test(start_paused = true)]
async fn a_handle_outlives_a_restart_as_long_as_its_delivery() {
    // Mutant: a close without the spill: both were ready at once.
    for stays in [false, true] {
        let world = World::new().await;
        world.send("orders", "a").await;
        world.send("orders", "b").await;
        let deliveries = world.receive("g", "orders").await;
        if stays {
            world.stay().await;
        }
        check_outlives(world.restart().await, &deliveries).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_handle_outlives_a_crash_once_its_delivery_was_stored() {
    let world = World::new().await;
    world.send("orders", "a").await;
    world.send("orders", "b").await;
    let deliveries = world.receive("g", "orders").await;
    world.stay().await;
    check_outlives(world.crash(usize::MAX).await, &deliveries).await;
}

#[tokio::test(start_paused = true)]
async fn a_handle_of_a_lease_that_a_crash_ended_acks_what_was_not_handed_out_since() {
    // P3: a crash ends leases that were only in memory, and their consumer may be done.
    // Mutant: `find` without the previous incarnation: the work was done twice.
    let world = World::new().await;
    world.send("orders", "a").await;
    world.send("orders", "b").await;
    let old = world.receive("g", "orders").await;
    let world = world.crash(usize::MAX).await;
    world.ack("g", "orders", &old[0]).await.unwrap();
    // It has no time that could be changed: it is ready.
    let changed = world.change("g", "orders", &old[1], SECOND).await;
    assert!(matches!(changed, Err(BrokerError::DeliveryOver)));
    assert_eq!(seen(&world.receive("g", "orders").await), [("b", 1)]);
    let world = world.crash(usize::MAX).await;
    // Two runs ago: nobody can tell what was handed out since.
    let refused = world.ack("g", "orders", &old[1]).await;
    assert!(matches!(refused, Err(BrokerError::DeliveryOver)));
}

#[tokio::test(start_paused = true)]
async fn a_handle_of_a_lease_that_a_crash_ended_does_not_end_the_next_delivery() {
    // BR-D06: the new lease is of the same message, attempt and generation; the incarnation
    // tells them apart. Mutant: `OldIncarnationSettles`: the old handle was answered OK.
    let world = World::new().await;
    world.send("orders", "a").await;
    world.send("orders", "b").await;
    let old = world.receive("g", "orders").await;
    let world = world.crash(0).await;
    let new = world.receive("g", "orders").await;
    assert_eq!(seen(&new), [("a", 1), ("b", 1)]);
    for delivery in &old {
        let refused = world.ack("g", "orders", delivery).await;
        assert!(matches!(refused, Err(BrokerError::DeliveryOver)));
    }
    for delivery in &new {
        world.ack("g", "orders", delivery).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn each_handle_of_a_mixed_batch_ends_its_own_message() {
    // BR-L03, and the ancestor's fault 16: one receive of retries and new messages.
    // Mutant: `HandlesMixedUp`.
    let world = World::new().await;
    for id in ["a", "b"] {
        world.send("orders", id).await;
    }
    world.receive("g", "orders").await;
    world.advance(INVISIBLE).await;
    for id in ["c", "d"] {
        world.send("orders", id).await;
    }
    let mixed = world.receive("g", "orders").await;
    assert_eq!(seen(&mixed), [("a", 2), ("b", 2), ("c", 1), ("d", 1)]);
    for delivery in [&mixed[0], &mixed[2]] {
        world.ack("g", "orders", delivery).await.unwrap();
    }
    world.advance(INVISIBLE).await;
    let again = world.receive("g", "orders").await;
    assert_eq!(seen(&again), [("b", 3), ("d", 2)]);
}
