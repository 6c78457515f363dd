//! Clients that do anything, on a store that fails and loses power, from a seed; after
//! each step the rows are held against a plain model.
//!
//! Seen to fail with each of these in the broker: an acknowledgement without the identity
//! check (`lease` returns whatever row is there); the gate over reserved offsets; settled
//! marks left out of the batch (`put_page` skipped in `settle`); the committed offset
//! written in a batch of its own, before the one with its leases; a subscription that is
//! not synced; a refused plan that keeps its offsets; the attempt counted for a delivery
//! that was released; a lease removed before its retry entry is written.

use std::{
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use pop_broker::{BrokerError, Delivery, Filter, NewMessage, ReceiveRequest};
use pop_model::Clock;
use pop_store::{
    ErrorKind,
    testkit::{Call, Effect, Fault, Random},
};

use crate::{
    audit::audit,
    model::{Lease, Model, State},
    world::{World, group, message, request, topic},
};

const SEEDS_A_PART: u64 = 50;
/// How many tests share the seeds.
const PARTS: u64 = 4;
const STEPS: u32 = 45;
const TOPIC: &str = "orders";
/// Each group, and how often it gets a message.
const GROUPS: [(&str, u32); 2] = [("g", 3), ("h", 2)];
/// The one tag that filters ask for.
const TAG: &str = "music";

/// Runs one of the parts that all seeds are in, so that each core has one to do. A seed
/// that is named by `POP_SEED` runs in the first part alone; `POP_SEEDS` says how many
/// there are.
fn run_part(part: u64) {
    let number = |name| {
        let text = std::env::var(name).ok()?;
        Some(text.parse::<u64>().expect("a seed is a number"))
    };
    let seeds = match number("POP_SEED") {
        Some(_) if part > 0 => 0..0,
        Some(seed) => seed..seed + 1,
        None => {
            let in_part = number("POP_SEEDS").map_or(SEEDS_A_PART, |seeds| seeds.div_ceil(PARTS));
            in_part * part..in_part * (part + 1)
        }
    };
    for seed in seeds {
        run(seed);
    }
}

#[test]
fn whatever_clients_do_and_whatever_fails_the_promises_hold_part_0() {
    run_part(0);
}

#[test]
fn whatever_clients_do_and_whatever_fails_the_promises_hold_part_1() {
    run_part(1);
}

#[test]
fn whatever_clients_do_and_whatever_fails_the_promises_hold_part_2() {
    run_part(2);
}

#[test]
fn whatever_clients_do_and_whatever_fails_the_promises_hold_part_3() {
    run_part(3);
}

#[test]
fn one_seed_is_one_run() {
    assert_eq!(run(7), run(7));
}

/// Runs a seed and returns its trace, which a failure prints.
fn run(seed: u64) -> Vec<String> {
    let trace = Arc::new(Mutex::new(Vec::new()));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    let own = Arc::clone(&trace);
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        runtime.block_on(async { Run::begin(seed, own).await.go().await });
    }));
    let trace = trace.lock().clone();
    if let Err(panic) = outcome {
        for step in &trace {
            eprintln!("{step}");
        }
        eprintln!("seed {seed} failed; run it alone with POP_SEED={seed}");
        resume_unwind(panic);
    }
    trace
}

struct Run {
    world: World,
    model: Model,
    random: Random,
    trace: Arc<Mutex<Vec<String>>>,
    /// Handles whose delivery is over, with their group.
    stale: Vec<(String, String)>,
    sent: u64,
    /// Makes each deadline another one, so that leases can be told apart by it.
    receives: u64,
    hits_before: usize,
}

impl Run {
    async fn begin(seed: u64, trace: Arc<Mutex<Vec<String>>>) -> Self {
        let world = World::with(|options| {
            options.store_time_max = Duration::from_secs(2);
        })
        .await;
        world.create_topic(TOPIC, 2).await;
        let mut model = Model::default();
        for (name, attempts) in GROUPS {
            world.create_group(name, attempts).await;
            world.try_receive(name, TOPIC).await.unwrap();
            model.attempts_max.insert(name.to_owned(), attempts);
        }
        Self {
            world,
            model,
            random: Random::new(seed),
            trace,
            stale: Vec::new(),
            sent: 0,
            receives: 0,
            hits_before: 0,
        }
    }

    fn note(&self, step: String) {
        let now = self.now();
        self.trace.lock().push(format!("{now} {step}"));
    }

    fn now(&self) -> u64 {
        self.world.clock.lease().as_millis()
    }

    /// Whether a fault has hit the operation that runs.
    fn was_hit(&self) -> bool {
        self.world.faults.injected().len() > self.hits_before
    }

