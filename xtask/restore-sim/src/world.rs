//! One schedule: its clock, its queue of what is to happen, and the loop.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use kv_restore::{Epoch, Failure, frame::Frame, registry::Registry};
use pop_store::testkit::Random;

use crate::{
    client::Handle,
    dump::{self, Dump},
    net::{Channel, End},
    plan::{Odds, Plan, SOURCES, Step},
    target::Target,
    task::{self, Task},
};

// What a schedule can need at most, with all its bounds exhausted one after another.
const QUIET_WITHIN: Duration = Duration::from_secs(6_000);
const STEPS_MAX: u64 = 200_000;

#[derive(Debug)]
pub enum Event {
    Client(Step),
    Arrives {
        channel: usize,
        to: End,
        content: Result<Frame, Failure>,
    },
    Closes {
        channel: usize,
        to: End,
    },
    Task {
        task: usize,
        op: u64,
        answer: task::Answer,
    },
    Dump {
        dump: usize,
        op: u64,
        answer: dump::Answer,
    },
    SourceBack(usize),
    /// The next word of a receiver that does nothing else.
    Leech {
        channel: usize,
        takes: bool,
    },
}

pub struct World {
    pub now: Duration,
    pub random: Random,
    pub plan: Plan,
    pub channels: Vec<Channel>,
    pub tasks: Vec<Task>,
    pub dumps: Vec<Dump>,
    pub handles: Vec<Handle>,
    pub target: Target,
    pub registry: Registry,
    /// The highest epoch that asked this registry.
    pub epoch: Epoch,
    /// Which task may touch the target, and who waits for that.
    pub turn: Option<usize>,
    pub line: VecDeque<usize>,
    pub up: [bool; SOURCES],
    /// Nothing goes wrong any more.
    pub calm: bool,
    pub installed: u64,
    queue: BTreeMap<(Duration, u64), Event>,
    counter: u64,
    steps: u64,
    violation: Option<String>,
    trace: Option<Vec<String>>,
}

/// What came of a schedule.
#[derive(Debug)]
pub struct Report {
    pub steps: u64,
    pub sessions: usize,
    pub installed: u64,
    pub violation: Option<String>,
    pub trace: Vec<String>,
}

/// Runs the schedule of a seed, with its trace if that is wanted.
pub fn run(seed: u64, trace: bool) -> Report {
    let mut random = Random::new(seed);
    let plan = Plan::draw(&mut random);
    let mut world = World {
        now: Duration::from_secs(1_000),
        random,
        plan,
        channels: Vec::new(),
        tasks: Vec::new(),
        dumps: Vec::new(),
        handles: Vec::new(),
        target: Target::default(),
        registry: Registry::default(),
        epoch: Epoch(0),
        turn: None,
        line: VecDeque::new(),
        up: [true; SOURCES],
        calm: false,
        installed: 0,
        queue: BTreeMap::new(),
        counter: 0,
        steps: 0,
        violation: None,
        trace: trace.then(Vec::new),
    };
    world.play();
    Report {
        steps: world.steps,
        sessions: world.tasks.len(),
        installed: world.installed,
        violation: world.violation,
        trace: world.trace.unwrap_or_default(),
    }
}

impl World {
    fn play(&mut self) {
        self.note(|| "begin".to_owned());
        for (at, step) in std::mem::take(&mut self.plan.steps) {
            self.after(at, Event::Client(step));
        }
        self.until_quiet();
        self.finish();
    }

    /// Until nothing is left that could happen.
    pub fn until_quiet(&mut self) {
        let end = self.now + QUIET_WITHIN;
        while self.violation.is_none() && self.step() {
            if self.now > end || self.steps > STEPS_MAX {
                self.fail(format!(
                    "I2: not quiet {QUIET_WITHIN:?} after the last step"
                ));
            }
        }
    }

    /// Lets the next thing happen; false if there is none.
    fn step(&mut self) -> bool {
        let queued = self.queue.first_key_value().map(|((at, _), _)| *at);
        let tasks = self.tasks.iter().enumerate();
        let task = tasks.filter_map(|(n, it)| Some((it.deadline()?, n))).min();
        let dumps = self.dumps.iter().enumerate();
        let dump = dumps.filter_map(|(n, it)| Some((it.deadline()?, n))).min();
        let next = [queued, task.map(|it| it.0), dump.map(|it| it.0)];
        let Some(next) = next.into_iter().flatten().min() else {
            return false;
        };
        self.steps += 1;
        self.now = self.now.max(next);
        if queued == Some(next) {
            if let Some((_, event)) = self.queue.pop_first() {
                self.happens(event);
            }
        } else if let Some((_, n)) = task.filter(|it| it.0 == next) {
            self.task_tick(n);
        } else if let Some((_, n)) = dump {
            self.dump_tick(n);
        }
        self.signal();
        self.check();
        self.violation.is_none()
    }

    fn happens(&mut self, event: Event) {
        match event {
            Event::Client(step) => self.client(step),
            Event::Arrives {
                channel,
                to,
                content,
            } => {
                let state = self.channels.get(channel);
                if state.is_none_or(|it| it.open.get(to.index()) != Some(&true)) {
                    return;
                }
                match to {
                    End::Receiver => self.task_hears(channel, content),
                    End::Source => self.dump_hears(channel, content),
                }
            }
            Event::Closes { channel, to } => match to {
                End::Receiver => self.task_loses(channel),
                End::Source => self.dump_loses(channel),
            },
            Event::Task { task, op, answer } => self.task_answers(task, op, answer),
            Event::Dump { dump, op, answer } => self.dump_answers(dump, op, answer),
            Event::Leech { channel, takes } => self.leech_lives(channel, takes),
            Event::SourceBack(source) => {
                if let Some(up) = self.up.get_mut(source) {
                    *up = true;
                }
            }
        }
    }

    /// Schedules something.
    pub fn after(&mut self, wait: Duration, event: Event) {
        let id = self.next_id();
        self.queue.insert((self.now + wait, id), event);
    }

    /// A number that did not come before.
    pub fn next_id(&mut self) -> u64 {
        self.counter += 1;
        self.counter
    }

    pub fn odds(&self) -> Odds {
        if self.calm {
            Odds::default()
        } else {
            self.plan.odds
        }
    }

    pub fn lucky(&mut self, parts: u64) -> bool {
        parts > 0 && self.random.chance(parts, 1_000)
    }

    /// The first violation is the one that counts.
    pub fn fail(&mut self, violation: String) {
        let now = self.now;
        self.note(|| format!("VIOLATION {violation}"));
        self.violation
            .get_or_insert_with(|| format!("at {now:?}: {violation}"));
    }

    pub fn has_failed(&self) -> bool {
        self.violation.is_some()
    }

    pub fn note(&mut self, line: impl FnOnce() -> String) {
        let now = self.now;
        if let Some(trace) = &mut self.trace {
            trace.push(format!("{:>9.3} {}", now.as_secs_f64() - 1_000.0, line()));
        }
    }
}
