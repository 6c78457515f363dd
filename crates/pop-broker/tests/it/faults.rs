//! One fault at every step of a short script, of every kind, one run each: nothing that
//! was answered OK is lost, nothing that was acknowledged comes back, and everybody is
//! answered (P1, P4, P5).

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use pop_broker::Delivery;
use pop_model::TopicName;
use pop_store::{
    Durability,
    testkit::{Call, Effect, Fault},
};

use crate::{
    audit::audit,
    world::{INVISIBLE, World, group, message, request, topic},
};

const IDS: [&str; 4] = ["a", "b", "c", "d"];
const ATTEMPTS: u32 = 2;

/// What a client knows of its messages.
#[derive(Debug, Default)]
struct Known {
    /// Answered OK.
    sent: BTreeSet<String>,
    /// Answered with an error that says that nothing happened, or not at all.
    unsure: BTreeSet<String>,
    acked: BTreeSet<String>,
    /// The acknowledgement failed: it may have happened.
    maybe_acked: BTreeSet<String>,
    /// How often each attempt was seen.
    delivered: BTreeMap<(String, u32), u32>,
}

impl Known {
    fn note(&mut self, deliveries: &[Delivery], may_repeat: bool) {
        for delivery in deliveries {
            let id = delivery.message.message_id.clone();
            let attempt = delivery.delivery_attempt;
            assert!(!self.acked.contains(&id), "P4: {id} came after its ack");
            assert!(attempt <= ATTEMPTS, "{id} had attempt {attempt}");
            assert!(
                self.sent.contains(&id) || self.unsure.contains(&id),
                "{id} came from nowhere"
            );
            let times = self.delivered.entry((id.clone(), attempt)).or_default();
            *times += 1;
            // P4: a store that is opened anew ends what was in memory only, once.
            let times_max = 1 + u32::from(may_repeat);
            assert!(
                *times <= times_max,
                "{id} had attempt {attempt} {times} times"
            );
        }
    }
}

/// A world whose acknowledgements are durable when they are answered.
async fn world(fifo: bool) -> World {
    let world = World::with(|options| {
        options.ack_durability = Durability::Synced;
        options.store_time_max = Duration::from_secs(5);
    })
    .await;
    if fifo {
        world.create_fifo_group("g", ATTEMPTS).await;
    } else {
        world.create_group("g", ATTEMPTS).await;
    }
    world.create_topic("orders", 2).await;
    world.try_receive("g", "orders").await.unwrap();
    world
}

/// Sends, receives, acknowledges one, hides one anew, lets all others come back from
/// memory, receives again, acknowledges one, and lets the rest be stored and become dead
/// letters from there.
async fn script(world: &World, may_repeat: bool) -> Known {
    let mut known = Known::default();
    for id in IDS {
        let mut sent = message(id);
        if id == "d" {
            // In chunks, so that a send is several writes.
            sent.body = vec![b'd'; 300 << 10].into();
        }
        world.until_serving().await;
        match world.try_send("orders", sent).await {
            Ok(_) => known.sent.insert(id.into()),
            Err(_) => known.unsure.insert(id.into()),
        };
    }
    for round in 0..ATTEMPTS {
        let deliveries = receive_all(world).await;
        known.note(&deliveries, may_repeat);
        if let Some(delivery) = deliveries.first() {
            ack(world, delivery, &mut known).await;
        }
        if let Some(delivery) = deliveries.get(1).filter(|_| round == 0) {
            world.until_serving().await;
            let _ = world
                .change("g", "orders", delivery, INVISIBLE - Duration::from_secs(1))
                .await;
        }
        world.until_serving().await;
        if round > 0 {
            world.stay().await;
            world.until_serving().await;
        }
        world.advance(INVISIBLE).await;
    }
    known
}

async fn receive_all(world: &World) -> Vec<Delivery> {
    let mut all = Vec::new();
    for _ in 0..3 {
        world.until_serving().await;
        let received = world.broker.receive(request("g", "orders")).await;
        all.extend(received.map(|handout| handout.take()).unwrap_or_default());
    }
    all
}

async fn ack(world: &World, delivery: &Delivery, known: &mut Known) {
    let id = delivery.message.message_id.clone();
    world.until_serving().await;
    match world.ack("g", "orders", delivery).await {
        Ok(()) => known.acked.insert(id),
        Err(_) => known.maybe_acked.insert(id),
    };
}

/// Goes on without faults until nothing is left, and then knows where everything went.
async fn drain_and_judge(world: &World, mut known: Known, may_repeat: bool) {
    for _ in 0..20 {
        world.until_serving().await;
        let deliveries = receive_all(world).await;
        known.note(&deliveries, may_repeat);
        for delivery in &deliveries {
            ack(world, delivery, &mut known).await;
        }
        // Longer than a lease, and than what a failed revive waits at first.
        world.advance(INVISIBLE).await;
    }
    let dead = dead_letters(world).await;
    for id in &known.sent {
        let count = dead.iter().filter(|dead| *dead == id).count();
        let is_done = known.acked.contains(id) || known.maybe_acked.contains(id);
        assert!(is_done || count == 1, "P1: {id} is nowhere: {known:?}");
        assert!(count <= 1, "{id} is a dead letter {count} times");
        let is_both = known.acked.contains(id) && count > 0;
        assert!(!is_both, "P4: {id} was acked and is a dead letter");
    }
    for ((group, id), places) in audit(&world.rows()).await {
        let is_left = group == "g"
            && places
                .iter()
                .any(|it| *it != crate::audit::Place::DeadLettered);
        assert!(!is_left, "P5: {id} is left in {places:?}");
    }
}

