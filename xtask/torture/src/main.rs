//! Kills a broker with SIGKILL, again and again, while clients send, receive and
//! acknowledge, and judges what they saw. A broken promise ends it with the seed.

#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program for people: what it says is what it is for"
)]

mod broker;
mod clients;
mod history;
mod lane;
mod wire;

use std::{
    path::PathBuf,
    process::ExitCode,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use clap::Parser;
use pop_store::testkit::Random;
use tokio::{
    sync::watch,
    task::JoinSet,
    time::{Instant, sleep, timeout},
};

use crate::{
    broker::{Broker, Program},
    clients::Run,
    history::Verdict,
    lane::Lane,
    wire::INVISIBLE_FOR,
};

/// Of each lane.
const SENDERS: u64 = 4;
const CONSUMERS: u64 = 4;
/// The broker lives at least this long, so that each life has something to lose.
const LIFE_MIN: Duration = Duration::from_millis(200);
/// How long the last message may take to come back and be acknowledged, from the moment
/// that nothing is killed any more: a few times the invisible duration.
const DRAIN_WITHIN: Duration = Duration::from_secs(60);

/// Kills a broker while it works, and checks that it kept its promises.
#[derive(Debug, Parser)]
struct Flags {
    /// The broker's program.
    #[arg(long)]
    broker_binary: PathBuf,
    /// The store that it is started with.
    #[arg(long)]
    store: String,
    /// How often it is killed.
    #[arg(long, default_value_t = 20)]
    kills: u32,
    /// How many synced sends must be answered OK.
    #[arg(long, default_value_t = 10_000)]
    sends: u64,
    /// Its folder; a temporary one if not given, which is kept when a promise was broken.
    #[arg(long)]
    data: Option<PathBuf>,
    /// Chooses the moments of the kills; the machine's timing does the rest.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// After so many seconds the run counts as stuck.
    #[arg(long, default_value_t = 900)]
    seconds_max: u64,
}

fn main() -> ExitCode {
    let flags = Flags::parse();
    let runtime = match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("torture: no runtime: {error}");
            return ExitCode::FAILURE;
        }
    };
    match runtime.block_on(torture(&flags)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!(
                "torture: {} with seed {}: {error:#}",
                flags.store, flags.seed
            );
            ExitCode::FAILURE
        }
    }
}

async fn torture(flags: &Flags) -> Result<()> {
    ensure!(
        flags.kills == 0 || flags.store != "memory",
        "the memory store keeps nothing over a kill: use --kills 0"
    );
    let folder = tempfile::Builder::new().prefix("pop-torture").tempdir()?;
    let data = flags
        .data
        .clone()
        .unwrap_or_else(|| folder.path().to_owned());
    let configured = tempfile::Builder::new().suffix(".toml").tempfile()?;
    std::fs::write(configured.path(), Lane::configuration())?;
    let program = Program {
        binary: flags.broker_binary.clone(),
        store: flags.store.clone(),
        data,
        config: configured.path().to_owned(),
    };
    let limit = Duration::from_secs(flags.seconds_max);
    let outcome = match timeout(limit, kill_and_judge(flags, &program)).await {
        Ok(outcome) => outcome,
        Err(_) => Err(anyhow::anyhow!("P5: not at an end after {limit:?}")),
    };
    if outcome.is_err() && flags.data.is_none() {
        let kept = folder.keep();
        eprintln!("torture: the folder is kept: {}", kept.display());
    }
    outcome
}

async fn kill_and_judge(flags: &Flags, program: &Program) -> Result<()> {
    let started = Instant::now();
    let run = Arc::new(Run::new(flags.sends));
    let mut random = Random::new(flags.seed);
    let (alive, living) = watch::channel(None);
    let mut clients = JoinSet::new();
    for lane in Lane::ALL {
        for _ in 0..SENDERS {
            let (run, living) = (Arc::clone(&run), living.clone());
            clients.spawn(clients::send(run, lane, living, random.next_u64()));
        }
        for _ in 0..CONSUMERS {
            let (run, living) = (Arc::clone(&run), living.clone());
            clients.spawn(clients::consume(run, lane, living, random.next_u64()));
        }
    }

    let mut moments: Vec<u64> = (0..flags.kills)
        .map(|_| random.below(flags.sends.max(1)))
        .collect();
    moments.sort_unstable();
    let mut slowest_start = Duration::ZERO;
    for (life, moment) in moments.iter().enumerate() {
        let mut broker = start(program, &mut slowest_start).await?;
        alive.send_replace(Some((life, broker.channel.clone())));
        until_sent(&run, &mut broker, *moment).await?;
        sleep(LIFE_MIN + Duration::from_micros(random.below(100_000))).await;
        broker.check_alive()?;
        run.history.lock().killed(life);
        broker.kill().await?;
        alive.send_replace(None);
    }
    let mut broker = start(program, &mut slowest_start).await?;
    alive.send_replace(Some((moments.len(), broker.channel.clone())));
    until_sent(&run, &mut broker, flags.sends).await?;
    let sent_after = started.elapsed();
    drain(&run, &mut broker).await?;
    // Nobody waits on a broker any more: every client ends.
    clients.shutdown().await;
    broker.kill().await?;

    let verdict = run.history.lock().judge();
    println!(
        "torture: {}, {} kills, seed {}: {verdict}; slowest start {slowest_start:.1?}, \
         {:.0} sends/s, {:.1?} in all",
        flags.store,
        flags.kills,
        flags.seed,
        per_second(flags.sends, sent_after),
        started.elapsed()
    );
    fail_on(&verdict)
}

async fn start(program: &Program, slowest: &mut Duration) -> Result<Broker> {
    let broker = program.start().await?;
    *slowest = (*slowest).max(broker.ready_after);
    wire::ask_route(broker.channel.clone())
        .await
        .context("a broker that says it is ready does not answer")?;
    Ok(broker)
}

async fn until_sent(run: &Run, broker: &mut Broker, count: u64) -> Result<()> {
    while run.sends_ok.load(Ordering::Acquire) < count {
        broker.check_alive()?;
        sleep(Duration::from_millis(5)).await;
    }
    Ok(())
}

/// Waits until everything is acknowledged, and then once more as long as a lease takes:
/// what comes back in spite of its acknowledgement comes then.
async fn drain(run: &Run, broker: &mut Broker) -> Result<()> {
    let until = Instant::now() + DRAIN_WITHIN;
    while run.history.lock().open_count() > 0 && Instant::now() < until {
        broker.check_alive()?;
        sleep(Duration::from_millis(50)).await;
    }
    let longest = INVISIBLE_FOR.into_iter().max().unwrap_or_default();
    sleep(longest + Duration::from_secs(1)).await;
    broker.check_alive()
}

fn fail_on(verdict: &Verdict) -> Result<()> {
    const SHOWN_MAX: usize = 20;
    for violation in verdict.violations.iter().take(SHOWN_MAX) {
        eprintln!("torture: {violation}");
    }
    match verdict.violations.len() {
        0 => Ok(()),
        count => bail!("{count} promises broken"),
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a figure for people, far below the limits of a float"
)]
fn per_second(count: u64, time: Duration) -> f64 {
    count as f64 / time.as_secs_f64()
}
