//! `run`: the broker in the foreground.

use std::process::Command;

use anyhow::Result;
use xshell::cmd;

use crate::backends::Backend;
use crate::{flags, workspace};

/// Builds the broker with one store and serves until it is stopped.
///
/// # Errors
///
/// If the build fails, or the broker ends with an error.
pub fn run(flags: flags::Run) -> Result<()> {
    let sh = workspace::shell()?;
    let store = flags.store.unwrap_or(Backend::Fjall);
    let broker = workspace::broker(&sh, &[store])?;
    let store = store.name();
    let args = flags.args;
    let serve = cmd!(sh, "{broker} serve --store {store} {args...}");
    println!("$ {serve}");
    become_process(serve.into())
}

/// Puts the broker in the place of this process, so that a signal reaches it alone and its
/// clean shutdown is waited for.
#[cfg(unix)]
fn become_process(mut command: Command) -> Result<()> {
    use std::os::unix::process::CommandExt;
    Err(command.exec().into())
}

#[cfg(not(unix))]
fn become_process(mut command: Command) -> Result<()> {
    let status = command.status()?;
    anyhow::ensure!(status.success(), "the broker ended with {status}");
    Ok(())
}
