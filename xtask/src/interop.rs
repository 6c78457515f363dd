//! Drives the official clients of each language.

use std::path::PathBuf;

/// What to run.
#[derive(Debug)]
pub struct Options {
    /// Languages to run; all of them if empty.
    pub languages: Vec<String>,
    /// Stores to run them on.
    pub backends: Vec<String>,
    /// Messages that each client sends.
    pub messages: u32,
    /// The broker's program.
    pub broker_binary: PathBuf,
    /// TLS instead of plain text.
    pub tls: bool,
}

/// Runs them.
///
/// # Errors
///
/// Always: the drivers are not in this tree.
pub fn run(options: &Options) -> anyhow::Result<()> {
    let Options {
        languages,
        backends,
        messages,
        broker_binary,
        tls,
    } = options;
    anyhow::bail!(
        "no driver for the official clients in this tree to send {messages} messages from \
         {languages:?} to {} on {backends:?}, TLS {tls}",
        broker_binary.display()
    )
}
