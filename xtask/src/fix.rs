//! `fix`: the only command that writes.

use anyhow::Result;
use xshell::cmd;

use crate::lint::{EVERYTHING, RUST_ALONE};
use crate::{native, workspace};

/// Formats, and applies what Clippy can repair.
///
/// # Errors
///
/// If the code doesn't compile.
pub fn run() -> Result<()> {
    let sh = workspace::shell()?;
    let features = if native::is_ready(&sh) {
        EVERYTHING
    } else {
        println!("RocksDB can't be built here, so its backend is formatted but not repaired.");
        RUST_ALONE
    };
    cmd!(
        sh,
        "cargo clippy --fix --allow-dirty --allow-staged --workspace --all-targets
         --features {features}"
    )
    .run()?;
    // Last, because a repair may leave a line too long.
    cmd!(sh, "cargo fmt --all").run()?;
    Ok(())
}
