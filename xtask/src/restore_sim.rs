//! `restore-sim`: sessions that move snapshots, in a world where everything fails that can.

use std::ffi::OsString;

use anyhow::Result;
use xshell::{Shell, cmd};

use crate::{flags, workspace};

/// How many schedules CI runs: a minute of them on two slow cores.
pub const CI_SEEDS: &str = "100000";

/// How many of them with the real tasks, which take ten times as long.
pub const CI_SEEDS_OF_TASKS: &str = "10000";

/// Runs the seeds that the flags name.
///
/// # Errors
///
/// If a schedule breaks an invariant, or a deliberate fault is not noticed.
pub fn run(flags: flags::RestoreSim) -> Result<()> {
    let mut args: Vec<OsString> = Vec::new();
    let mut give = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            args.extend([name.into(), value.into()]);
        }
    };
    give("--seeds", flags.seeds.map(|it| it.to_string()));
    give("--from", flags.from.map(|it| it.to_string()));
    give("--time", flags.time.map(|it| it.to_string()));
    give("--jobs", flags.jobs.map(|it| it.to_string()));
    give("--seed", flags.seed.map(|it| it.to_string()));
    let has_mutants = flags.mutants || flags.mutant.is_some();
    give("--mutant", flags.mutant);
    if flags.mutants {
        args.push("--mutants".into());
    }
    if flags.driver {
        args.push("--driver".into());
    }
    simulate(&workspace::shell()?, &args, has_mutants)
}

/// The schedules that CI runs.
///
/// # Errors
///
/// If one of them breaks an invariant.
pub fn for_ci(sh: &Shell) -> Result<()> {
    let machines = ["--seeds", CI_SEEDS].map(OsString::from);
    simulate(sh, &machines, false)?;
    let tasks = ["--driver", "--seeds", CI_SEEDS_OF_TASKS].map(OsString::from);
    simulate(sh, &tasks, false)
}

fn simulate(sh: &Shell, args: &[OsString], has_mutants: bool) -> Result<()> {
    // Alone, so that the faults are in no build but this one.
    let features: &[&str] = if has_mutants {
        &["--features", "mutants"]
    } else {
        &[]
    };
    cmd!(
        sh,
        "cargo run --quiet --profile sim -p kv-restore-sim {features...} -- {args...}"
    )
    .run()?;
    Ok(())
}
