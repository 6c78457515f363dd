//! Runs seeds, and says which broke a promise.

#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program for people: what it says is what it is for"
)]

use std::{
    process::{Command, ExitCode, Stdio},
    thread::available_parallelism,
    time::Duration,
};

use anyhow::{Result, anyhow, bail, ensure};
use clap::Parser;
use pop_model::Mutant;
use pop_sim::{
    mutation,
    plan::Plan,
    pool::{Batch, HANGS, Total, run_all},
    regressions::{REGRESSIONS, record},
    run::run,
    shrink::shrink,
    steps,
};

/// How many seeds are run if nobody says.
const SEEDS: u64 = 250;
/// How long a failure is made shorter.
const SHRINK_TIME_MAX: Duration = Duration::from_secs(40);

/// Random clients on a broker whose store fails and loses power, held against a model.
#[derive(Debug, Parser)]
struct Flags {
    /// How many seeds to run; 250 if absent. With mutants, within how many each must be
    /// noticed; the table says if absent.
    #[arg(long)]
    seeds: Option<u64>,
    /// The first of them.
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// Begin no seed after so many seconds.
    #[arg(long)]
    time: Option<u64>,
    /// This seed alone, with its trace.
    #[arg(long)]
    seed: Option<u64>,
    /// Only these steps of it, as `3,7,9-12`.
    #[arg(long, requires = "seed")]
    only: Option<String>,
    /// Nothing goes wrong in the store in these steps of it.
    #[arg(long, requires = "seed")]
    no_faults: Option<String>,
    /// Print what the broker logs, too, as `debug` or `pop_cache=debug`.
    #[arg(long, requires = "seed")]
    log: Option<String>,
    /// Switch deliberate faults on, one after another: each must be noticed.
    #[arg(long)]
    mutants: bool,
    /// Only this deliberate fault.
    #[arg(long)]
    mutant: Option<String>,
    /// How many threads share the seeds; one a core if absent.
    #[arg(long)]
    threads: Option<usize>,
}

