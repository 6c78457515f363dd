//! `ci`: what decides whether a change is good. Cheap checks come first, so that a slip is
//! found in seconds; engines and clients come last.

use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use xshell::{Shell, cmd};

use crate::backends::{Backend, features};
use crate::steps::Steps;
use crate::{
    clients, deny, layers, lint, native, powerloss, readme, restore_check, restore_sim, sim, test,
    tidy, torture, workspace,
};

/// On the durable stores, where every send waits for the disk. The shapes of the messages
/// repeat after far fewer.
const INTEROP_MESSAGES_DURABLE: u32 = 300;

/// Through TLS, where only the transport differs.
const INTEROP_MESSAGES_TLS: u32 = 50;

/// Enough to die once while filling and once while recovering.
const TORTURE_KILLS: u32 = 3;

/// Synced sends spread over the kills.
const TORTURE_SENDS: u32 = 1_000;

/// Enough to meet each of [`RESTORE_ACTIONS`].
const RESTORE_KILLS: u32 = 8;

/// Those that take turns within seconds. What has a broker that serves is for longer runs.
const RESTORE_ACTIONS: [&str; 3] = ["backup", "restore", "migrate"];

/// Runs all steps.
///
/// # Errors
///
/// At the first step that fails.
pub fn run() -> Result<()> {
    let sh = workspace::shell()?;
    let mut steps = Steps::start();
    steps.run("format", "cargo fmt --all --check", || lint::format(&sh))?;
    steps.run("layers", "cargo xtask layers", layers::run)?;
    steps.run("tidy", "cargo xtask tidy", tidy::run)?;
    if deny::is_installed(&sh) {
        let alone = "cargo deny --config .config/deny.toml check bans licenses sources";
        steps.run("licences and sources", alone, || deny::run(&sh))?;
    } else {
        steps.skip("licences and sources", "cargo-deny is not installed");
    }
    steps.run(
        "what RocksDB needs",
        "cargo xtask test --backend rocksdb",
        || native::require(&sh, &Backend::ALL),
    )?;
    let alone = format!(
        "cargo clippy --workspace --all-targets --features {},{} -- -D warnings",
        lint::EVERYTHING,
        lint::MUTANTS
    );
    steps.run("clippy", &alone, || lint::clippy(&sh))?;
    let alone = format!(
        "RUSTDOCFLAGS=-Dwarnings cargo doc --workspace --no-deps --features {}",
        lint::EVERYTHING
    );
    steps.run("docs", &alone, || lint::docs(&sh))?;
    tests(&sh, &mut steps)?;
    let alone = format!(
        "cargo xtask sim --seeds {} --time {}",
        sim::CI_SEEDS,
        sim::CI_SECONDS
    );
    steps.run("simulation", &alone, || sim::for_ci(&sh))?;
    let alone = format!(
        "cargo xtask restore-sim --seeds {} && cargo xtask restore-sim --driver --seeds {}",
        restore_sim::CI_SEEDS,
        restore_sim::CI_SEEDS_OF_TASKS
    );
    steps.run("simulation of snapshot sessions", &alone, || {
        restore_sim::for_ci(&sh)
    })?;
    readme_commands(&sh, &mut steps)?;
    // Built once for all that follows, which only chooses by `--store`.
    let mut broker = PathBuf::new();
    let alone = format!(
        "cargo build -p pop-broker --features {}",
        features(&Backend::ALL)
    );
    steps.run("broker with every backend", &alone, || {
        broker = workspace::broker(&sh, &Backend::ALL)?;
        Ok(())
    })?;
    interop(&mut steps, &broker)?;
    copies(&sh, &mut steps, &broker)?;
    torture(&mut steps, &broker)?;
    power_cuts(&sh, &mut steps)?;
    steps.finish();
    Ok(())
}

fn tests(sh: &Shell, steps: &mut Steps) -> Result<()> {
    steps.run("tests of every other crate", "cargo xtask test", || {
        test::others(sh)
    })?;
    for backend in Backend::ALL {
        let alone = format!("cargo xtask test --backend {backend}");
        steps.run(&format!("tests on {backend}"), &alone, || {
            test::on(sh, backend)
        })?;
    }
    Ok(())
}

