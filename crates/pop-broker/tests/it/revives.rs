//! Revives that fail in every way, with their leases in memory (P1, P2, P5): whatever
//! becomes of one, its message is not lost, its neighbours come again, and the committed
//! offset waits.

use std::time::Duration;

use pop_model::{
    Checkpoint, LogKey, Offset, REVIVE_FAILURES_MAX, StoredKey, StoredValue, revive_failure_backoff,
};
use pop_store::{
    Durability, Store, WriteBatch,
    table::{LEASE, LOG, RETRY},
    testkit::{Call, Effect, Fault},
};

use crate::{
    audit::{Place, all, assert_each_in_one_place, audit, messages},
    world::{INVISIBLE, SECOND, World, group, ids, request, seen, topic},
};

/// The call by which a revive reads what is to be delivered again.
const READ: Call = Call::Get;
const NOT_DONE: Effect = Effect::DidNotHappen;
/// How long the first failed revive waits.
const BACKOFF: Duration = Duration::from_secs(10);
/// The longest that a decision about a revive may take.
const DECISION: Duration = Duration::from_secs(5);

/// A world where group `g` has leases on these messages for the second time, in memory:
/// the revive of a first delivery reads nothing that could fail.
async fn leased(ids: &[&str]) -> World {
    let world = World::new().await;
    for id in ids {
        world.send("orders", id).await;
    }
    world.receive("g", "orders").await;
    world.advance(INVISIBLE).await;
    let deliveries = world.receive("g", "orders").await;
    assert_eq!(deliveries.len(), ids.len());
    assert!(deliveries.iter().all(|it| it.delivery_attempt == 2));
    world
}

async fn rows(world: &World) -> Vec<Checkpoint> {
    let rows = all(&world.rows(), LEASE).await.into_iter();
    rows.map(|row| Checkpoint::decode(row.value).unwrap())
        .collect()
}

/// How far the retry queue is, and what is open in it.
async fn progress(world: &World) -> (Offset, u64) {
    let progress = world.broker.progress(&group("g"), &topic("orders")).await;
    let queue = progress.unwrap().remove(1);
    (queue.committed, queue.lag)
}

/// `a` failed to be revived, `b` did not: `b` is ready at once, and `a` is stored and comes
/// again after its back-off, each with one attempt more.
async fn check_backed_off(world: &World) {
    // Mutant: `NoBackoff`.
    let stored = rows(world).await;
    assert_eq!(stored.len(), 1, "{stored:?}");
    assert_eq!(
        (stored[0].delivery_attempt, stored[0].revive_failures),
        (2, 1)
    );
    assert_eq!(seen(&world.receive("g", "orders").await), [("b", 3)]);
    // It is stored: nothing below waits for it any longer.
    assert_eq!(progress(world).await.0, Offset::new(2));
    assert_each_in_one_place(&audit(&world.rows()).await, &[]);
    world.advance(BACKOFF - SECOND).await;
    assert!(world.receive("g", "orders").await.is_empty());
    world.advance(SECOND).await;
    assert_eq!(seen(&world.receive("g", "orders").await), [("a", 3)]);
}

#[tokio::test(start_paused = true)]
async fn an_exceptional_revive_is_stored_for_later_and_its_neighbour_comes_again_at_once() {
    // BR-A01, BR-B01, BR-B02: the read of the message fails. An answer of "false" is the
    // same: an error. Mutants: `StagedClearedWhateverTheOutcome` loses `a`;
    // `OneFailureAbortsTheSweep` wedges both.
    let world = leased(&["a", "b"]).await;
    world.faults.arm(READ, 1, Fault::Refuse);
    world.advance(INVISIBLE).await;
    check_backed_off(&world).await;
}

#[tokio::test(start_paused = true)]
async fn an_exceptional_revive_needs_no_further_traffic_over_a_crash() {
    // BR-B02: nobody asks for anything until its time has come.
    let world = leased(&["a"]).await;
    world.faults.arm(READ, 1, Fault::Refuse);
    world.advance(INVISIBLE).await;
    let world = world.crash(usize::MAX).await;
    world.advance(BACKOFF).await;
    let places = audit(&world.rows()).await;
    let retry = Place::Retry { attempt: 3 };
    assert_eq!(places[&("g".into(), "a".into())], [retry]);
}

#[tokio::test(start_paused = true)]
async fn a_hanging_revive_is_given_up_in_its_time_and_holds_up_no_neighbour() {
    // Mutant: a sweep that awaits one revive before it handles the next: `b` waited.
    let world = leased(&["a", "b"]).await;
    world.faults.arm(READ, 1, Fault::Hang(NOT_DONE));
    world.clock.advance(INVISIBLE);
    world.faults.until_hung(1).await;
    world.rest().await;
    let early = world.receive("g", "orders").await;
    assert_eq!(seen(&early), [("b", 3)]);
    // Offset gating: `b` is settled and out again, `a` is not.
    assert_eq!(progress(&world).await, (Offset::new(0), 2));
    drop(early);
    tokio::time::sleep(DECISION).await;
    world.rest().await;
    let stored = rows(&world).await;
    assert_eq!(stored.len(), 1, "{stored:?}");
    assert_eq!(progress(&world).await.0, Offset::new(2));
    // What it reads too late has no effect.
    world.faults.release();
    world.advance(BACKOFF).await;
    assert_eq!(seen(&world.receive("g", "orders").await), [("a", 3)]);
}

