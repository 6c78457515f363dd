//! The program `pop-broker`: serves, and talks to one that serves.

use std::process::ExitCode;

mod admin;
mod cli;
mod config;
mod server;

fn main() -> ExitCode {
    cli::run()
}
