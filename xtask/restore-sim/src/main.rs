//! Runs schedules by their seeds, or deliberate faults until each is noticed.

#![allow(
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a program's output is what it is for, and its user wants real time"
)]

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

use anyhow::{Result, bail};
use clap::Parser;
use kv_restore::Mutant;
#[cfg(feature = "mutants")]
use kv_restore_sim::resume;
use kv_restore_sim::{Report, driver, run};

/// Those that only the real tasks can show.
#[cfg(feature = "mutants")]
const OF_TASKS: [Mutant; 2] = [Mutant::TurnNotTaken, Mutant::ToldBeforeReleased];

/// Says what is wrong, if anything is.
#[cfg(feature = "mutants")]
type Check = fn() -> Option<String>;

/// Those that no schedule can show, and what shows them.
#[cfg(feature = "mutants")]
const BY_THEMSELVES: [(Mutant, Check); 1] = [(Mutant::ResumeNotCompared, resume::on_other_rows)];

#[derive(Debug, Parser)]
struct Args {
    /// How many seeds; with mutants, within how many each must be noticed.
    #[arg(short = 'n', long, default_value_t = 20_000)]
    seeds: u64,
    /// The first of them.
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// Begin no seed after so many seconds.
    #[arg(short, long)]
    time: Option<u64>,
    /// Threads.
    #[arg(short = 'j', long, default_value_t = 2)]
    jobs: u64,
    /// This seed alone, with its trace.
    #[arg(short, long)]
    seed: Option<u64>,
    /// Each deliberate fault must be noticed.
    #[arg(long)]
    mutants: bool,
    /// With the real tasks, not the machines alone.
    #[arg(long)]
    driver: bool,
    /// This deliberate fault alone.
    #[arg(long)]
    mutant: Option<String>,
}

fn main() -> Result<()> {
    let args = Args::parse();
    if args.driver {
        // The panics of the real tasks are injected, and expected.
        std::panic::set_hook(Box::new(|_| {}));
    }
    let chosen = args.mutant.as_deref().map(by_name).transpose()?;
    if args.mutants || (chosen.is_some() && args.seed.is_none()) {
        return mutants(&args, chosen);
    }
    switch(chosen)?;
    if let Some(seed) = args.seed {
        let report = safely(seed, true, args.driver);
        for line in &report.trace {
            println!("{line}");
        }
        println!("{} steps", report.steps);
        return report
            .violation
            .map_or(Ok(()), |it| bail!("seed {seed}: {it}"));
    }
    many(&args)
}

fn many(args: &Args) -> Result<()> {
    let started = Instant::now();
    let (next, steps) = (AtomicU64::new(args.from), AtomicU64::new(0));
    let (sessions, installed) = (AtomicU64::new(0), AtomicU64::new(0));
    let end = args.from + args.seeds;
    let limit = args.time.map(Duration::from_secs);
    let work = || {
        while limit.is_none_or(|it| started.elapsed() < it) {
            // Nothing but the number is shared.
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= end {
                break;
            }
            let report = safely(seed, false, args.driver);
            steps.fetch_add(report.steps, Ordering::Relaxed);
            sessions.fetch_add(
                u64::try_from(report.sessions).unwrap_or(0),
                Ordering::Relaxed,
            );
            installed.fetch_add(report.installed, Ordering::Relaxed);
            if let Some(violation) = report.violation {
                return Some((seed, violation));
            }
        }
        None
    };
    let found = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..args.jobs).map(|_| scope.spawn(work)).collect();
        let ends = threads
            .into_iter()
            .filter_map(|it| it.join().ok().flatten());
        ends.min()
    });
    let done = next.load(Ordering::Relaxed).min(end) - args.from;
    let seconds = started.elapsed().as_secs_f64();
    println!(
        "{done} schedules in {seconds:.1} s, {:.0} a minute; {} steps, {} sessions, {} installed",
        f64::from(u32::try_from(done).unwrap_or(u32::MAX)) / seconds * 60.0,
        steps.into_inner(),
        sessions.into_inner(),
        installed.into_inner(),
    );
    match found {
        None => Ok(()),
        Some((seed, violation)) => {
            bail!("seed {seed}: {violation}\nreplay: cargo xtask restore-sim --seed {seed}")
        }
    }
}

/// A panic of the machines is a violation like any other.
fn safely(seed: u64, trace: bool, tasks: bool) -> Report {
    let ran = catch_unwind(AssertUnwindSafe(|| match tasks {
        true => driver::run(seed),
        false => run(seed, trace),
    }));
    ran.unwrap_or_else(|_| Report {
        steps: 0,
        sessions: 0,
        installed: 0,
        violation: Some("it panicked".to_owned()),
        trace: Vec::new(),
    })
}

fn by_name(name: &str) -> Result<Mutant> {
    let found = Mutant::ALL.iter().find(|it| it.name() == name);
    found
        .copied()
        .ok_or_else(|| anyhow::anyhow!("there is no mutant {name}"))
}

#[cfg(not(feature = "mutants"))]
fn switch(mutant: Option<Mutant>) -> Result<()> {
    match mutant {
        None => Ok(()),
        Some(_) => bail!("built without the feature `mutants`"),
    }
}

#[cfg(not(feature = "mutants"))]
fn mutants(_: &Args, _: Option<Mutant>) -> Result<()> {
    bail!("built without the feature `mutants`")
}

#[cfg(feature = "mutants")]
#[expect(clippy::unnecessary_wraps, reason = "without the feature it can fail")]
fn switch(mutant: Option<Mutant>) -> Result<()> {
    Mutant::switch(mutant);
    Ok(())
}

#[cfg(feature = "mutants")]
fn mutants(args: &Args, chosen: Option<Mutant>) -> Result<()> {
    std::panic::set_hook(Box::new(|_| {}));
    let mut missed = Vec::new();
    for mutant in Mutant::ALL {
        if chosen.is_some_and(|it| it != *mutant) {
            continue;
        }
        if let Some((_, check)) = BY_THEMSELVES.iter().find(|(it, _)| it == mutant) {
            Mutant::switch(None);
            if let Some(violation) = check() {
                bail!("without a fault: {violation}");
            }
            Mutant::switch(Some(*mutant));
            match check() {
                Some(violation) => println!("{:<22} {violation}", mutant.name()),
                None => missed.push(mutant.name()),
            }
            continue;
        }
        Mutant::switch(Some(*mutant));
        let tasks = args.driver || OF_TASKS.contains(mutant);
        let seeds = args.from..args.from + args.seeds;
        let noticed = seeds
            .filter_map(|seed| Some((seed, safely(seed, false, tasks).violation?)))
            .next();
        match noticed {
            Some((seed, violation)) => {
                println!("{:<22} seed {seed}: {violation}", mutant.name());
            }
            None => missed.push(mutant.name()),
        }
    }
    Mutant::switch(None);
    if missed.is_empty() {
        return Ok(());
    }
    bail!(
        "not noticed within {} seeds: {}",
        args.seeds,
        missed.join(", ")
    )
}
