//! A run: steps of clients on a broker, each held against the model.

use std::{fmt, time::Duration};

use futures::future::join_all;
use pop_store::testkit::{Fault, Random};
use tokio::{task::JoinHandle, time::Instant};

use crate::{
    actions::Repertoire,
    cast::Cast,
    chaos::{self, Odds},
    model::{Millis, Model, Window},
    op::{self, Answer, Op},
    panics,
    plan::Plan,
    trace::Trace,
    violation::{Checked, Violation},
    world::{STORE_TIME_MAX, SYNC_EVERY, World, lease_millis},
};

/// What is answered OK is durable after this long, where nothing goes wrong: the broker's
/// own flush, the store's, and a little for calls that overtake each other (P4).
const DURABLE_WITHIN: Millis = 130;
/// What the store refused is tried again by then.
const TRIED_AGAIN_WITHIN: Millis = 1_000;
/// A lease whose time is up is worked off by then, where nothing goes wrong.
pub(crate) const REVIVED_WITHIN: Millis = 1_200;
/// The broker notices by then that its store failed: it stores the time that often.
const NOTICED_WITHIN: Millis = 1_050;
/// In that time, lease time moves on so often.
const TICKS: u64 = 8;
/// A waiting receive is woken by then.
const WOKEN_WITHIN: Millis = 10;

/// What happened in a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// The number after the last step.
    pub steps: u64,
    /// Calls of clients.
    pub ops: u64,
    /// Messages handed out.
    pub deliveries: u64,
    /// Power cuts.
    pub crashes: u64,
    /// Restarts with a warning.
    pub restarts: u64,
    /// How often the store was opened anew in between.
    pub recoveries: u64,
    /// Faults injected into the store, short delays aside.
    pub faults: u64,
}

impl Counts {
    /// Adds those of another run.
    pub fn add(&mut self, other: &Self) {
        self.steps += other.steps;
        self.ops += other.ops;
        self.deliveries += other.deliveries;
        self.crashes += other.crashes;
        self.restarts += other.restarts;
        self.recoveries += other.recoveries;
        self.faults += other.faults;
    }
}

/// A call that goes on while steps pass.
#[derive(Debug)]
struct Background {
    op: Op,
    asked: Millis,
    task: JoinHandle<Answered>,
}

#[derive(Debug)]
struct Answered {
    answer: Answer,
    lease: Millis,
    time: Millis,
}

impl Answered {
    fn window(&self, asked: Millis, is_calm: bool) -> Window {
        Window {
            time: self.time,
            asked,
            answered: self.lease,
            is_calm,
        }
    }
}

/// A run.
#[derive(Debug)]
pub struct Sim {
    /// Who takes part.
    pub cast: Cast,
    /// The broker and what is around it.
    pub world: World,
    /// What must be true.
    pub model: Model,
    /// What happened.
    pub counts: Counts,
    /// How often an operator set where a group goes on.
    pub resets: u32,
    pub(crate) trace: Trace,
    repertoire: Repertoire,
    odds: Odds,
    background: Vec<Background>,
    /// The broker lost what it had in memory, in this step.
    has_restarted_in_step: bool,
    /// Receives of this step whose answer nobody heard.
    unheard: Vec<(Op, Millis)>,
    started: Instant,
    receives: u64,
    /// The opens of the store that the model knows of.
    opens_known: u64,
    /// The faults before this step.
    faults_before: usize,
    /// Simulated time after which nothing has gone wrong.
    calm_since: Millis,
    /// Leases that were over later than this were worked off with nothing going wrong.
    lease_calm_since: Millis,
    /// Leases that were over before this have been worked off, but for trouble.
    revived_until: Millis,
}

impl Sim {
    /// A broker with nothing in it.
    pub async fn begin(plan: &Plan, trace: Trace) -> Checked<Self> {
        let mut random = plan.random();
        let cast = Cast::draw(&mut random);
        let repertoire = Repertoire::draw(&mut random);
        let odds = Odds::draw(&mut random);
        let started = Instant::now();
        let world = World::begin(&cast, random.next_u64()).await?;
        let mut sim = Self {
            model: Model::new(cast.clone()),
            opens_known: world.opens(),
            lease_calm_since: world.now(),
            revived_until: world.now(),
            world,
            counts: Counts::default(),
            resets: 0,
            trace,
            repertoire,
            odds,
            background: Vec::new(),
            unheard: Vec::new(),
            has_restarted_in_step: false,
            started,
            receives: 0,
            faults_before: 0,
            calm_since: 0,
            cast,
        };
        let about = format!("{:?} {:?} {:?}", sim.cast, sim.odds, sim.repertoire);
        sim.note(format_args!("{about}"));
        Ok(sim)
    }

