//! Many seeds on all cores: each thread runs one at a time, on its own.

use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    time::Duration,
};

use parking_lot::Mutex;
use pop_model::Mutant;

use crate::{
    mutation,
    plan::Plan,
    run::{Report, run},
    sim::Counts,
    violation::Violation,
    watch::Stopwatch,
};

/// A seed that takes longer than this hangs: no simulated time passes any more.
const SEED_TIME_MAX: Duration = Duration::from_secs(60);
/// The same where a deliberate fault is on, and a hang is what one looks for.
const MUTANT_TIME_MAX: Duration = Duration::from_secs(20);

/// How the program ends when a seed hangs.
pub const HANGS: i32 = 3;

/// What seeds came to.
#[derive(Debug, Default)]
pub struct Total {
    /// How many ran.
    pub seeds: u64,
    /// What happened in all of them.
    pub counts: Counts,
    /// The fewest calls and power cuts of one seed.
    pub least: Option<(u64, u64)>,
    /// The lowest seed that failed, and how.
    pub failed: Option<(u64, Violation)>,
    /// How long it took.
    pub took: Duration,
}

impl Total {
    fn add(&mut self, seed: u64, report: Report) {
        self.seeds += 1;
        self.counts.add(&report.counts);
        if let Some(violation) = report.violation {
            if self
                .failed
                .as_ref()
                .is_none_or(|(failed, _)| seed < *failed)
            {
                self.failed = Some((seed, violation));
            }
            return;
        }
        let Counts { ops, crashes, .. } = report.counts;
        let least = self.least.unwrap_or((u64::MAX, u64::MAX));
        self.least = Some((least.0.min(ops), least.1.min(crashes)));
    }
}

/// What is to be run.
#[derive(Clone, Debug)]
pub struct Batch {
    /// The first seed.
    pub from: u64,
    /// How many there are.
    pub count: u64,
    /// No seed is begun after this time.
    pub within: Option<Duration>,
    /// How many threads share them.
    pub threads: usize,
    /// The deliberate fault that is on.
    pub mutant: Option<Mutant>,
}

/// Runs seeds until one fails.
pub fn run_all(batch: &Batch) -> Total {
    let watch = Stopwatch::start();
    let next = AtomicU64::new(batch.from);
    let end = batch.from.saturating_add(batch.count);
    let stop = AtomicBool::new(false);
    let total = Mutex::new(Total::default());
    // The seed of each thread, and when it began in milliseconds.
    let running: Vec<_> = (0..batch.threads)
        .map(|_| (AtomicU64::new(0), AtomicU64::new(u64::MAX)))
        .collect();
    let in_time = || batch.within.is_none_or(|within| watch.elapsed() < within);
    std::thread::scope(|scope| {
        let threads: Vec<_> = running
            .iter()
            .map(|(current, began)| {
                scope.spawn(|| {
                    batch.mutant.into_iter().for_each(mutation::switch);
                    // Relaxed throughout: the numbers order nothing else.
                    while !stop.load(Ordering::Relaxed) && in_time() {
                        let seed = next.fetch_add(1, Ordering::Relaxed);
                        if seed >= end {
                            break;
                        }
                        current.store(seed, Ordering::Relaxed);
                        began.store(millis(watch), Ordering::Relaxed);
                        let report = run(&Plan::new(seed), false);
                        if report.violation.is_some() {
                            stop.store(true, Ordering::Relaxed);
                        }
                        total.lock().add(seed, report);
                    }
                    began.store(u64::MAX, Ordering::Relaxed);
                })
            })
            .collect();
        let limit = match batch.mutant {
            Some(_) => MUTANT_TIME_MAX,
            None => SEED_TIME_MAX,
        };
        while threads.iter().any(|thread| !thread.is_finished()) {
            std::thread::park_timeout(Duration::from_millis(20));
            for (seed, began) in &running {
                let took = millis(watch).saturating_sub(began.load(Ordering::Relaxed));
                if u128::from(took) > limit.as_millis() {
                    hangs(batch, seed.load(Ordering::Relaxed));
                }
            }
        }
    });
    let mut total = total.into_inner();
    total.took = watch.elapsed();
    total
}

fn millis(watch: Stopwatch) -> u64 {
    u64::try_from(watch.elapsed().as_millis()).unwrap_or(u64::MAX)
}

/// A thread that spins can't be ended: the program is.
#[expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "the last word of a program that hangs"
)]
fn hangs(batch: &Batch, seed: u64) -> ! {
    if let Some(mutant) = batch.mutant {
        let found = Some((seed, "P5 no wedge: it hangs"));
        println!("{}", mutation::row(mutant, batch.count, found));
    } else {
        eprintln!("P5 no wedge: seed {seed} hangs: no simulated time passes any more");
        eprintln!("replay it with: cargo xtask sim --seed {seed}");
    }
    std::process::exit(HANGS)
}
