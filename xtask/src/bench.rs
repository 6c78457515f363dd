//! `bench`: what each layer costs.

use anyhow::Result;
use xshell::cmd;

use crate::backends::{Backend, Selection, features};
use crate::{flags, native, workspace};

/// Runs one benchmark or all, on memory and the backends that the flags name.
///
/// # Errors
///
/// If a backend needs something that isn't installed, or a benchmark fails.
pub fn run(flags: flags::Bench) -> Result<()> {
    let sh = workspace::shell()?;
    let backends = flags
        .backend
        .unwrap_or(Selection::One(Backend::Fjall))
        .backends();
    native::require(&sh, &backends)?;
    let features = features(&backends);
    // The pattern leaves the library target out, which has tests and no benchmarks.
    let name = flags.name.unwrap_or_else(|| "*".to_owned());
    cmd!(
        sh,
        "cargo bench -p pop-benches --no-default-features --features {features} --bench {name}"
    )
    .run()?;
    Ok(())
}
