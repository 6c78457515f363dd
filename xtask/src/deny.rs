//! Licences, sources and banned crates, by cargo-deny.

use anyhow::Result;
use xshell::{Shell, cmd};

/// Whether cargo-deny is installed. It takes minutes to build, so it is never installed
/// from here.
pub fn is_installed(sh: &Shell) -> bool {
    cmd!(sh, "cargo deny --version")
        .quiet()
        .ignore_stdout()
        .ignore_stderr()
        .run()
        .is_ok()
}

/// Checks what Cargo.lock brings in.
///
/// # Errors
///
/// At a licence, a source or a crate that `.config/deny.toml` doesn't allow.
pub fn run(sh: &Shell) -> Result<()> {
    cmd!(
        sh,
        "cargo deny --config .config/deny.toml check bans licenses sources"
    )
    .run()?;
    Ok(())
}
