//! Coming back: after a power cut, after a store that failed under the running broker, and
//! not at all.

use std::time::Duration;

use pop_broker::{BrokerError, Health, ReceiveRequest};
use pop_store::{
    Durability,
    testkit::{Call, Effect, Fault},
};
use tokio::time::Instant;

use crate::{
    audit::{assert_each_in_one_place, audit},
    world::{INVISIBLE, SECOND, World, group, ids, message, request, seen, topic},
};

/// A flush interval, and the time to write.
const FLUSH: Duration = Duration::from_millis(51);

#[tokio::test(start_paused = true)]
async fn after_a_power_cut_what_was_not_acknowledged_comes_again_and_nothing_else() {
    // P4. The acknowledgement is durable. What was only in memory is ready again, as it
    // was; what was stored comes at its deadline with one attempt more; and the message
    // that nobody had comes at once. Mutant: `RestartIgnoresMarks`: `a` came again.
    for stays in [false, true] {
        let world = World::with(|options| options.ack_durability = Durability::Synced).await;
        for id in ["a", "b", "c"] {
            world.send("orders", id).await;
        }
        let deliveries = world.receive("g", "orders").await;
        if stays {
            world.stay().await;
        }
        // From the middle, so that it is above the committed offset.
        world.ack("g", "orders", &deliveries[1]).await.unwrap();
        world.send("orders", "d").await;
        let world = world.crash(0).await;
        let at_once = world.receive("g", "orders").await;
        if stays {
            assert_eq!(seen(&at_once), [("d", 1)]);
        } else {
            assert_eq!(seen(&at_once), [("a", 1), ("c", 1), ("d", 1)]);
        }
        world.advance(INVISIBLE).await;
        let again = world.receive("g", "orders").await;
        assert_eq!(seen(&again), [("a", 2), ("c", 2), ("d", 2)]);
    }
}