    /// Adds a line to the trace.
    pub fn note(&mut self, text: fmt::Arguments<'_>) {
        let (time, lease) = (self.time(), self.world.now());
        self.trace
            .note(format_args!("{time:>7} ms, lease time {lease}: {text}"));
    }

    /// Simulated time since the beginning.
    pub fn time(&self) -> Millis {
        millis(self.started.elapsed())
    }

    /// One step: something that clients, time or the machine do, while things go wrong.
    pub async fn step(&mut self, number: u64, plan: &Plan) -> Checked {
        let mut random = plan.random_of(number);
        let action = match plan.cuts_power_at(number) {
            true => crate::actions::named("crash"),
            false => self.repertoire.pick(&mut random),
        };
        let mut of_faults = Random::new(random.next_u64());
        self.begin_step();
        self.trace
            .note(format_args!("--- step {number}: {}", action.name));
        if plan.has_faults_at(number) {
            let armed = self.odds.arm(&mut of_faults, &self.world.faults);
            for (call, nth, fault) in armed.iter().filter(|it| chaos::is_trouble(it.2)) {
                self.note(format_args!("armed: {fault:?} at {call:?} {nth}"));
            }
        }
        (action.run)(self, &mut random).await?;
        self.end_step().await?;
        let rest = [0, 0, 0, 1, 5, 20, 60, 200][random.index(8)];
        self.rest(rest).await;
        self.look_around().await
    }

    fn begin_step(&mut self) {
        self.faults_before = self.world.faults.injected_count();
        self.unheard.clear();
        self.has_restarted_in_step = false;
        let time = self.time();
        if time >= self.calm_since + TRIED_AGAIN_WITHIN + DURABLE_WITHIN {
            self.model.is_durable_until(time - DURABLE_WITHIN);
        }
    }

    /// What went wrong goes on until it has been dealt with.
    async fn end_step(&mut self) -> Checked {
        self.world.faults.disarm();
        let injected = self.world.faults.injected();
        let own = injected.get(self.faults_before..).unwrap_or_default();
        if own.is_empty() {
            return self.note_restarts().await.map(drop);
        }
        let trouble: Vec<_> = own
            .iter()
            .filter(|it| chaos::is_trouble(it.fault))
            .collect();
        self.counts.faults += trouble.len() as u64;
        for injected in &trouble {
            self.trace.note(format_args!("hit: {injected:?}"));
        }
        if trouble.is_empty() {
            self.rest(10).await;
            return self.note_restarts().await.map(drop);
        }
        let hangs = trouble.iter().any(|it| matches!(it.fault, Fault::Hang(_)));
        let limit = if hangs {
            STORE_TIME_MAX
        } else {
            chaos::DELAY_MAX
        };
        self.rest(millis(limit) + millis(SYNC_EVERY)).await;
        self.world.faults.release();
        self.what_was_unheard_may_be_out()?;
        self.rest(NOTICED_WITHIN).await;
        self.note_restarts().await?;
        self.world.until_serving().await?;
        self.note_restarts().await?;
        self.trouble_is_over();
        Ok(())
    }

    /// What nobody heard of is released, but for the trouble.
    fn what_was_unheard_may_be_out(&mut self) -> Checked {
        for (op, asked) in std::mem::take(&mut self.unheard) {
            let at = Window {
                time: self.time(),
                asked,
                answered: self.world.now(),
                is_calm: false,
            };
            op.end(&Answer::Received(None), at, &mut self.model)?;
        }
        Ok(())
    }

    /// From here on nothing goes wrong, until it does.
    fn trouble_is_over(&mut self) {
        self.calm_since = self.time();
        self.lease_calm_since = self.lease_calm_since.max(self.world.now());
    }

    /// Whether nothing has gone wrong in this step.
    pub fn is_calm(&self) -> bool {
        let injected = self.world.faults.injected();
        let own = injected.get(self.faults_before..).unwrap_or_default();
        !own.iter().any(|it| chaos::is_trouble(it.fault)) && self.world.opens() == self.opens_known
    }

    /// Lets simulated time pass for what goes on by itself. In a long rest lease time moves
    /// on a little: what was over already when it was stored is due in the next moment.
    pub async fn rest(&mut self, millis: Millis) {
        if millis < REVIVED_WITHIN {
            return sleep(millis).await;
        }
        sleep(millis - REVIVED_WITHIN).await;
        let over_until = self.world.now();
        for _ in 0..TICKS {
            sleep(REVIVED_WITHIN / TICKS).await;
            self.world.advance(1);
        }
        self.revived_until = over_until;
    }

    /// Moves the clocks.
    pub fn advance(&mut self, millis: Millis) {
        self.note(format_args!("{millis} ms pass"));
        self.world.advance(millis);
    }

