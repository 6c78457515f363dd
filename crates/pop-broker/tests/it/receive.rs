//! Who gets what, and when a receive that waits is answered.

use std::{collections::BTreeSet, time::Duration};

use futures::FutureExt;
use pop_broker::{BrokerError, Filter, NewMessage, ReceiveRequest};
use pop_model::limits::INVISIBLE_MS_MAX;
use pop_store::testkit::{Call, Fault};
use tokio::time::Instant;

use crate::{
    audit::{Place, assert_each_in_one_place, audit},
    world::{INVISIBLE, SECOND, World, ids, message, request, seen},
};

/// A receive that waits, of one message.
fn waiting(by: &str, from: &str, wait_max: Duration) -> ReceiveRequest {
    ReceiveRequest {
        wait_max,
        batch_size: 1,
        ..request(by, from)
    }
}

#[tokio::test(start_paused = true)]
async fn two_receives_of_one_group_and_topic_at_once_share_nothing_and_both_get_messages() {
    // The ancestor's lock of a whole group and topic sends the second one away empty.
    let world = World::new().await;
    world.create_topic("orders", 4).await;
    for number in 0..64 {
        world.send("orders", &format!("m{number:02}")).await;
    }
    let receives = (0..4).map(|_| world.try_receive("g", "orders"));
    let all = futures::future::join_all(receives).await;
    let mut seen = BTreeSet::new();
    for deliveries in all.into_iter().take(2) {
        let deliveries = deliveries.unwrap();
        assert!(!deliveries.is_empty(), "both get some");
        for delivery in deliveries {
            let id = delivery.message.message_id;
            assert!(seen.insert(id.clone()), "{id} went to two receivers");
        }
    }
    assert_each_in_one_place(&audit(&world.rows()).await, &[]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_receives_on_many_threads_share_nothing() {
    let world = World::new().await;
    world.create_topic("orders", 2).await;
    for number in 0..400 {
        world.send("orders", &format!("m{number:03}")).await;
    }
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let broker = world.broker.clone();
        tasks.spawn(async move {
            let mut taken = Vec::new();
            loop {
                let deliveries = broker.receive(request("g", "orders")).await.unwrap().take();
                if deliveries.is_empty() {
                    return taken;
                }
                taken.extend(deliveries.into_iter().map(|it| it.message.message_id));
            }
        });
    }
    let mut all: Vec<String> = tasks.join_all().await.into_iter().flatten().collect();
    all.sort();
    assert_eq!(all.len(), 400);
    all.dedup();
    assert_eq!(all.len(), 400, "a message went to two receivers");
}

#[tokio::test(start_paused = true)]
async fn groups_on_one_topic_know_nothing_of_each_other() {
    let world = World::new().await;
    for id in ["a", "b"] {
        world.send("orders", id).await;
    }
    let groups: Vec<String> = (0..20).map(|number| format!("g{number}")).collect();
    for (number, group) in groups.iter().enumerate() {
        let deliveries = world.receive(group, "orders").await;
        assert_eq!(seen(&deliveries), [("a", 1), ("b", 1)]);
        for delivery in deliveries.iter().take(number % 3) {
            world.ack(group, "orders", delivery).await.unwrap();
        }
    }
    world.advance(INVISIBLE).await;
    for (number, group) in groups.iter().enumerate() {
        let again = world.receive(group, "orders").await;
        let expected = ["a", "b"].into_iter().skip(number % 3);
        assert_eq!(ids(&again), expected.collect::<Vec<_>>());
    }
}

#[tokio::test(start_paused = true)]
async fn a_receive_finds_the_few_that_it_wants_among_ten_thousand_that_it_does_not() {
    // BR-O01. One receive that waits gets there, in looks of bounded size.
    let world = World::new().await;
    let noise: Vec<NewMessage> = (0..100)
        .map(|number| NewMessage {
            tag: Some("noise".into()),
            ..message(&format!("n{number}"))
        })
        .collect();
    for _ in 0..100 {
        let topic = crate::world::topic("orders");
        world.broker.send(&topic, noise.clone()).await.unwrap();
    }
    let wanted = NewMessage {
        tag: Some("music".into()),
        ..message("wanted")
    };
    world.try_send("orders", wanted).await.unwrap();
    let picky = ReceiveRequest {
        filter: Filter::tags("music").unwrap(),
        wait_max: SECOND,
        ..request("g", "orders")
    };
    let begun = Instant::now();
    let found = world.broker.receive(picky.clone()).await.unwrap().take();
    assert_eq!(ids(&found), ["wanted"]);
    assert_eq!(
        begun.elapsed(),
        Duration::ZERO,
        "it did not wait for a wake-up"
    );
    world.ack("g", "orders", &found[0]).await.unwrap();
    world.rest().await;

    // What was skipped is settled: it does not come again, to anybody of the group.
    let world = world.crash(usize::MAX).await;
    assert!(world.receive("g", "orders").await.is_empty());
    assert!(audit(&world.rows()).await.values().all(Vec::is_empty));
}

#[tokio::test(start_paused = true)]
async fn a_receive_that_is_dropped_gives_its_messages_back_at_once_and_uncounted() {
    let world = World::new().await;
    for id in ["a", "b"] {
        world.send("orders", id).await;
    }
    let handout = world.broker.receive(request("g", "orders")).await.unwrap();
    drop(handout);
    world.rest().await;
    assert_eq!(
        seen(&world.receive("g", "orders").await),
        [("a", 1), ("b", 1)]
    );
}

#[tokio::test(start_paused = true)]
async fn a_receive_that_is_dropped_in_the_middle_loses_nothing() {
    // Dropped after every number of polls that it takes.
    let world = World::new().await;
    world.create_topic("orders", 3).await;
    for number in 0..9 {
        world.send("orders", &format!("m{number}")).await;
    }
    for polls in 1.. {
        let mut receive = Box::pin(world.broker.receive(request("g", "orders")));
        let mut done = false;
        for _ in 0..polls {
            done = (&mut receive).now_or_never().is_some();
            if done {
                break;
            }
            tokio::task::yield_now().await;
        }
        drop(receive);
        world.rest().await;
        assert_each_in_one_place(&audit(&world.rows()).await, &[]);
        let deliveries = world.receive("g", "orders").await;
        assert_eq!(deliveries.len(), 9, "after {polls} polls");
        for delivery in &deliveries {
            assert_eq!(delivery.delivery_attempt, 1);
        }
        // Back to the beginning, uncounted.
        for delivery in &deliveries {
            let (by, of) = (crate::world::group("g"), crate::world::topic("orders"));
            let handle = delivery.handle.as_str();
            let changed = world
                .broker
                .change_invisible(&by, &of, handle, Duration::ZERO, true)
                .await;
            changed.unwrap();
        }
        world.advance(Duration::from_millis(1)).await;
        if done {
            assert!(polls > 1, "a receive takes more than one poll");
            return;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_stored_delivery_that_reached_nobody_counts_no_attempt_though_its_release_is_refused() {
    // Mutants: a release that was refused is forgotten; the decision at the deadline looks
    // at the row alone.
    let world = World::new().await;
    world.send("orders", "a").await;
    world.send("orders", "b").await;
    let mut asking = request("g", "orders");
    asking.batch_size = 1;
    let first = world.broker.receive(asking.clone()).await.unwrap();
    world.stay().await;
    for nth in 1..1_000 {
        world.faults.arm(Call::Write, nth, Fault::Refuse);
    }
    drop(first);
    world.rest().await;
    // Its deadline passes meanwhile.
    world.advance(INVISIBLE).await;
    world.faults.disarm();
    tokio::time::sleep(SECOND).await;
    assert_eq!(
        seen(&world.receive("g", "orders").await),
        [("a", 1), ("b", 1)]
    );
}

#[tokio::test(start_paused = true)]
async fn a_release_that_was_refused_is_tried_again_long_before_the_deadline() {
    let world = World::new().await;
    world.send("orders", "a").await;
    let handout = world.broker.receive(request("g", "orders")).await.unwrap();
    world.stay().await;
    for nth in 1..1_000 {
        world.faults.arm(Call::Write, nth, Fault::Refuse);
    }
    drop(handout);
    world.rest().await;
    world.faults.disarm();
    tokio::time::sleep(SECOND).await;
    world.advance(Duration::from_millis(1)).await;
    assert_eq!(seen(&world.receive("g", "orders").await), [("a", 1)]);
}

/// A receive waits, `event` makes something ready, and the receive is answered within a
/// few milliseconds although it would have waited for hours.
async fn check_woken(world: &World, event: impl Future<Output = ()>) {
    let begun = Instant::now();
    let receive = world.broker.receive(waiting("g", "orders", SECOND * 3_600));
    let happen = async {
        tokio::time::sleep(SECOND).await;
        event.await;
        Instant::now()
    };
    let (handout, happened) = tokio::join!(receive, happen);
    assert_eq!(handout.unwrap().take().len(), 1);
    assert!(happened.duration_since(begun) >= SECOND);
    let late = happened.elapsed();
    assert!(
        late <= Duration::from_millis(10),
        "{late:?} after the event"
    );
}

#[tokio::test(start_paused = true)]
async fn a_waiting_receive_is_woken_by_an_append() {
    let world = World::new().await;
    check_woken(&world, world.send("orders", "a")).await;
}

#[tokio::test(start_paused = true)]
async fn a_waiting_receive_is_woken_by_a_revive() {
    // BR-G01.
    let world = World::new().await;
    world.send("orders", "a").await;
    world.receive_one("g", "orders").await;
    check_woken(&world, async { world.clock.advance(INVISIBLE) }).await;
}

#[tokio::test(start_paused = true)]
async fn a_waiting_receive_is_woken_by_a_release() {
    let world = World::new().await;
    world.send("orders", "a").await;
    let handout = world.broker.receive(request("g", "orders")).await.unwrap();
    check_woken(&world, async { drop(handout) }).await;
}

#[tokio::test(start_paused = true)]
async fn a_waiting_receive_is_woken_by_a_change_to_zero() {
    let world = World::new().await;
    world.send("orders", "a").await;
    let delivery = world.receive_one("g", "orders").await;
    check_woken(&world, async {
        world
            .change("g", "orders", &delivery, Duration::ZERO)
            .await
            .unwrap();
        world.clock.advance(Duration::from_millis(1));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn every_waiting_receive_gets_one_of_as_many_appends() {
    let world = World::new().await;
    world.create_topic("orders", 4).await;
    let receives = (0..16).map(|_| world.broker.receive(waiting("g", "orders", SECOND * 60)));
    let receives = futures::future::join_all(receives);
    let sends = async {
        tokio::time::sleep(SECOND).await;
        let sends = (0..16).map(|number| {
            let world = &world;
            async move { world.send("orders", &format!("m{number}")).await }
        });
        futures::future::join_all(sends).await;
    };
    let begun = Instant::now();
    let (handouts, ()) = tokio::join!(receives, sends);
    for handout in handouts {
        assert_eq!(handout.unwrap().take().len(), 1);
    }
    assert!(begun.elapsed() < SECOND * 2, "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_receive_that_is_woken_for_nothing_ends_on_time_all_the_same() {
    // BR-G03: each append wakes it, and a filter wants none of them. Mutant: `until`
    // computed inside the loop: it ended after 14 s.
    let world = World::new().await;
    let picky = ReceiveRequest {
        filter: Filter::tags("music").unwrap(),
        ..waiting("g", "orders", SECOND * 10)
    };
    let begun = Instant::now();
    let noise = async {
        for number in 0..5 {
            tokio::time::sleep(Duration::from_millis(900)).await;
            world.send("orders", &format!("n{number}")).await;
        }
    };
    let ended = async {
        let handout = world.broker.receive(picky).await.unwrap();
        assert!(handout.is_empty());
        begun.elapsed()
    };
    let (ended, ()) = tokio::join!(ended, noise);
    assert!(ended >= SECOND * 10 && ended < SECOND * 10 + Duration::from_millis(20));
}

#[tokio::test(start_paused = true)]
async fn a_receive_that_waits_is_answered_when_the_broker_shuts_down() {
    let world = World::new().await;
    let receive = world.broker.receive(waiting("g", "orders", SECOND * 3_600));
    let shutdown = async {
        tokio::time::sleep(SECOND).await;
        world.broker.shutdown().await.unwrap();
    };
    let (handout, ()) = tokio::join!(receive, shutdown);
    assert!(matches!(handout, Err(BrokerError::ShuttingDown)));
}

#[tokio::test(start_paused = true)]
async fn a_receive_that_asks_for_the_impossible_is_refused_and_takes_nothing() {
    let world = World::new().await;
    world.send("orders", "a").await;
    world.try_receive("g", "nothing").await.unwrap();
    for batch_size in [0, 33, usize::MAX] {
        let wrong = ReceiveRequest {
            batch_size,
            ..request("g", "orders")
        };
        let refused = world.broker.receive(wrong).await;
        assert!(matches!(refused, Err(BrokerError::BatchSize(_))));
    }
    let too_long = Duration::from_millis(INVISIBLE_MS_MAX + 1);
    for invisible_for in [Duration::ZERO, too_long, Duration::MAX] {
        let wrong = ReceiveRequest {
            invisible_for,
            ..request("g", "orders")
        };
        let refused = world.broker.receive(wrong).await;
        assert!(matches!(refused, Err(BrokerError::InvisibleDuration(_))));
    }
    assert_eq!(seen(&world.receive("g", "orders").await), [("a", 1)]);
}

#[tokio::test(start_paused = true)]
async fn a_batch_of_the_largest_messages_goes_out_in_parts_and_nothing_is_left() {
    let world = World::new().await;
    for number in 0..8 {
        let mut large = message(&format!("m{number}"));
        large.body = vec![number; pop_model::limits::BODY_BYTES_MAX].into();
        world.try_send("orders", large).await.unwrap();
    }
    let first = world.receive("g", "orders").await;
    assert!((1..8).contains(&first.len()), "{}", first.len());
    let rest = world.receive("g", "orders").await;
    assert_eq!(first.len() + rest.len(), 8);
    world.advance(INVISIBLE).await;
    let first = world.receive("g", "orders").await;
    let rest = world.receive("g", "orders").await;
    assert_eq!(first.len() + rest.len(), 8);
    world.stay().await;
    let places = audit(&world.rows()).await;
    let leased = |places: &Vec<Place>| matches!(places[..], [Place::Leased { attempt: 2, .. }]);
    assert!(places.values().all(leased), "{places:?}");
}
