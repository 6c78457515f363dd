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
    // Only the benchmarks: the library target has none, and would not know their flags.
    let name = flags
        .name
        .map_or_else(|| vec!["--benches".into()], |it| vec!["--bench".into(), it]);
    cmd!(
        sh,
        "cargo bench -p pop-benches --no-default-features --features {features} {name...}"
    )
    .run()?;
    Ok(())
}
