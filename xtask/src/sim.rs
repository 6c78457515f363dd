//! `sim`: random clients on a failing store, each seed a run that comes out the same again.

use std::ffi::OsString;

use anyhow::Result;
use xshell::{Shell, cmd};

use crate::{flags, workspace};

/// How many seeds CI simulates at most, so that a fast machine tries what a slow one does.
pub const CI_SEEDS: &str = "1500";

/// How long CI simulates.
pub const CI_SECONDS: u64 = 120;

/// Runs the seeds that the flags name; all of them hold, or the first that fails is made
/// shorter and printed with its trace.
///
/// # Errors
///
/// If a seed fails, or a deliberate fault is not noticed.
pub fn run(flags: flags::Sim) -> Result<()> {
    let mut args: Vec<OsString> = Vec::new();
    let mut give = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            args.extend([name.into(), value.into()]);
        }
    };
    give("--seeds", flags.seeds.map(|it| it.to_string()));
    give("--from", flags.from.map(|it| it.to_string()));
    give("--time", flags.time.map(|it| it.to_string()));
    give("--seed", flags.seed.map(|it| it.to_string()));
    give("--only", flags.only);
    give("--no-faults", flags.no_faults);
    give("--log", flags.log);
    let has_mutants = flags.mutants || flags.mutant.is_some();
    give("--mutant", flags.mutant);
    if flags.mutants {
        args.push("--mutants".into());
    }
    simulate(&workspace::shell()?, &args, has_mutants)
}

/// As many seeds as CI has time for.
///
/// # Errors
///
/// If a seed fails.
pub fn for_ci(sh: &Shell) -> Result<()> {
    let seconds = CI_SECONDS.to_string();
    let args = ["--seeds", CI_SEEDS, "--time", &seconds].map(OsString::from);
    simulate(sh, &args, false)
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
        "cargo run --quiet --profile sim -p pop-sim {features...} -- {args...}"
    )
    .run()?;
    Ok(())
}
