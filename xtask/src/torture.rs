//! `torture`: kills the broker while it works, and checks that it kept its promises.

use std::path::Path;

use anyhow::{Result, bail};
use xshell::cmd;

use crate::backends::{Backend, Selection};
use crate::{flags, workspace};

/// Kills per store, unless told otherwise.
const KILLS: u32 = 20;

/// Synced sends per store, unless told otherwise.
const SENDS: u32 = 10_000;

/// Tortures the stores that the flags name.
///
/// # Errors
///
/// If the build fails, or a promise was broken.
pub fn run(flags: flags::Torture) -> Result<()> {
    let backends = match flags.backend.unwrap_or(Selection::One(Backend::Fjall)) {
        Selection::One(backend) if !backend.is_durable() => {
            bail!("the {backend} store keeps nothing, so a kill of it proves nothing")
        }
        selection => selection.backends(),
    };
    let broker = workspace::broker(&workspace::shell()?, &backends)?;
    let (kills, sends) = (flags.kills.unwrap_or(KILLS), flags.ops.unwrap_or(SENDS));
    for backend in backends.into_iter().filter(|backend| backend.is_durable()) {
        kill(&broker, backend, kills, sends)?;
    }
    Ok(())
}

/// Kills `broker` on `backend` `kills` times, spread over `sends` synced sends.
///
/// # Errors
///
/// If a promise was broken.
pub fn kill(broker: &Path, backend: Backend, kills: u32, sends: u32) -> Result<()> {
    let sh = workspace::shell()?;
    let store = backend.name();
    let (kills, sends) = (kills.to_string(), sends.to_string());
    cmd!(
        sh,
        "cargo run -p pop-torture -- --broker-binary {broker} --store {store}
         --kills {kills} --sends {sends}"
    )
    .run()?;
    Ok(())
}