#[tokio::test(start_paused = true)]
async fn acknowledgements_are_durable_within_one_flush() {
    // P4: after a crash only the acknowledgements of the last flush interval come again.
    // Nobody receives or acknowledges anything meanwhile (BR-I02). Mutants:
    // `FlushOnlyWithTraffic`; a flush that is not synced: all 32 came again.
    for (waits, comes_again) in [(Duration::ZERO, 32), (FLUSH, 0)] {
        let world = World::new().await;
        for number in 0..32 {
            world.send("orders", &format!("m{number:02}")).await;
        }
        for delivery in world.receive("g", "orders").await {
            world.ack("g", "orders", &delivery).await.unwrap();
        }
        // Idle by every clock.
        world.clock.advance(waits);
        tokio::time::sleep(waits).await;
        let world = world.crash(0).await;
        let again = world.receive("g", "orders").await;
        assert_eq!(again.len(), comes_again, "after {waits:?}");
        assert!(again.iter().all(|it| it.delivery_attempt == 1));
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_a_power_cut_lost_comes_again_at_once_with_the_same_attempt() {
    // BR-E06: once a crash, and a crash costs no attempt.
    let mut world = World::new().await;
    world.send("orders", "a").await;
    world.try_receive("g", "orders").await.unwrap();
    for _ in 0..3 {
        world = world.crash(usize::MAX).await;
        let delivery = world.receive_one("g", "orders").await;
        assert_eq!(delivery.delivery_attempt, 1);
    }
    // The same of a delivery that is not the first.
    world.advance(INVISIBLE).await;
    for _ in 0..3 {
        let delivery = world.receive_one("g", "orders").await;
        assert_eq!(delivery.delivery_attempt, 2);
        world = world.crash(usize::MAX).await;
    }
}

#[tokio::test(start_paused = true)]
async fn attempts_go_on_counting_over_restarts() {
    let mut world = World::new().await;
    world.send("orders", "a").await;
    for attempt in 1..=6 {
        assert_eq!(seen(&world.receive("g", "orders").await), [("a", attempt)]);
        if attempt % 2 == 0 {
            world.stay().await;
            world = world.crash(usize::MAX).await;
        } else {
            world = world.restart().await;
        }
        assert!(world.receive("g", "orders").await.is_empty());
        world.advance(INVISIBLE).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_power_cut_between_expiry_and_redelivery_loses_nothing() {
    for keep in 0..6 {
        let world = World::new().await;
        for id in ["a", "b", "c", "d"] {
            world.send("orders", id).await;
        }
        world.receive("g", "orders").await;
        world.send("orders", "e").await;
        world.advance(INVISIBLE).await;
        let unsynced = world.rows().unsynced_count();
        let world = world.crash(keep).await;
        world.rest().await;
        assert_each_in_one_place(&audit(&world.rows()).await, &[]);
        let again = world.receive("g", "orders").await;
        // The entries and the marks are one batch: all of it is there, or none.
        let attempt = again[0].delivery_attempt;
        let expected = ["a", "b", "c", "d"].map(|id| (id, attempt));
        let expected: Vec<_> = expected.into_iter().chain([("e", 1)]).collect();
        assert_eq!(seen(&again), expected, "keep {keep}");
        if keep == 0 {
            assert_eq!(attempt, 1, "its lease was lost with the power");
        } else if keep >= unsynced {
            assert_eq!(attempt, 2, "its end was written");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_keeps_everything_and_the_last_second_of_lease_time() {
    let world = World::new().await;
    world.send("orders", "a").await;
    let delivery = world.receive_one("g", "orders").await;
    world.broker.shutdown().await.unwrap();
    assert!(matches!(
        world.try_send("orders", message("late")).await,
        Err(BrokerError::ShuttingDown)
    ));
    // Nothing is left that a power cut could take.
    let world = world.crash(0).await;
    assert!(world.receive("g", "orders").await.is_empty());
    world.ack("g", "orders", &delivery).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_store_that_hangs_is_given_up_and_opened_anew_within_its_time() {
    // P5: whoever waits is answered, and the next one is served.
    let world = World::with(|options| options.store_time_max = SECOND).await;
    world.send("orders", "a").await;
    let begun = Instant::now();
    let hang = Fault::Hang(Effect::DidNotHappen);
    world.faults.arm(Call::Write, 1, hang);
    let stuck = world.try_send("orders", message("b")).await;
    assert!(stuck.is_err(), "{stuck:?}");
    assert!(begun.elapsed() <= SECOND * 2, "{:?}", begun.elapsed());
    world.until_serving().await;
    assert!(begun.elapsed() <= SECOND * 10, "{:?}", begun.elapsed());
    world.send("orders", "c").await;
    assert_eq!(ids(&world.receive("g", "orders").await), ["a", "c"]);
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_messages_is_answered_when_the_store_fails() {
    let world = World::new().await;
    world.try_receive("g", "orders").await.unwrap();
    let waiting = ReceiveRequest {
        wait_max: SECOND * 3_600,
        ..request("g", "orders")
    };
    let receive = world.broker.receive(waiting);
    let fail = async {
        // Between two writes that the broker makes by itself.
        tokio::time::sleep(SECOND * 3 / 2).await;
        let in_doubt = Fault::InDoubt(Effect::Happened);
        world.faults.arm(Call::Write, 1, in_doubt);
        world.try_send("orders", message("a")).await
    };
    let (answered, sent) = tokio::join!(receive, fail);
    assert!(sent.is_err());
    assert!(
        matches!(answered, Err(BrokerError::Recovering)) || answered.is_ok(),
        "{answered:?}"
    );
    world.until_serving().await;
    // In doubt, and it did happen.
    assert_eq!(ids(&world.receive("g", "orders").await), ["a"]);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_stays_away_is_reported_and_everybody_is_told_meanwhile() {
    let world = World::with(|options| options.recovery_time_max = SECOND * 5).await;
    world.send("orders", "a").await;
    let mut health = world.broker.health();
    world.lose_the_store();
    assert!(world.try_send("orders", message("b")).await.is_err());
    let refused = world.try_receive("g", "orders").await;
    assert!(
        matches!(refused, Err(BrokerError::Recovering)),
        "{refused:?}"
    );
    let failed = health.wait_for(|health| matches!(health, Health::Failed(_)));
    let failed = tokio::time::timeout(SECOND * 30, failed).await;
    assert!(failed.is_ok(), "P5: the process is told to end");
}

#[tokio::test(start_paused = true)]
async fn a_wall_clock_set_far_ahead_and_back_leaves_nothing_waiting_for_years() {
    // BR-N01: deadlines use lease time, which the wall clock does not move.
    let world = World::new().await;
    world.send("orders", "a").await;
    let years = Duration::from_secs(25 * 365 * 24 * 3_600);
    let ahead =
        pop_model::WallTime::from_unix_millis(i64::try_from(years.as_millis()).expect("it fits"));
    world.clock.set_wall(ahead);
    world.receive_one("g", "orders").await;
    world
        .clock
        .set_wall(pop_model::WallTime::from_unix_millis(5));
    let world = world.restart().await;
    world.advance(INVISIBLE).await;
    let delivery = world.receive_one("g", "orders").await;
    assert_eq!(delivery.delivery_attempt, 2);
    world.ack("g", "orders", &delivery).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn topics_and_groups_are_there_after_a_power_cut() {
    let world = World::new().await;
    world.create_topic("orders", 7).await;
    world.create_group("g", 3).await;
    let world = world.crash(0).await;
    let found = world.broker.topic(&topic("orders")).unwrap().unwrap();
    assert_eq!(found.record().queues, 7);
    let found = world.broker.group(&group("g")).unwrap().unwrap();
    assert_eq!(found.policy.delivery_attempts_max(), 3);
}