    /// Makes calls at once, and holds their answers against the model.
    pub async fn perform(&mut self, ops: Vec<Op>) -> Checked<Vec<Answer>> {
        self.perform_while_time_passes(ops, None).await
    }

    /// As [`Sim::perform`]; after so much simulated time, lease time moves by so much.
    pub async fn perform_while_time_passes(
        &mut self,
        mut ops: Vec<Op>,
        passing: Option<(Millis, Millis)>,
    ) -> Checked<Vec<Answer>> {
        // Receives first: what is sent meanwhile may already be for a group that begins.
        ops.sort_by_key(|op| !matches!(op, Op::Receive { .. }));
        let asked = self.world.now();
        for op in &mut ops {
            op.begin(&mut self.model);
            self.counts.ops += 1;
        }
        let calls: Vec<_> = ops.iter().map(|op| self.call(op)).collect();
        let clock = self.world.clock();
        let pass = async {
            if let Some((after, by)) = passing {
                tokio::time::sleep(Duration::from_millis(after)).await;
                clock.advance(Duration::from_millis(by));
            }
        };
        let (answers, ()) = tokio::join!(join_all(calls), pass);
        let is_calm = self.is_calm();
        let mut done = self.finished_in_background().await;
        let others = done.len();
        done.extend(ops.into_iter().zip(answers).map(|(op, it)| (op, asked, it)));
        self.note_restarts().await?;
        // What ended in the background may have ended before it.
        let restarted = self.has_restarted_in_step;
        for (op, asked, answered) in &done {
            let at = answered.window(*asked, is_calm);
            if matches!(answered.answer, Answer::Received(None)) {
                self.unheard.push((op.clone(), *asked));
            }
            let text = op.text(&self.model);
            self.note(format_args!("{text}: {}", answered.answer.text()));
            op.end(&answered.answer, at, &mut self.model)?;
            self.may_have_restarted(restarted);
        }
        // What the others made ready may have arrived at the same moment, and what arrived
        // may have been over and arrived again.
        let arrivals = done.iter().flat_map(|(op, asked, answered)| {
            op::arrivals(op, &answered.answer, answered.window(*asked, is_calm))
        });
        let mut arrivals: Vec<_> = arrivals.collect();
        arrivals.sort_by_key(|arrival| arrival.delivery.delivery_attempt);
        let mut anew = Vec::new();
        for arrival in &arrivals {
            self.counts.deliveries += 1;
            let number = self.model.deliveries.len();
            let (id, attempt) = (
                &arrival.delivery.message.message_id,
                arrival.delivery.delivery_attempt,
            );
            self.trace
                .note(format_args!("#{number} is {id}, attempt {attempt}"));
            if arrival.note(&mut self.model)? {
                anew.push(arrival);
            }
            self.may_have_restarted(restarted);
        }
        for arrival in anew {
            arrival.check_order(&self.model, self.world.now())?;
        }
        let own = done.split_off(others).into_iter();
        Ok(own.map(|(_, _, answered)| answered.answer).collect())
    }

    /// Before or after an answer of a moment in which the broker restarted, nobody can say.
    fn may_have_restarted(&mut self, restarted: bool) {
        if restarted {
            self.model.restarted(self.world.now());
        }
    }

    fn call(&self, op: &Op) -> impl Future<Output = Answered> + use<> {
        let call = op.call(&self.world.broker, &self.cast, &self.model);
        let clock = self.world.clock();
        let started = self.started;
        async move {
            let answer = call.await;
            Answered {
                answer,
                lease: lease_millis(&clock),
                time: millis(started.elapsed()),
            }
        }
    }

    /// Makes a call that goes on while steps pass.
    pub fn begin_in_background(&mut self, mut op: Op) {
        op.begin(&mut self.model);
        self.counts.ops += 1;
        let text = op.text(&self.model);
        self.note(format_args!("{text} begins"));
        let task = tokio::spawn(self.call(&op));
        let asked = self.world.now();
        self.background.push(Background { op, asked, task });
    }

    /// A number for a receive that repeats no other.
    pub fn next_receive(&mut self) -> u64 {
        self.receives += 1;
        self.receives
    }

    /// Whether a receive of this group and topic waits.
    pub fn waits(&self, group: usize, topic: usize) -> bool {
        self.background.iter().any(|it| is_of(&it.op, group, topic))
    }

    /// How many messages of a topic a group must be able to get now.
    pub fn ready_count(&self, group: usize, topic: usize) -> usize {
        let over = self.lease_calm_since + 1..self.revived_until + 1;
        self.model.ready_count(group, topic, over)
    }

    async fn finished_in_background(&mut self) -> Vec<(Op, Millis, Answered)> {
        let mut finished = Vec::new();
        for waiting in std::mem::take(&mut self.background) {
            if waiting.task.is_finished() {
                if let Ok(answered) = waiting.task.await {
                    finished.push((waiting.op, waiting.asked, answered));
                }
            } else {
                self.background.push(waiting);
            }
        }
        finished
    }

