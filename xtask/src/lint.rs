//! Format, Clippy and documentation, with warnings as errors.

use anyhow::Result;
use xshell::{Shell, cmd};

/// Every backend, the conformance kit and the adapters, so that no line goes unread.
pub const EVERYTHING: &str =
    "pop-broker/full,pop-benches/full,pop-powerloss/full,pop-store/testkit,kv-restore/openraft";

/// The deliberate faults, which are in no other build: what is compiled only with them would
/// rot. Part of the run over everything, so that nothing is built twice for them.
pub const MUTANTS: &str = "pop-cache/mutants,pop-sim/mutants,kv-restore-sim/mutants";

/// As much of [`EVERYTHING`] as rustc builds alone.
pub const RUST_ALONE: &str =
    "pop-broker/sled,pop-benches/sled,pop-store/testkit,kv-restore/openraft";

/// Checks the format.
///
/// # Errors
///
/// If `cargo fmt` would change something.
pub fn format(sh: &Shell) -> Result<()> {
    cmd!(sh, "cargo fmt --all --check").run()?;
    Ok(())
}

/// Runs Clippy over everything with deliberate faults, then over the store and the broker
/// without any, and with no engine at all, where a `cfg` too few leaves something unused.
///
/// # Errors
///
/// At a warning.
pub fn clippy(sh: &Shell) -> Result<()> {
    let deny = ["--", "-D", "warnings"];
    cmd!(
        sh,
        "cargo clippy --workspace --all-targets --features {EVERYTHING},{MUTANTS} {deny...}"
    )
    .run()?;
    cmd!(
        sh,
        "cargo clippy -p pop-store -p pop-broker --no-default-features {deny...}"
    )
    .run()?;
    Ok(())
}

/// Builds the documentation.
///
/// # Errors
///
/// At a warning, such as a link to nowhere.
pub fn docs(sh: &Shell) -> Result<()> {
    let _deny = sh.push_env("RUSTDOCFLAGS", "-D warnings");
    let features = EVERYTHING;
    cmd!(sh, "cargo doc --workspace --no-deps --features {features}").run()?;
    Ok(())
}