/// Types what the README tells a newcomer to type. `run` never ends by itself, and `test`
/// and `ci` are the steps around this one; everything else is run as it stands there.
fn readme_commands(sh: &Shell, steps: &mut Steps) -> Result<()> {
    let commands = readme::commands(&sh.read_file("README.md")?);
    ensure!(
        commands
            .iter()
            .any(|command| command.starts_with("cargo xtask demo")),
        "README.md shows no `cargo xtask demo`, which is a newcomer's first step"
    );
    for command in commands {
        let words: Vec<_> = command.split_whitespace().collect();
        if words.get(2).is_some_and(|&name| name == "demo") {
            let args = words.iter().skip(1);
            steps.run(&format!("README: {command}"), &command, || {
                Ok(cmd!(sh, "cargo {args...}").run()?)
            })?;
        }
    }
    Ok(())
}

fn interop(steps: &mut Steps, broker: &Path) -> Result<()> {
    for backend in Backend::ALL {
        let messages = if backend.is_durable() {
            INTEROP_MESSAGES_DURABLE
        } else {
            clients::MESSAGES
        };
        let alone = format!("cargo xtask interop --backend {backend} --messages {messages}");
        steps.run(&format!("official clients on {backend}"), &alone, || {
            clients::round_trip(
                broker.to_path_buf(),
                Vec::new(),
                &[backend],
                messages,
                false,
            )
        })?;
    }
    let messages = INTEROP_MESSAGES_TLS;
    let alone = format!("cargo xtask interop --backend memory --messages {messages} --tls");
    steps.run("official clients through TLS", &alone, || {
        let memory = [Backend::Memory];
        clients::round_trip(broker.to_path_buf(), Vec::new(), &memory, messages, true)
    })
}

fn copies(sh: &Shell, steps: &mut Steps, broker: &Path) -> Result<()> {
    let mut checker = PathBuf::new();
    let alone = format!(
        "cargo build -p pop-restore-check --features {}",
        features(&Backend::ALL)
    );
    steps.run("checker of copies", &alone, || {
        checker = restore_check::build(sh, &Backend::ALL)?;
        Ok(())
    })?;
    steps.run(
        "backup, restore and migrate between all stores",
        "cargo xtask restore-check",
        || restore_check::check(sh, &checker, broker, &Backend::ALL, None, 1),
    )?;
    let actions = RESTORE_ACTIONS.map(str::to_owned);
    let kills = restore_check::Kills {
        count: RESTORE_KILLS,
        actions: &actions,
    };
    let alone = format!(
        "cargo xtask restore-check --kills {RESTORE_KILLS} --action {}",
        actions.join(" --action ")
    );
    steps.run("kill -9 of backup, restore and migrate", &alone, || {
        restore_check::check(sh, &checker, broker, &Backend::ALL, Some(kills), 1)
    })
}

fn torture(steps: &mut Steps, broker: &Path) -> Result<()> {
    for backend in Backend::ALL
        .into_iter()
        .filter(|backend| backend.is_durable())
    {
        let alone = format!(
            "cargo xtask torture --backend {backend} --kills {TORTURE_KILLS} --ops {TORTURE_SENDS}"
        );
        steps.run(&format!("kill -9 on {backend}"), &alone, || {
            torture::kill(broker, backend, TORTURE_KILLS, TORTURE_SENDS)
        })?;
    }
    Ok(())
}

fn power_cuts(sh: &Shell, steps: &mut Steps) -> Result<()> {
    if !powerloss::is_possible() {
        steps.skip("power cuts", "the recorder is for Linux");
        return Ok(());
    }
    let mut programs = None;
    let alone = "cargo build -p pop-powerloss -p pop-powerloss-recorder --features full";
    steps.run("recorder of power cuts", alone, || {
        programs = Some(powerloss::build(sh, &Backend::ALL)?);
        Ok(())
    })?;
    let Some(programs) = programs else {
        return Ok(());
    };
    for backend in Backend::ALL
        .into_iter()
        .filter(|backend| backend.is_durable())
    {
        let alone = powerloss::ci_runs(backend)
            .map(|run| format!("cargo xtask powerloss --backend {backend} {run}"))
            .collect::<Vec<_>>()
            .join(" && ");
        steps.run(&format!("power cuts on {backend}"), &alone, || {
            programs.cut(sh, backend)
        })?;
    }
    steps.run(
        "power cuts without syncs",
        "cargo xtask powerloss --backend all --convict",
        || programs.convict(sh, &Backend::ALL),
    )
}
