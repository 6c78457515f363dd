//! The program `pop-broker`: serves, and talks to one that serves.

use std::process::ExitCode;

mod admin;
mod cli;
mod config;
mod server;

/// A message is allocated on one thread and freed on another, which costs the allocator of
/// glibc a fifth more CPU, and now and then much more.
#[cfg(feature = "mimalloc")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    cli::run()
}
