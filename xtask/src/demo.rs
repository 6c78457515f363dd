//! `demo`: a first message goes through a broker of its own process.

use anyhow::Result;
use xshell::cmd;

use crate::backends::{Backend, broker_features};
use crate::workspace;

/// Builds the broker and the example that talks to it, and runs the example.
///
/// # Errors
///
/// If a build fails, or a step of the example doesn't show what it should.
pub fn run(store: Option<Backend>) -> Result<()> {
    let sh = workspace::shell()?;
    let store = store.unwrap_or(Backend::Fjall);
    let broker = workspace::broker(&sh, &[store])?;
    let features = broker_features(&[store]);
    let store = store.name();
    cmd!(
        sh,
        "cargo run -p pop-broker --no-default-features --features {features} --example demo
         -- --broker-binary {broker} --store {store}"
    )
    .run()?;
    Ok(())
}