    async fn go(mut self) {
        for _ in 0..STEPS {
            self.hits_before = self.world.faults.injected().len();
            self.arm();
            match self.random.below(100) {
                0..25 => self.send().await,
                25..45 => self.receive().await,
                45..50 => self.receive_twice().await,
                50..55 => self.drop_receive().await,
                55..75 => self.ack().await,
                75..80 => self.ack_late().await,
                80..85 => self.ack_stale().await,
                85..93 => self.change().await,
                93..97 => self.wait().await,
                _ => {
                    self = self.crash().await;
                }
            }
            self.world.faults.disarm();
            self.check(false).await;
        }
        self.finish().await;
    }

    /// Now and then something goes wrong in the next writes.
    fn arm(&mut self) {
        let nth = 1 + self.random.below(3);
        let fault = match self.random.below(20) {
            0..3 => Fault::Refuse,
            3 => Fault::InDoubt(Effect::Happened),
            4 => Fault::InDoubt(Effect::DidNotHappen),
            _ => return,
        };
        self.note(format!("arm {fault:?} at write {nth}"));
        self.world.faults.arm(Call::Write, nth, fault);
    }

    /// Holds the model against the rows, once everything has come to rest.
    async fn check(&mut self, is_synced: bool) {
        self.world.rest().await;
        if self.was_hit() {
            self.world.until_serving().await;
            // A revive pass that the store refused is repeated a little later.
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        let rows = self.world.rows();
        let audit = audit(&rows).await;
        let is_synced = is_synced || rows.unsynced_count() == 0;
        let now = self.now();
        if self.was_hit() {
            self.model.revives_may_fail(now);
        }
        self.model.hold_against(&audit, now, is_synced);
    }

    async fn send(&mut self) {
        let count = 1 + self.random.below(3);
        let messages: Vec<NewMessage> = (0..count)
            .map(|number| NewMessage {
                tag: self.random.chance(1, 2).then(|| TAG.to_owned()),
                ..message(&format!("m{}", self.sent + number))
            })
            .collect();
        self.sent += count;
        let ids: Vec<String> = messages.iter().map(|it| it.message_id.clone()).collect();
        let outcomes = self.world.broker.send(&topic(TOPIC), messages).await;
        let outcomes = outcomes.expect("the topic is there");
        for (id, outcome) in ids.iter().zip(outcomes) {
            self.note(format!("send {id}: {}", told(&outcome)));
            let states: &[State] = match outcome {
                Ok(_) => &[State::Ready],
                Err(error) if is_in_doubt(&error) => &[State::Ready, State::Absent],
                Err(_) => &[State::Absent],
            };
            self.model.sent(id, states);
        }
    }

    fn group(&mut self) -> &'static str {
        GROUPS[self.random.index(GROUPS.len())].0
    }

    /// A request, and the deadline of what it gets.
    fn request(&mut self, by: &str) -> (ReceiveRequest, u64) {
        self.receives += 1;
        let invisible_ms = 5_000 + self.random.below(20) * 1_000 + self.receives;
        let filter = if self.random.chance(1, 6) {
            Filter::tags(TAG).unwrap()
        } else {
            Filter::All
        };
        let request = ReceiveRequest {
            batch_size: 1 + self.random.index(6),
            invisible_for: Duration::from_millis(invisible_ms),
            filter,
            ..request(by, TOPIC)
        };
        (request, self.now() + invisible_ms)
    }

    async fn receive(&mut self) {
        let by = self.group();
        let (request, deadline_ms) = self.request(by);
        let outcome = self.world.broker.receive(request.clone()).await;
        let outcome = outcome.map(|handout| handout.take());
        self.received(by, &request, deadline_ms, outcome, false);
    }

    async fn receive_twice(&mut self) {
        let by = self.group();
        let (first, first_deadline) = self.request(by);
        let (second, second_deadline) = self.request(by);
        let broker = self.world.broker.clone();
        // Nothing in memory waits by itself, so that one is made to overtake the other.
        let late = Fault::Delay(Duration::from_millis(self.random.below(4)));
        self.world.faults.arm(Call::Scan, 1, late);
        self.world.faults.arm(Call::MultiGet, 1, late);
        let (one, two) = tokio::join!(
            broker.receive(first.clone()),
            broker.receive(second.clone())
        );
        // Both are taken before either is looked at: no error of one gives back the other's.
        let (one, two) = (one.map(|it| it.take()), two.map(|it| it.take()));
        self.received(by, &first, first_deadline, one, true);
        self.received(by, &second, second_deadline, two, true);
    }

