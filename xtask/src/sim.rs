//! `sim`: random clients on a failing store, each seed a run that comes out the same again.

use anyhow::Result;
use xshell::cmd;

use crate::{flags, workspace};

/// Runs the seeds that the flags name; all of them hold, or the first that fails is
/// printed with its trace.
///
/// # Errors
///
/// If a seed fails.
pub fn run(flags: flags::Sim) -> Result<()> {
    let sh = workspace::shell()?;
    if let Some(seed) = flags.seed {
        sh.set_var("POP_SEED", seed.to_string());
    }
    if let Some(seeds) = flags.seeds {
        sh.set_var("POP_SEEDS", seeds.to_string());
    }
    // Alone, since what it prints of a failure is long.
    cmd!(
        sh,
        "cargo test -p pop-broker --no-default-features --test it random:: -- --nocapture"
    )
    .run()?;
    Ok(())
}