async fn dead_letters(world: &World) -> Vec<String> {
    let mut request = request("undertakers", "orders");
    request.topic = TopicName::dead_letter(&group("g"));
    if world.broker.topic(&request.topic).unwrap().is_none() {
        return Vec::new();
    }
    let letters = world.broker.receive(request).await.unwrap().take();
    letters
        .into_iter()
        .map(|letter| letter.message.message_id)
        .collect()
}

/// Runs the script once for each call of a kind, with the fault in it, until the script
/// has no such call any more.
async fn check_every(call: Call, fault: Fault, fifo: bool) {
    for nth in 1.. {
        let world = world(fifo).await;
        world.faults.arm(call, nth, fault);
        // Everything but a refusal has the store opened anew.
        let may_repeat = !matches!(fault, Fault::Refuse);
        let mut known = script(&world, may_repeat).await;
        let was_hit = !world.faults.injected().is_empty();
        world.faults.disarm();
        world.faults.release();
        if was_hit && matches!(fault, Fault::Crash { .. }) {
            // Answered before the cut and synced, so never in the suffix that is lost.
            known.maybe_acked.clear();
            known.maybe_acked.extend(IDS.map(String::from));
        }
        drain_and_judge(&world, known, may_repeat).await;
        assert!(world.broker.topic(&topic("orders")).unwrap().is_some());
        if !was_hit {
            assert!(nth > 5, "the script makes {call:?} calls: {nth}");
            return;
        }
    }
}

macro_rules! check_every {
    ($fifo:literal; $($name:ident: $call:ident, $fault:expr;)*) => {
        $(
            #[tokio::test(start_paused = true)]
            async fn $name() {
                check_every(Call::$call, $fault, $fifo).await;
            }
        )*
    };
}

const DONE: Effect = Effect::Happened;
const NOT_DONE: Effect = Effect::DidNotHappen;

check_every! { false;
    a_write_that_is_refused_at_any_step_loses_nothing: Write, Fault::Refuse;
    a_write_in_doubt_that_happened_at_any_step_loses_nothing: Write, Fault::InDoubt(DONE);
    a_write_in_doubt_that_did_not_happen_at_any_step_loses_nothing: Write, Fault::InDoubt(NOT_DONE);
    a_write_that_hangs_at_any_step_loses_nothing: Write, Fault::Hang(NOT_DONE);
    a_write_that_happens_and_hangs_at_any_step_loses_nothing: Write, Fault::Hang(DONE);
    a_write_that_panics_at_any_step_loses_nothing: Write, Fault::Panic(NOT_DONE);
    a_write_that_happens_and_panics_at_any_step_loses_nothing: Write, Fault::Panic(DONE);
    a_power_cut_at_any_write_loses_nothing: Write, Fault::Crash { effect: NOT_DONE, keep: 0 };
    a_power_cut_after_any_write_loses_nothing: Write, Fault::Crash { effect: DONE, keep: usize::MAX };
    a_power_cut_that_keeps_one_write_loses_nothing: Write, Fault::Crash { effect: DONE, keep: 1 };
    a_get_that_is_refused_at_any_step_loses_nothing: Get, Fault::Refuse;
    a_get_that_hangs_at_any_step_loses_nothing: Get, Fault::Hang(NOT_DONE);
    a_get_that_panics_at_any_step_loses_nothing: Get, Fault::Panic(NOT_DONE);
    a_scan_that_is_refused_at_any_step_loses_nothing: Scan, Fault::Refuse;
    a_scan_that_hangs_at_any_step_loses_nothing: Scan, Fault::Hang(NOT_DONE);
    a_scan_that_panics_at_any_step_loses_nothing: Scan, Fault::Panic(NOT_DONE);
    a_read_of_many_that_is_refused_at_any_step_loses_nothing: MultiGet, Fault::Refuse;
    a_read_of_many_that_hangs_at_any_step_loses_nothing: MultiGet, Fault::Hang(NOT_DONE);
    a_read_of_many_that_panics_at_any_step_loses_nothing: MultiGet, Fault::Panic(NOT_DONE);
}

// The same of a group that consumes in order, whose stored deliveries leave their offsets
// open. No message group here: all of a queue is one.
check_every! { true;
    in_order_a_write_that_is_refused_at_any_step_loses_nothing: Write, Fault::Refuse;
    in_order_a_write_in_doubt_that_happened_loses_nothing: Write, Fault::InDoubt(DONE);
    in_order_a_write_in_doubt_that_did_not_happen_loses_nothing: Write, Fault::InDoubt(NOT_DONE);
    in_order_a_power_cut_at_any_write_loses_nothing: Write, Fault::Crash { effect: NOT_DONE, keep: 0 };
    in_order_a_power_cut_after_any_write_loses_nothing: Write, Fault::Crash { effect: DONE, keep: usize::MAX };
    in_order_a_scan_that_is_refused_at_any_step_loses_nothing: Scan, Fault::Refuse;
}