    fn received(
        &mut self,
        by: &str,
        request: &ReceiveRequest,
        deadline_ms: u64,
        outcome: Result<Vec<Delivery>, BrokerError>,
        may_fail: bool,
    ) {
        let takes_all = request.filter == Filter::All;
        let deliveries = match outcome {
            Ok(deliveries) => {
                let ids: Vec<_> = deliveries
                    .iter()
                    .map(|it| format!("{}/{}", it.message.message_id, it.delivery_attempt))
                    .collect();
                self.note(format!(
                    "{by} receives {ids:?}, filter {:?}",
                    request.filter
                ));
                let expects_some = takes_all && !may_fail && !self.was_hit();
                assert!(
                    !deliveries.is_empty() || !expects_some || !self.model.has_ready(by),
                    "P5: {by} got nothing although something is ready"
                );
                deliveries
            }
            Err(error) => {
                self.note(format!("{by} receives: {error}"));
                let is_unavailable = matches!(&error, BrokerError::Store(error) if error.kind() == ErrorKind::Unavailable);
                if !is_unavailable {
                    // What it had before the store was lost is out until its deadline.
                    self.model.maybe(by, |_, attempt| {
                        Some(State::Leased(Lease {
                            attempt,
                            deadline_ms,
                            suspend: false,
                            handle: None,
                        }))
                    });
                }
                Vec::new()
            }
        };
        for delivery in &deliveries {
            let lease = Lease {
                attempt: delivery.delivery_attempt,
                deadline_ms,
                suspend: false,
                handle: Some(delivery.handle.to_string()),
            };
            self.model
                .delivered(by, &delivery.message.message_id, lease);
        }
        if !takes_all {
            // Which ones it passed over it does not say.
            self.model.maybe(by, |_, _| Some(State::Done));
        }
    }

    /// A receive whose consumer goes away before it has the answer.
    async fn drop_receive(&mut self) {
        let by = self.group();
        let (mut request, deadline_ms) = self.request(by);
        request.filter = Filter::All;
        let outcome = self.world.broker.receive(request).await;
        self.note(format!("{by} drops a receive: {}", told(&outcome)));
        let is_lost = outcome.is_err() || self.was_hit();
        drop(outcome);
        self.model
            .maybe(by, |_, attempt| Some(State::Retry(attempt)));
        let leased = |_: &str, attempt| {
            Some(State::Leased(Lease {
                attempt,
                deadline_ms,
                suspend: false,
                handle: None,
            }))
        };
        // Leased for a moment, of which a power cut may leave the trace.
        self.model.passes_through(by, leased);
        if is_lost {
            self.model.maybe(by, leased);
        }
    }

    fn pick(&mut self) -> Option<(String, String, Lease)> {
        let leases = self.model.leases();
        (!leases.is_empty()).then(|| leases[self.random.index(leases.len())].clone())
    }

    async fn ack(&mut self) {
        if let Some((by, id, lease)) = self.pick() {
            self.ack_it(&by, &id, &lease).await;
        }
    }

    /// The time is up, and the broker has not looked yet.
    async fn ack_late(&mut self) {
        if let Some((by, id, lease)) = self.pick() {
            let late = lease.deadline_ms + self.random.below(1_000) - self.now();
            self.world.clock.advance(Duration::from_millis(late));
            self.ack_it(&by, &id, &lease).await;
        }
    }

    async fn ack_it(&mut self, by: &str, id: &str, lease: &Lease) {
        let handle = lease.handle.clone().expect("picked with a handle");
        let outcome = self
            .world
            .broker
            .ack(&group(by), &topic(TOPIC), &handle)
            .await;
        self.note(format!("{by} acks {id}: {}", told(&outcome)));
        let is_late = lease.deadline_ms <= self.now();
        let track = self.model.track(by, id);
        match outcome {
            Ok(()) => {
                track.now = State::Done;
                self.stale.push((by.to_owned(), handle));
            }
            Err(error) if is_in_doubt(&error) => track.may_be(State::Done),
            // The broker looked before the acknowledgement came.
            Err(BrokerError::DeliveryOver) if is_late => {}
            Err(error) => assert!(is_refused(&error), "a good handle got {error}"),
        }
    }