fn main() -> ExitCode {
    match dispatch(&Flags::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("sim: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn dispatch(flags: &Flags) -> Result<()> {
    let threads = flags.threads.unwrap_or_else(cores);
    let mutants = chosen_mutants(flags)?;
    if let Some(seed) = flags.seed {
        if let [mutant] = mutants.as_slice() {
            mutation::switch(*mutant);
        }
        return replay(flags, seed);
    }
    if !mutants.is_empty() {
        return check_mutants(flags, &mutants, threads);
    }
    for regression in REGRESSIONS {
        let plan = regression.plan().map_err(|problem| anyhow!(problem))?;
        if let Some(violation) = run(&plan, false).violation {
            eprintln!("regression: {} ({})", regression.name, regression.found);
            return failed(&plan, violation.promise);
        }
    }
    let batch = Batch {
        from: flags.from,
        count: flags.seeds.unwrap_or(SEEDS),
        within: flags.time.map(Duration::from_secs),
        threads,
        mutant: None,
    };
    let total = run_all(&batch);
    println!("{}", summary(&total, threads));
    match total.failed {
        None => Ok(()),
        Some((seed, violation)) => failed(&Plan::new(seed), violation.promise),
    }
}

fn cores() -> usize {
    available_parallelism().map_or(1, std::num::NonZero::get)
}

fn summary(total: &Total, threads: usize) -> String {
    let counts = &total.counts;
    let took_ms = u64::try_from(total.took.as_millis())
        .unwrap_or(u64::MAX)
        .max(1);
    let a_second = |count: u64| count * 1_000 / took_ms;
    let (ops, crashes) = total.least.unwrap_or_default();
    format!(
        "{} regressions, then {} seeds: {} calls, at least {ops} a seed; {} messages handed out; {} power cuts, at least {crashes} a seed; {} restarts, {} recoveries, {} faults.\n{:.1} s on {threads} threads: {} calls a second, {} a thread.",
        REGRESSIONS.len(),
        total.seeds,
        counts.ops,
        counts.deliveries,
        counts.crashes,
        counts.restarts,
        counts.recoveries,
        counts.faults,
        total.took.as_secs_f64(),
        a_second(counts.ops),
        a_second(counts.ops) / threads.max(1) as u64,
    )
}

/// Makes a failure shorter and prints it.
fn failed(plan: &Plan, promise: &str) -> Result<()> {
    let seed = plan.seed;
    eprintln!("seed {seed} broke a promise: {promise}");
    eprintln!("looking for a shorter run that does, for at most {SHRINK_TIME_MAX:?} ...");
    let plan = shrink(plan, promise, SHRINK_TIME_MAX);
    let report = run(&plan, true);
    for line in &report.lines {
        eprintln!("{line}");
    }
    eprintln!("replay it with: {}", command(&plan));
    eprintln!("or keep it in regressions.rs:\n{}", record(&plan, &report));
    bail!("seed {seed}: {promise}")
}

fn command(plan: &Plan) -> String {
    let mut command = format!("cargo xtask sim --seed {}", plan.seed);
    if let Some(only) = &plan.only {
        command += &format!(" --only {}", steps::write(only));
    }
    if !plan.faultless.is_empty() {
        command += &format!(" --no-faults {}", steps::write(&plan.faultless));
    }
    command
}

fn replay(flags: &Flags, seed: u64) -> Result<()> {
    let read = |text: &Option<String>| {
        let steps = text.as_deref().map(steps::read).transpose();
        steps.map_err(|problem| anyhow!(problem))
    };
    let mut plan = Plan::new(seed);
    plan.only = read(&flags.only)?;
    plan.faultless = read(&flags.no_faults)?.unwrap_or_default();
    if let Some(filter) = &flags.log {
        let log = tracing_subscriber::fmt().with_env_filter(filter);
        log.without_time().init();
        plan.echo = true;
    }
    let report = run(&plan, true);
    if !plan.echo {
        for line in &report.lines {
            println!("{line}");
        }
    }
    println!("{:?}; hash {:016x}", report.counts, report.hash);
    match report.violation {
        None => Ok(()),
        Some(violation) => bail!("seed {seed}: {violation}"),
    }
}

fn chosen_mutants(flags: &Flags) -> Result<Vec<Mutant>> {
    let chosen: Vec<Mutant> = match &flags.mutant {
        None if flags.mutants => Mutant::ALL.to_vec(),
        None => Vec::new(),
        Some(name) => {
            let mut named = Mutant::ALL.iter().filter(|mutant| mutant.name() == name);
            let mutant = named.next().ok_or_else(|| {
                let names: Vec<_> = Mutant::ALL.iter().map(|it| it.name()).collect();
                anyhow!("{name:?} is no mutant; there are {}", names.join(", "))
            })?;
            vec![*mutant]
        }
    };
    ensure!(
        chosen.is_empty() || mutation::IS_BUILT_IN,
        "this build has no mutants: build it with --features mutants, as cargo xtask sim does"
    );
    Ok(chosen)
}

/// One mutant is searched here; several each in a process of its own, since one that hangs
/// takes its process with it.
fn check_mutants(flags: &Flags, mutants: &[Mutant], threads: usize) -> Result<()> {
    if let [mutant] = mutants {
        let seeds_max = flags.seeds.unwrap_or_else(|| mutation::seeds_max(*mutant));
        let total = mutation::search(*mutant, seeds_max, threads);
        let noticed = total.failed.as_ref();
        let noticed = noticed.map(|(seed, violation)| (*seed, violation.promise));
        println!("{}", mutation::row(*mutant, seeds_max, noticed));
        ensure!(noticed.is_some(), "it was not noticed");
        return Ok(());
    }
    let mut missed = Vec::new();
    for mutant in mutants {
        let mut child = Command::new(std::env::current_exe()?);
        child.args(["--mutant", mutant.name()]);
        child.args(["--threads", &threads.to_string()]);
        if let Some(seeds) = flags.seeds {
            child.args(["--seeds", &seeds.to_string()]);
        }
        let ended = child.stderr(Stdio::null()).status()?;
        match ended.code() {
            // One that hangs says so itself.
            Some(0 | HANGS) => {}
            _ => missed.push(mutant.name()),
        }
    }
    ensure!(
        missed.is_empty(),
        "{} of {} mutants were not noticed: {}",
        missed.len(),
        mutants.len(),
        missed.join(", ")
    );
    println!("All {} mutants were noticed.", mutants.len());
    Ok(())
}
