//! Messages end by their age, with a count and a line, and none that a consumer still has
//! (P1, P6).

use std::time::Duration;

use pop_broker::{NewMessage, ResetTo};
use pop_model::{LogKey, MessageKind, Offset, StoredKey, WallTime};
use pop_store::{
    table::{LOG, RETAINED},
    testkit::{Call, Fault},
};

use crate::{
    audit::all,
    owned::body_count,
    world::{INVISIBLE, World, group, ids, message, seen, topic},
};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
const KEEP: Duration = Duration::from_secs(7 * 24 * 60 * 60);

async fn world() -> World {
    World::with(|options| options.retention = Some(KEEP)).await
}

/// A message whose body is in chunks.
fn large(id: &str) -> NewMessage {
    NewMessage::new(id, vec![7; 300 << 10].into())
}

/// Lets retention look once.
async fn pass(world: &World) {
    tokio::time::sleep(Duration::from_secs(61)).await;
    world.rest().await;
}

/// The offsets that are in the log.
async fn logged(world: &World) -> Vec<u64> {
    let rows = all(&world.rows(), LOG).await.into_iter();
    let offset = |key| LogKey::decode(key).unwrap().offset.get();
    rows.map(|row| offset(row.key)).collect()
}

async fn kept_count(world: &World) -> usize {
    all(&world.rows(), RETAINED).await.len()
}

/// Moves both clocks by a long time, as a machine that goes on does.
async fn go_on(world: &World, by: Duration) {
    let hour = Duration::from_secs(60 * 60);
    let mut left = by;
    while left > Duration::ZERO {
        let step = left.min(hour);
        world.advance(step).await;
        left -= step;
    }
}

#[tokio::test(start_paused = true)]
async fn messages_end_when_they_are_older_than_they_are_kept() {
    let world = world().await;
    world.try_send("orders", large("a")).await.unwrap();
    world.send("orders", "b").await;
    go_on(&world, 6 * DAY).await;
    world.send("orders", "c").await;
    pass(&world).await;
    assert_eq!(logged(&world).await, [0, 1, 2]);
    go_on(&world, 2 * DAY).await;
    pass(&world).await;
    // Mutant: everything ends, or nothing.
    assert_eq!(logged(&world).await, [2]);
    assert_eq!(body_count(&world.rows()).await, 0);
    assert_eq!(ids(&world.receive("g", "orders").await), ["c"]);
    assert_eq!(world.broker.counts().expired, 2);
    // Nobody had subscribed.
    assert_eq!(world.broker.counts().expired_unacked, 0);
    // And the queue goes on where it was.
    go_on(&world, 8 * DAY).await;
    pass(&world).await;
    assert!(logged(&world).await.is_empty());
    let receipt = world.try_send("orders", message("d")).await.unwrap();
    assert_eq!(receipt.offset, Offset::new(3));
}

#[tokio::test(start_paused = true)]
async fn without_an_age_messages_are_kept() {
    let world = World::new().await;
    world.send("orders", "a").await;
    go_on(&world, 30 * DAY).await;
    pass(&world).await;
    assert_eq!(logged(&world).await, [0]);
}

#[tokio::test(start_paused = true)]
async fn what_a_group_has_not_acknowledged_is_counted() {
    let world = world().await;
    for id in ["a", "b", "c"] {
        world.send("orders", id).await;
    }
    let mut one = crate::world::request("g", "orders");
    one.batch_size = 1;
    let first = world.broker.receive(one).await.unwrap().take().remove(0);
    world.ack("g", "orders", &first).await.unwrap();
    world.receive("late", "others").await;
    go_on(&world, 8 * DAY).await;
    pass(&world).await;
    let counts = world.broker.counts();
    // Mutant: what is acknowledged counts, too.
    assert_eq!((counts.expired, counts.expired_unacked), (3, 2));
}

#[tokio::test(start_paused = true)]
async fn what_waits_parked_for_its_turn_is_counted_too() {
    let world = World::with(|options| {
        options.retention = Some(KEEP);
        options.cache.held_max = 2;
    })
    .await;
    world.create_fifo_group("g", 17).await;
    for id in ["a1", "a2", "a3", "a4", "a5", "a6"] {
        let sent = NewMessage {
            kind: MessageKind::Fifo,
            message_group: Some("a".into()),
            ..message(id)
        };
        world.try_send("orders", sent).await.unwrap();
    }
    let mut one = crate::world::request("g", "orders");
    one.batch_size = 1;
    let first = world.broker.receive(one.clone()).await.unwrap().take();
    assert_eq!(ids(&first), ["a1"]);
    // What follows is read, and blocked.
    assert!(world.broker.receive(one).await.unwrap().is_empty());
    go_on(&world, 8 * DAY).await;
    pass(&world).await;
    let counts = world.broker.counts();
    // Mutant: the mark of what is parked counts as its acknowledgement.
    assert_eq!((counts.expired, counts.expired_unacked), (6, 6));
}