    /// Twice, or after the message was handed out again: an error, and no effect.
    async fn ack_stale(&mut self) {
        let known: Vec<String> = self
            .model
            .leases()
            .into_iter()
            .filter_map(|it| it.2.handle)
            .collect();
        let stale: Vec<_> = self
            .stale
            .iter()
            .filter(|(_, handle)| !known.contains(handle))
            .collect();
        if stale.is_empty() {
            return;
        }
        let (by, handle) = stale[self.random.index(stale.len())].clone();
        let outcome = self
            .world
            .broker
            .ack(&group(&by), &topic(TOPIC), &handle)
            .await;
        self.note(format!("{by} acks a stale one: {}", told(&outcome)));
        let error = outcome.expect_err("P3: a stale handle was answered OK");
        let is_expected = matches!(error, BrokerError::DeliveryOver | BrokerError::Recovering);
        assert!(
            is_expected || is_in_doubt(&error) || is_refused(&error),
            "{error}"
        );
    }

    async fn change(&mut self) {
        let Some((by, id, lease)) = self.pick() else {
            return;
        };
        self.receives += 1;
        let invisible_ms = 2_000 + self.random.below(30) * 1_000 + self.receives;
        let suspend = self.random.chance(1, 4);
        let handle = lease.handle.clone().expect("picked with a handle");
        let outcome = self
            .world
            .broker
            .change_invisible(
                &group(&by),
                &topic(TOPIC),
                &handle,
                Duration::from_millis(invisible_ms),
                suspend,
            )
            .await;
        self.note(format!(
            "{by} hides {id} for {invisible_ms}: {}",
            told(&outcome)
        ));
        let changed = Lease {
            deadline_ms: self.now() + invisible_ms,
            suspend: suspend || lease.suspend,
            ..lease
        };
        let track = self.model.track(&by, &id);
        match outcome {
            // Either handle is good from here on.
            Ok(new) => {
                track.now = State::Leased(Lease {
                    handle: Some(new.to_string()),
                    ..changed
                });
            }
            Err(error) if is_in_doubt(&error) => track.may_be(State::Leased(changed)),
            Err(error) => assert!(is_refused(&error), "a good handle got {error}"),
        }
    }

    /// Time passes: leases end.
    async fn wait(&mut self) {
        let by = Duration::from_millis(self.random.below(30_000));
        self.note(format!("wait {by:?}"));
        self.pass(by).await;
    }

    async fn pass(&mut self, by: Duration) {
        let over = self.model.leases();
        self.world.clock.advance(by);
        self.world.rest().await;
        let now = self.now();
        let over = over
            .into_iter()
            .filter(|(_, _, lease)| lease.deadline_ms <= now);
        self.stale
            .extend(over.filter_map(|(by, _, lease)| Some((by, lease.handle?))));
    }

    /// The power goes, with some of what was not synced; the broker starts again.
    async fn crash(mut self) -> Self {
        let unsynced = self.world.rows().unsynced_count();
        let keep = if self.random.chance(1, 3) {
            usize::MAX
        } else {
            self.random.index(unsynced + 1)
        };
        self.note(format!("power cut that keeps {keep} of {unsynced}"));
        self.world.faults.disarm();
        self.check(false).await;
        self.world = self.world.crash(keep).await;
        if keep < unsynced {
            self.model.lost_the_unsynced();
        }
        // Not in the model whether a handle is over once its lease may be back.
        self.stale.clear();
        self.check(true).await;
        self
    }

    /// Without faults, everything comes to an end within a bound (P1, P5).
    async fn finish(&mut self) {
        for _ in 0..12 {
            for (by, _) in GROUPS {
                for _ in 0..40 {
                    let (mut request, deadline_ms) = self.request(by);
                    request.filter = Filter::All;
                    let outcome = self.world.broker.receive(request.clone()).await;
                    let outcome = outcome.map(|it| it.take());
                    if outcome.as_ref().is_ok_and(Vec::is_empty) {
                        break;
                    }
                    self.received(by, &request, deadline_ms, outcome, false);
                }
            }
            for (by, id, lease) in self.model.leases() {
                self.ack_it(&by, &id, &lease).await;
            }
            self.check(false).await;
            self.pass(Duration::from_secs(60)).await;
            self.check(false).await;
            if self.model.is_at_rest() {
                return;
            }
        }
        panic!("P5: something never came to its end: {:?}", self.model);
    }
}

fn told<T>(outcome: &Result<T, BrokerError>) -> String {
    match outcome {
        Ok(_) => "OK".into(),
        Err(error) => error.to_string(),
    }
}

/// Whether it may have happened all the same.
fn is_in_doubt(error: &BrokerError) -> bool {
    matches!(error, BrokerError::Store(error) if error.kind() == ErrorKind::InDoubt)
}

/// Whether it is known that it did not happen.
fn is_refused(error: &BrokerError) -> bool {
    match error {
        BrokerError::Store(error) => {
            matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Poisoned)
        }
        BrokerError::Recovering | BrokerError::ShuttingDown => true,
        _ => false,
    }
}
