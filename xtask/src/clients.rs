//! `interop`: builds the broker and hands it to the official clients.

use std::path::PathBuf;

use anyhow::Result;

use crate::backends::Backend;
use crate::{flags, interop, workspace};

/// Messages that each client sends, unless told otherwise.
pub const MESSAGES: u32 = 1_000;

/// Runs the official clients against the stores that the flags name.
///
/// # Errors
///
/// If the build fails, or a client doesn't see what it should.
pub fn run(flags: flags::Interop) -> Result<()> {
    let backends = match flags.backend.as_slice() {
        [] => vec![Backend::Fjall],
        named => named.to_vec(),
    };
    let broker = workspace::broker(&workspace::shell()?, &backends)?;
    let messages = flags.messages.unwrap_or(MESSAGES);
    round_trip(broker, flags.lang, &backends, messages, flags.tls)
}

/// Runs `languages` (all if empty) against `broker` on each of `backends`.
///
/// # Errors
///
/// If a client doesn't see what it should.
pub fn round_trip(
    broker_binary: PathBuf,
    languages: Vec<String>,
    backends: &[Backend],
    messages: u32,
    tls: bool,
) -> Result<()> {
    let backends = backends
        .iter()
        .map(|backend| backend.name().to_owned())
        .collect();
    interop::run(&interop::Options {
        languages,
        backends,
        messages,
        broker_binary,
        tls,
    })
}
