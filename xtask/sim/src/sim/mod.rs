//! A run: steps of clients on a broker, each held against the model.

mod counts;
mod perform;
mod restarts;
mod step;

use std::{fmt, time::Duration};

use tokio::time::Instant;

pub use counts::Counts;
use perform::Background;

use crate::{
    actions::Repertoire,
    cast::Cast,
    chaos::{self, Odds},
    model::{Millis, Model},
    op::Op,
    plan::Plan,
    trace::Trace,
    violation::{Checked, Violation},
    world::{Origin, World},
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
pub(crate) const WOKEN_WITHIN: Millis = 10;

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
    /// How often a topic or a group was deleted.
    pub deletions: u32,
    pub(crate) trace: Trace,
    /// What happened in which step.
    pub(crate) taken: Vec<(u64, &'static str)>,
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
        let repertoire = Repertoire::draw(&mut plan.random_of_actions());
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
            deletions: 0,
            trace,
            taken: Vec::new(),
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
        sim.read_the_clocks();
        sim.model.confirmed();
        sim.model.keeps(sim.cast.tuning.keep_ms);
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
        self.read_the_clocks();
        self.revived_until = over_until;
    }

    /// Moves the clocks.
    pub fn advance(&mut self, millis: Millis) {
        self.note(format_args!("{millis} ms pass"));
        self.world.advance(millis);
        self.read_the_clocks();
    }

    /// Tells the model of the clocks, which moved.
    pub fn read_the_clocks(&mut self) {
        self.model.clocks(self.world.wall(), self.world.now());
    }

    /// A number for a receive that repeats no other.
    pub fn next_receive(&mut self) -> u64 {
        self.receives += 1;
        self.receives
    }

    /// How many messages of a topic a group must be able to get now.
    pub fn ready_count(&self, group: usize, topic: usize) -> usize {
        let over = self.lease_calm_since + 1..self.revived_until + 1;
        self.model.ready(group, topic, over).count()
    }

    /// The first message of a topic that a group must be able to get, for people.
    pub fn ready_text(&self, group: usize, topic: usize) -> String {
        let over = self.lease_calm_since + 1..self.revived_until + 1;
        let ready = self.model.ready(group, topic, over).next();
        let track = |message| self.model.track(group, message).states();
        ready.map_or_else(String::new, |message| {
            format!("m{message}, which may be {:?}", track(message))
        })
    }

    /// The message that lay here.
    ///
    /// # Errors
    ///
    /// If there was none.
    pub fn message_at(&self, origin: Origin) -> Checked<usize> {
        let mut messages = self.model.messages.iter();
        let number = messages.position(|sent| {
            (sent.content.topic, sent.life) == (origin.topic, origin.life)
                && sent.place == Some((origin.queue, origin.offset))
        });
        number.ok_or_else(|| {
            let what = format!("a record of {origin:?}, where nothing was damaged");
            Violation::new("P6 quarantine", what)
        })
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
}

async fn sleep(millis: Millis) {
    if millis > 0 {
        tokio::time::sleep(Duration::from_millis(millis)).await;
    }
}

fn millis(duration: Duration) -> Millis {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