#[tokio::test(start_paused = true)]
async fn what_a_consumer_has_outlives_its_message() {
    let world = world().await;
    world.create_group("g", 17).await;
    world.try_send("orders", large("out")).await.unwrap();
    world.try_send("orders", large("again")).await.unwrap();
    world.send("orders", "unread").await;
    go_on(&world, KEEP - DAY).await;
    // One is ready again as an entry, one is out in memory, and one nobody has.
    let mut one = crate::world::request("g", "orders");
    one.batch_size = 1;
    one.invisible_for = Duration::from_secs(1);
    let _ = world.broker.receive(one.clone()).await.unwrap().take();
    world.advance(INVISIBLE).await;
    go_on(&world, DAY + 2 * INVISIBLE).await;
    one.invisible_for = Duration::from_secs(3_600);
    let out = world.broker.receive(one).await.unwrap().take().remove(0);
    pass(&world).await;
    assert!(logged(&world).await.is_empty());
    // Mutants: leases in memory are not stored first; entries are not looked for.
    assert_eq!(kept_count(&world).await, 2);
    assert_eq!(body_count(&world.rows()).await, 2);
    let again = world.receive("g", "orders").await;
    assert_eq!(again.len(), 1);
    assert_eq!(again[0].body.len(), 300 << 10);
    world.ack("g", "orders", &again[0]).await.unwrap();
    world.ack("g", "orders", &out).await.unwrap();
    // What nobody refers to any more goes with the next pass.
    pass(&world).await;
    pass(&world).await;
    assert_eq!(kept_count(&world).await, 0);
    assert_eq!(body_count(&world.rows()).await, 0);
}

#[tokio::test(start_paused = true)]
async fn what_is_kept_survives_a_power_cut_and_is_delivered() {
    let world = world().await;
    world.create_group("g", 17).await;
    world.try_send("orders", large("a")).await.unwrap();
    go_on(&world, KEEP + INVISIBLE).await;
    world.receive_one("g", "orders").await;
    pass(&world).await;
    assert_eq!(kept_count(&world).await, 1);
    let world = world.crash(usize::MAX).await;
    world.advance(2 * INVISIBLE).await;
    let again = world.receive("g", "orders").await;
    assert_eq!(seen(&again), [("a", 2)]);
    assert_eq!(again[0].body.len(), 300 << 10);
}

#[tokio::test(start_paused = true)]
async fn a_reset_goes_to_what_is_still_there() {
    let world = world().await;
    world.send("orders", "a").await;
    go_on(&world, 6 * DAY).await;
    world.send("orders", "b").await;
    world.receive("g", "orders").await;
    go_on(&world, 2 * DAY).await;
    pass(&world).await;
    let (by, of) = (group("g"), topic("orders"));
    let reset = world.broker.reset_offset(&by, &of, ResetTo::Earliest).await;
    reset.unwrap();
    assert_eq!(ids(&world.receive("g", "orders").await), ["b"]);
    // What was kept for the delivery before is void and goes.
    go_on(&world, DAY).await;
    pass(&world).await;
    assert_eq!(kept_count(&world).await, 0);
}

/// Sets wall time, and lets lease time stand.
fn jump(world: &World, by: Duration) {
    let wall = pop_model::Clock::wall(&world.clock).as_unix_millis();
    let by = i64::try_from(by.as_millis()).unwrap();
    world.clock.set_wall(WallTime::from_unix_millis(wall + by));
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_jumps_ends_nothing_until_somebody_says_that_it_is_right() {
    let world = world().await;
    world.send("orders", "a").await;
    pass(&world).await;
    jump(&world, 30 * DAY);
    pass(&world).await;
    // Mutant: wall time alone is asked.
    assert_eq!(logged(&world).await, [0]);
    assert!(world.broker.retention().unwrap().stopped_by.is_some());
    world.broker.confirm_clock().await.unwrap();
    pass(&world).await;
    assert!(logged(&world).await.is_empty());
    assert!(world.broker.retention().unwrap().stopped_by.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_jumps_over_a_restart_ends_nothing_for_a_day() {
    let world = world().await;
    world.send("orders", "a").await;
    pass(&world).await;
    let world = world.crash(usize::MAX).await;
    jump(&world, 30 * DAY);
    pass(&world).await;
    // Mutant: what was trusted is not stored.
    assert_eq!(logged(&world).await, [0]);
    go_on(&world, DAY).await;
    pass(&world).await;
    assert!(logged(&world).await.is_empty());
}

/// P1. Mutant: `RetentionMissesNewGroups`, which asks once a pass who subscribes.
#[tokio::test(start_paused = true)]
async fn what_a_group_got_that_came_during_a_pass_is_kept_for_it() {
    let world = world().await;
    world.send("orders", "a").await;
    go_on(&world, 8 * DAY - Duration::from_secs(60 * 60)).await;
    // The pass knows who subscribes, and looks for what is old.
    world
        .faults
        .arm(Call::Scan, 2, Fault::Delay(Duration::from_secs(10)));
    let (received, ()) = tokio::join!(
        async {
            while world.faults.injected_count() == 0 {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            world.receive("late", "orders").await
        },
        pass(&world)
    );
    assert_eq!(ids(&received), ["a"]);
    pass(&world).await;
    assert!(logged(&world).await.is_empty(), "its time was up");
    world.advance(INVISIBLE).await;
    assert_eq!(seen(&world.receive("late", "orders").await), [("a", 2)]);
}
