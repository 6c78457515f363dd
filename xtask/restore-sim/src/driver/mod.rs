//! The same with the real tasks: restorer, registry, driver and dumper on tokio's paused
//! clock, over a target whose calls refuse, hang, panic and come late.
//!
//! It is slower than the machines alone and sees what they can't show: who holds staging,
//! turn and permits, and when.

mod relay;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use kv_restore::{
    Admission, Digest, Dumper, ErrorKind, Limiter, Offer, Options, Outcome, Phase, Restorer,
    RestorerOptions, Session, Target, digest,
};
use pop_store::{
    Durability, Keyspace, MemStore, Store, WriteBatch,
    testkit::{Call, Effect, Fault, FaultStore, Faults, Random},
};

use crate::{
    plan::{peer, pick, snapshot},
    world::Report,
};
use relay::Relay;

const A: Keyspace = Keyspace::new("a");
const B: Keyspace = Keyspace::new("b");
const SEALS: Keyspace = Keyspace::new("seals");
const PERMITS: usize = 3;
const ANSWERED_WITHIN: Duration = Duration::from_secs(2_000);

/// What the world and its relays share.
#[derive(Debug)]
pub struct Shared {
    random: std::sync::Mutex<Random>,
    calm: AtomicBool,
}

impl Shared {
    fn draw(&self) -> u64 {
        let mut random = self.random.lock().unwrap_or_else(|it| it.into_inner());
        random.next_u64()
    }

    fn is_calm(&self) -> bool {
        // One thread, so that no order is at stake.
        self.calm.load(Ordering::Relaxed)
    }
}

struct Tasks {
    random: Random,
    shared: Arc<Shared>,
    target: FaultStore<MemStore>,
    faults: Faults,
    admission: Admission,
    dumper: Dumper,
    restorer: Restorer,
    contents: Vec<Digest>,
    sessions: Vec<Session>,
    watched: Vec<Session>,
    // A switch was reported as hanging, and keeps what it holds until it is let go.
    stuck: bool,
    asked: usize,
    installed: u64,
    violation: Option<String>,
    trace: Vec<String>,
}

/// Runs the schedule of a seed.
pub fn run(seed: u64) -> Report {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime without I/O needs nothing");
    runtime.block_on(async {
        let (mut tasks, offers) = Tasks::new(seed).await;
        tasks.play(offers).await
    })
}

impl Tasks {
    async fn new(seed: u64) -> (Self, Vec<Offer>) {
        let mut random = Random::new(seed ^ 0xd21e);
        let shared = Arc::new(Shared {
            random: std::sync::Mutex::new(Random::new(random.next_u64())),
            calm: AtomicBool::new(false),
        });
        let options = Options::default()
            .with_chunk_bytes(200)
            .with_window_bytes(1 + random.below(2_000))
            .with_reconnects(u32::try_from(random.below(3)).unwrap_or(0));
        let dumper = Dumper::new(options.clone(), Admission::new(4), Limiter::none());
        let (mut offers, mut contents) = (Vec::new(), Vec::new());
        let source = MemStore::new(&[A, B]);
        for id in 1..=3 {
            fill(&source, &mut random).await;
            let view = source.snapshot().await.expect("memory has snapshots");
            let content = digest(view.as_ref(), &[A, B]).await;
            contents.push(content.expect("memory can be read"));
            offers.extend(dumper.offer(snapshot(id, 0), &source, view).ok());
        }
        let faults = Faults::none();
        let target = FaultStore::new(MemStore::new(&[A, B, SEALS]), faults.clone());
        let admission = Admission::new(PERMITS);
        let restorer = restorer(&target, &dumper, &admission, &shared, options);
        let tasks = Self {
            random,
            shared,
            target,
            faults,
            admission,
            dumper,
            restorer,
            contents,
            sessions: Vec::new(),
            watched: Vec::new(),
            stuck: false,
            asked: 0,
            installed: 0,
            violation: None,
            trace: Vec::new(),
        };
        (tasks, offers)
    }

    async fn play(&mut self, offers: Vec<Offer>) -> Report {
        let steps = 3 + self.random.below(25);
        for _ in 0..steps {
            self.step().await;
            self.look().await;
            if self.violation.is_some() {
                break;
            }
        }
        if self.violation.is_none() {
            self.finish().await;
        }
        drop(offers);
        Report {
            steps,
            sessions: self.asked,
            installed: self.installed,
            violation: self.violation.take(),
            trace: std::mem::take(&mut self.trace),
        }
    }

    async fn step(&mut self) {
        match self.random.below(14) {
            0..5 => {
                let id = 1 + u128::from(self.random.below(3));
                let epoch = 1 + self.random.below(3);
                self.request(id, epoch);
            }
            5 if !self.sessions.is_empty() => {
                let n = self.random.index(self.sessions.len());
                self.note("drop");
                // Whoever watches holds a handle, too; the wish is the same.
                self.sessions.swap_remove(n).cancel();
            }
            6..9 => self.arm(),
            9 => {
                self.note("release");
                self.release().await;
            }
            _ => {
                let pause = *pick(&mut self.random, &[5, 300, 20_000]);
                let ms = self.random.below(pause);
                self.note(&format!("wait {ms} ms"));
                self.wait(Duration::from_millis(ms)).await;
            }
        }
    }

    fn note(&mut self, line: &str) {
        self.trace.push(line.to_owned());
    }

    fn request(&mut self, id: u128, epoch: u64) -> bool {
        self.note(&format!("request {id} of epoch {epoch}"));
        let session = self.restorer.restore(snapshot(id, epoch), &[peer(0)]);
        let Ok(session) = session else {
            return false;
        };
        if session.ended().is_some() {
            self.fail("I3: a session that has ended was handed out");
        }
        self.asked += 1;
        self.sessions.push(session.clone());
        self.watched.push(session);
        true
    }

