//! `restore-check`: copies between all stores, made by the real program and looked at.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use xshell::{Shell, cmd};

use crate::backends::{Backend, features};
use crate::{flags, native, workspace};

/// Checks the stores that the flags name.
///
/// # Errors
///
/// If the build fails, or a copy is not what it must be.
pub fn run(flags: flags::RestoreCheck) -> Result<()> {
    let backends = match flags.backend.as_slice() {
        [] => Backend::ALL.to_vec(),
        named => named.to_vec(),
    };
    ensure!(
        backends.iter().any(|backend| backend.is_durable()),
        "the memory store keeps nothing that could be copied: take fjall, sled or rocksdb"
    );
    let sh = workspace::shell()?;
    let broker = workspace::broker(&sh, &backends)?;
    let checker = build(&sh, &backends)?;
    let seed = flags.seed.unwrap_or(1);
    let kills = flags.kills.map(|count| Kills {
        count,
        actions: &flags.action,
    });
    ensure!(
        kills.is_some() || flags.action.is_empty(),
        "--action says what is killed: add --kills COUNT"
    );
    check(&sh, &checker, &broker, &backends, kills, seed)
}

/// Builds the checker with `backends`.
///
/// # Errors
///
/// If a backend needs something that isn't installed, or the build fails.
pub fn build(sh: &Shell, backends: &[Backend]) -> Result<PathBuf> {
    native::require(sh, backends)?;
    let features = features(backends);
    let messages = cmd!(
        sh,
        "cargo build -p pop-restore-check --no-default-features --features {features}
         --message-format json-render-diagnostics"
    )
    .read()?;
    let checker = workspace::built(&messages, "pop-restore-check");
    let checker = checker.into_iter().next();
    checker.context("cargo built the checker but named no program")
}

/// What is killed, and how many times.
#[derive(Clone, Copy, Debug)]
pub struct Kills<'a> {
    /// So many times.
    pub count: u32,
    /// As the checker calls them; all if there are none.
    pub actions: &'a [String],
}

/// Moves each of the durable stores to each, or kills that.
///
/// # Errors
///
/// If a copy is not what it must be.
pub fn check(
    sh: &Shell,
    checker: &Path,
    broker: &Path,
    backends: &[Backend],
    kills: Option<Kills>,
    seed: u64,
) -> Result<()> {
    let durable = backends.iter().filter(|backend| backend.is_durable());
    let stores: Vec<_> = durable.map(|backend| backend.name()).collect();
    let stores = stores.join(",");
    let kills = kills.map_or_else(Vec::new, |kills| {
        let mut words = vec!["--kills".to_owned(), kills.count.to_string()];
        let actions = kills.actions.iter();
        words.extend(actions.flat_map(|it| ["--action".to_owned(), it.clone()]));
        words
    });
    let seed = seed.to_string();
    cmd!(
        sh,
        "{checker} --broker-binary {broker} --stores {stores} --seed {seed} {kills...}"
    )
    .run()?;
    Ok(())
}