#[tokio::test(start_paused = true)]
async fn a_crash_while_a_revive_hangs_loses_nothing() {
    // P1, P2. Mutant: `GateIgnoresStaged`: the committed offset passed `a`.
    let world = leased(&["a", "b"]).await;
    world.faults.arm(READ, 1, Fault::Hang(NOT_DONE));
    world.clock.advance(INVISIBLE);
    world.faults.until_hung(1).await;
    world.rest().await;
    let world = world.crash(usize::MAX).await;
    assert_each_in_one_place(&audit(&world.rows()).await, &[]);
    assert_eq!(
        seen(&world.receive("g", "orders").await),
        [("a", 2), ("b", 3)]
    );
}

#[tokio::test(start_paused = true)]
async fn all_revives_of_a_sweep_are_started_before_any_is_awaited() {
    // Mutant: a loop that awaits each: one hangs, and the others are never begun.
    let names: Vec<String> = (0..20).map(|number| format!("m{number:02}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let world = leased(&names).await;
    for nth in 1..=20 {
        world.faults.arm(READ, nth, Fault::Hang(NOT_DONE));
    }
    world.clock.advance(INVISIBLE);
    let all_hang = world.faults.until_hung(20);
    let all_hang = tokio::time::timeout(DECISION / 2, all_hang).await;
    assert!(all_hang.is_ok(), "{} were begun", world.faults.hung_count());
    world.faults.release();
    world.rest().await;
    assert_eq!(ids(&world.receive("g", "orders").await), names);
}

#[tokio::test(start_paused = true)]
async fn a_panicking_store_ends_the_core_and_the_message_comes_again() {
    // P5. Nobody knows what a store that panicked has done, so it is opened anew; the
    // leases that were in memory are over.
    let world = leased(&["a", "b"]).await;
    world.faults.arm(READ, 1, Fault::Panic(NOT_DONE));
    world.advance(INVISIBLE).await;
    world.until_serving().await;
    let again = world.receive("g", "orders").await;
    assert_eq!(ids(&again), ["a", "b"]);
    assert!(again.iter().all(|it| it.delivery_attempt <= 3));
    for delivery in &again {
        world.ack("g", "orders", delivery).await.unwrap();
    }
    world.advance(INVISIBLE * 4).await;
    assert!(world.receive("g", "orders").await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_revive_that_finds_no_message_ends_it_and_puts_no_other_in_its_place() {
    // BR-B03, BR-E11, BR-H07: the ancestor's "null". Mutant: a read that begins at the
    // offset and takes what it finds: `b` came twice.
    let world = leased(&["a", "b"]).await;
    let (key, _) = messages(&world.rows()).await.remove(0);
    let mut batch = WriteBatch::new();
    batch.delete(LOG, LogKey::encode(&key));
    world.rows().write(batch, Durability::Synced).await.unwrap();
    for attempt in 3..5 {
        world.advance(INVISIBLE).await;
        let deliveries = world.receive("g", "orders").await;
        assert_eq!(seen(&deliveries), [("b", attempt)]);
    }
    world.rest().await;
    assert_eq!(all(&world.rows(), RETRY).await.len(), 1, "that of `b`");
}

#[tokio::test(start_paused = true)]
async fn a_dead_letter_that_can_not_be_written_waits_and_is_written_later() {
    // BR-E10. The dead-letter topic is made in a write of its own; its refusal is a failed
    // revive, and the message stays.
    for (call, nth) in [(READ, 1), (READ, 2), (Call::Write, 1)] {
        let world = World::new().await;
        world.create_group("g", 1).await;
        world.send("orders", "a").await;
        world.receive_one("g", "orders").await;
        world.faults.arm(call, nth, Fault::Refuse);
        world.advance(INVISIBLE).await;
        assert_eq!(world.faults.injected_count(), 1);
        assert_each_in_one_place(&audit(&world.rows()).await, &[]);
        for _ in 0..2 {
            world.advance(BACKOFF).await;
        }
        assert!(world.receive("g", "orders").await.is_empty());
        let places = audit(&world.rows()).await;
        assert_eq!(places[&("g".into(), "a".into())], [Place::DeadLettered]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_write_of_a_revive_that_is_refused_leaves_the_lease_and_is_tried_again() {
    // Failed persistence: the retry entries and the marks. Mutants: a refused batch taken
    // for written loses both; one whose retry entries stay comes twice.
    let world = leased(&["a", "b"]).await;
    world.faults.arm(Call::Write, 1, Fault::Refuse);
    world.advance(INVISIBLE).await;
    assert_eq!(world.faults.injected_count(), 1);
    assert_each_in_one_place(&audit(&world.rows()).await, &[]);
    world.advance(SECOND).await;
    world.rest().await;
    assert_eq!(
        seen(&world.receive("g", "orders").await),
        [("a", 3), ("b", 3)]
    );
    assert_eq!(all(&world.rows(), RETRY).await.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_write_of_a_revive_that_fails_over_and_over_loses_nothing() {
    let world = leased(&["a", "b"]).await;
    for nth in 1..=30 {
        world.faults.arm(Call::Write, nth, Fault::Refuse);
    }
    for _ in 0..10 {
        world.advance(INVISIBLE).await;
    }
    world.faults.disarm();
    world.advance(SECOND).await;
    world.rest().await;
    assert_eq!(
        seen(&world.receive("g", "orders").await),
        [("a", 3), ("b", 3)]
    );
}

#[tokio::test(start_paused = true)]
async fn a_revive_that_fails_for_ever_backs_off_as_the_table_says_and_ends_in_quarantine() {
    // BR-E06: the failures are counted in the row and survive restarts. Mutants:
    // `NoBackoff`, `BackoffPastTheTable`, `ExhaustedIsDropped`, `RewriteLosesFields`.
    let mut world = leased(&["a"]).await;
    let mut wait = INVISIBLE;
    for failures in 1..=REVIVE_FAILURES_MAX {
        world.faults.arm(READ, 1, Fault::Refuse);
        world.advance(wait - Duration::from_millis(1)).await;
        let before = rows(&world).await;
        let counted = before.iter().map(|row| row.revive_failures);
        assert!(counted.eq((failures > 1).then_some(failures - 1).or(Some(0))));
        world.advance(Duration::from_millis(1)).await;
        let row = rows(&world).await.remove(0);
        assert_eq!((row.revive_failures, row.delivery_attempt), (failures, 2));
        wait = revive_failure_backoff(failures);
        if failures % 5 == 0 {
            world = world.restart().await;
        }
    }
    world.faults.arm(READ, 1, Fault::Refuse);
    world.advance(wait).await;
    assert!(rows(&world).await.is_empty());
    let listed = world.broker.quarantined(0, 9).await.unwrap();
    assert_eq!(listed.len(), 1, "P6: it is listed");
    assert!(
        listed[0].1.reason.contains("17 times"),
        "{}",
        listed[0].1.reason
    );
    assert_each_in_one_place(&audit(&world.rows()).await, &[]);
}

#[tokio::test(start_paused = true)]
async fn attempt_id_and_suspend_survive_every_rewrite() {
    // BR-E02, and the ancestor's fault 12: spilled, changed as a row, restarted, and backed
    // off. Mutant: `RewriteLosesFields`.
    let world = World::new().await;
    world.create_group("g", 2).await;
    world.send("orders", "a").await;
    world.receive_one("g", "orders").await;
    world.advance(INVISIBLE).await;
    let named = pop_broker::ReceiveRequest {
        attempt_id: Some("mine".into()),
        auto_renew: true,
        ..request("g", "orders")
    };
    let delivery = world.broker.receive(named).await.unwrap().take().remove(0);
    let handle = delivery.handle.to_string();
    let suspend = async |world: &World, invisible_for, suspend| {
        let (by, of) = (group("g"), topic("orders"));
        let changed = world
            .broker
            .change_invisible(&by, &of, &handle, invisible_for, suspend);
        changed.await.unwrap();
    };
    let check = async |world: &World, revive_failures| {
        let row = rows(world).await.remove(0);
        assert_eq!(row.attempt_id.as_deref(), Some("mine"));
        assert!(row.suspend && row.auto_renew);
        assert_eq!(
            (row.delivery_attempt, row.revive_failures),
            (2, revive_failures)
        );
    };
    // In memory, then stored.
    suspend(&world, INVISIBLE, true).await;
    suspend(&world, INVISIBLE, false).await;
    world.stay().await;
    check(&world, 0).await;
    // As a row: once set it stays.
    suspend(&world, INVISIBLE, false).await;
    check(&world, 0).await;
    let world = world.restart().await;
    check(&world, 0).await;
    // Its revive fails.
    let before = rows(&world).await.remove(0).visible_at;
    let left = before.saturating_since(pop_model::Clock::lease(&world.clock));
    world.faults.arm(READ, 1, Fault::Refuse);
    world.advance(left).await;
    check(&world, 1).await;
    world.advance(BACKOFF).await;
    // Not counted, and so not a dead letter.
    assert_eq!(seen(&world.receive("g", "orders").await), [("a", 2)]);
}
