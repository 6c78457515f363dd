//! The log, on stderr: stdout belongs to the `ready` line.

use std::io::{self, IsTerminal};

use tracing_subscriber::{EnvFilter, fmt};

use crate::config::LogFormat;

/// Starts logging for the whole process.
pub(crate) fn start(filter: EnvFilter, format: LogFormat) {
    let log = fmt()
        .with_env_filter(filter)
        .with_ansi(io::stderr().is_terminal())
        .with_writer(io::stderr);
    match format {
        LogFormat::Text => log.init(),
        LogFormat::Json => log.json().init(),
    }
}