    fn arm(&mut self) {
        let calls = [Call::BeginReplace, Call::Load, Call::Publish, Call::Get];
        let call = *pick(&mut self.random, &calls);
        let effects = [Effect::Happened, Effect::DidNotHappen];
        let effect = *pick(&mut self.random, &effects);
        let fault = match self.random.below(5) {
            0 => Fault::Refuse,
            1 => Fault::Panic(effect),
            2 => Fault::Hang(effect),
            _ => Fault::Delay(Duration::from_millis(self.random.below(30_000))),
        };
        let nth = 1 + self.random.below(3);
        self.note(&format!("arm {call:?} {nth}: {fault:?}"));
        self.faults.arm(call, nth, fault);
    }

    async fn release(&mut self) {
        self.faults.release();
        self.wait(Duration::from_secs(1)).await;
        self.stuck = false;
    }

    /// Lets time go by in small steps, so that an end is seen when it comes.
    async fn wait(&mut self, time: Duration) {
        let steps = 8;
        for _ in 0..steps {
            tokio::time::sleep(time / steps).await;
            self.look().await;
        }
    }

    /// Looks at every session that has ended since.
    async fn look(&mut self) {
        for session in std::mem::take(&mut self.watched) {
            match session.ended() {
                None => self.watched.push(session),
                Some(outcome) => self.ended(&session, outcome).await,
            }
        }
        // One at a time: whoever has the turn has not been told of its end.
        let running = usize::from(!self.watched.is_empty());
        if self.admission.free() + running < PERMITS && !self.stuck {
            self.fail("I10: a session that was told to be over holds a permit");
        }
    }

    async fn ended(&mut self, session: &Session, outcome: Outcome) {
        self.note(&format!("{} ended: {outcome:?}", session.id()));
        let seals = Target::new(Arc::new(self.target.inner().clone())).with_seals(SEALS);
        let seal = seals.installed("space").await.ok().flatten();
        match outcome {
            Ok(installed) => {
                self.installed += 1;
                let Some(seal) = seal else {
                    return self.fail("I5: Ok, and nothing is installed");
                };
                let order = |it: &kv_restore::Seal| (it.epoch, it.applied);
                if order(&seal) < order(&installed.seal) {
                    return self.fail("I9: what is installed went back");
                }
                if seal == installed.seal && !self.holds(seal.snapshot.0).await {
                    self.fail("I8: Ok, and the rows are not those of the snapshot");
                }
            }
            Err(error) => match (error.kind(), error.phase()) {
                (ErrorKind::Begin, _) if error.detail().contains("another staging") => {
                    self.fail("I7: two stagings at once");
                }
                (ErrorKind::Corrupt(_) | ErrorKind::Protocol, _) => {
                    self.fail(&format!("nothing was changed on the way: {error}"));
                }
                (ErrorKind::Stalled, Phase::Committing) => self.stuck = true,
                _ => {}
            },
        }
    }

    async fn holds(&self, snapshot: u128) -> bool {
        let view = self.target.inner().snapshot().await;
        let rows = digest(view.expect("memory has snapshots").as_ref(), &[A, B]).await;
        let place = usize::try_from(snapshot).unwrap_or(0).wrapping_sub(1);
        rows.ok().as_ref() == self.contents.get(place)
    }

    /// Without faults a request succeeds, and then nothing is left.
    async fn finish(&mut self) {
        self.note("calm");
        self.shared.calm.store(true, Ordering::Relaxed);
        self.faults.disarm();
        self.release().await;
        self.wait(ANSWERED_WITHIN).await;
        if !self.watched.is_empty() {
            return self.fail("I2: somebody was not answered");
        }
        if !self.request(3, 99) {
            return self.fail("I14: refused without a reason");
        }
        self.wait(Duration::from_secs(100)).await;
        if !self.holds(3).await {
            return self.fail("I14: without faults it is not installed");
        }
        self.sessions.clear();
        self.wait(Duration::from_secs(100)).await;
        let metrics = tokio::runtime::Handle::current().metrics();
        let left = (self.dumper.running(), metrics.num_alive_tasks());
        if left != (0, 0) || self.admission.free() != PERMITS {
            self.fail(&format!("I10: left over: dumps, tasks: {left:?}"));
        }
    }

    fn fail(&mut self, violation: &str) {
        self.note(&format!("VIOLATION {violation}"));
        self.violation.get_or_insert_with(|| violation.to_owned());
    }
}

fn restorer(
    target: &FaultStore<MemStore>,
    dumper: &Dumper,
    admission: &Admission,
    shared: &Arc<Shared>,
    session: Options,
) -> Restorer {
    let numbers = Arc::clone(shared);
    let relay = Relay {
        dumper: dumper.clone(),
        shared: Arc::clone(shared),
    };
    Restorer::new(
        Target::new(Arc::new(target.clone())).with_seals(SEALS),
        Arc::new(relay),
        RestorerOptions::new(admission.clone(), Arc::new(move || numbers.draw()))
            .with_session(session),
        tokio::runtime::Handle::current(),
    )
}

async fn fill(store: &MemStore, random: &mut Random) {
    for _ in 0..random.below(30) {
        let mut batch = WriteBatch::new();
        let keyspace = *pick(random, &[A, B]);
        let mut value = vec![0; random.index(60)];
        random.fill(&mut value);
        let key = random.below(500).to_be_bytes().to_vec();
        batch.put(keyspace, key.into(), value.into());
        let wrote = store.write(batch, Durability::Synced).await;
        wrote.expect("memory takes a small batch");
    }
}