    /// Waits for the calls that go on.
    pub async fn end_background(&mut self) -> Checked {
        while let Some(waiting) = self.background.iter().find(|it| !it.task.is_finished()) {
            let _ = waiting;
            self.rest(100).await;
        }
        self.perform(Vec::new()).await.map(drop)
    }

    /// After a step: nothing panicked, and nobody waits for what is there.
    async fn look_around(&mut self) -> Checked {
        self.perform(Vec::new()).await?;
        if let Some(panic) = panics::take() {
            return Err(Violation::new("nothing panics", panic));
        }
        if self.background.is_empty() || !self.is_calm() {
            return Ok(());
        }
        self.rest(WOKEN_WITHIN).await;
        self.perform(Vec::new()).await?;
        for waiting in &self.background {
            let Op::Receive { group, topic, .. } = waiting.op else {
                continue;
            };
            if self.ready_count(group, topic) > 0 {
                let what = format!(
                    "a receive of group {group} still waits although messages of topic {topic} are ready"
                );
                return Err(Violation::new("P5 what is ready wakes who waits", what));
            }
        }
        Ok(())
    }

    /// Nothing goes wrong from here on.
    pub async fn begin_end(&mut self) -> Checked {
        self.begin_step();
        self.note(format_args!("--- the end: nothing goes wrong any more"));
        self.end_background().await?;
        self.trouble_is_over();
        Ok(())
    }

    /// Long enough has passed since the last answer.
    pub fn is_all_durable(&mut self) {
        self.model.is_durable_until(self.time() - DURABLE_WITHIN);
    }

    /// Adds to the trace how far the broker thinks that each group is.
    pub async fn note_progress(&mut self) {
        for group in 0..self.cast.groups.len() {
            for topic in 0..self.cast.topics.len() {
                let progress = self.world.progress(&self.cast, group, topic).await;
                self.note(format_args!("group {group} in topic {topic}: {progress:?}"));
            }
        }
    }

    /// Finds out whether the broker lost what it had in memory. Returns whether it did.
    async fn note_restarts(&mut self) -> Checked<bool> {
        let lost_power = self.world.has_lost_power();
        if lost_power {
            self.note(format_args!("the power went"));
            self.counts.crashes += 1;
            self.lease_calm_since = self.lease_calm_since.max(self.world.now());
            self.world.crash(0).await?;
        } else if self.world.opens() == self.opens_known {
            return Ok(false);
        } else {
            self.note(format_args!("the store was opened anew"));
            self.counts.recoveries += self.world.opens() - self.opens_known;
        }
        self.has_restarted();
        Ok(true)
    }

    fn has_restarted(&mut self) {
        self.opens_known = self.world.opens();
        self.has_restarted_in_step = true;
        // By the latest that lease time was: it may have gone back a little.
        self.lease_calm_since = self.lease_calm_since.max(self.revived_until);
        self.trouble_is_over();
        self.model
            .restarted(self.world.now().max(self.lease_calm_since));
    }

    /// Cuts the power and starts again.
    pub async fn crash(&mut self, keep: usize) -> Checked {
        self.note(format_args!(
            "power cut that keeps {keep} of what is not synced"
        ));
        self.lease_calm_since = self.lease_calm_since.max(self.world.now());
        self.world.crash(keep).await?;
        self.counts.crashes += 1;
        self.has_restarted();
        Ok(())
    }

    /// Shuts down and starts again.
    pub async fn restart(&mut self) -> Checked {
        self.note(format_args!("restart"));
        self.lease_calm_since = self.lease_calm_since.max(self.world.now());
        let went_well = self.world.restart().await?;
        self.counts.restarts += 1;
        if went_well && self.is_calm_but_for_the_restart() {
            // All was durable when it ended: nothing is lost, nothing comes again.
            self.model.lives_anew();
            self.model.restarted_in_order(self.world.now());
            self.opens_known = self.world.opens();
            self.trouble_is_over();
        } else {
            self.has_restarted();
        }
        Ok(())
    }

    fn is_calm_but_for_the_restart(&self) -> bool {
        let injected = self.world.faults.injected();
        let own = injected.get(self.faults_before..).unwrap_or_default();
        !own.iter().any(|it| chaos::is_trouble(it.fault))
    }
}

fn is_of(op: &Op, of_group: usize, of_topic: usize) -> bool {
    matches!(op, Op::Receive { group, topic, .. } if *group == of_group && *topic == of_topic)
}

async fn sleep(millis: Millis) {
    if millis > 0 {
        tokio::time::sleep(Duration::from_millis(millis)).await;
    }
}

fn millis(duration: Duration) -> Millis {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
