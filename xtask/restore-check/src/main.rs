//! Backs up, restores and migrates what a real broker left, with the real program, and
//! checks that every copy has the same rows and gives out every message that it must.
//!
//! With `--kills` the program is killed with SIGKILL at random moments, and started again
//! until it is done.

#![allow(clippy::print_stdout, reason = "a checker reports to who started it")]

mod broker;
mod drain;
mod fill;
mod kills;
mod ledger;
mod pairs;
mod program;

use std::path::PathBuf;

use anyhow::{Result, ensure};
use clap::Parser;
use pop_broker::stores::Backend;

/// Moves the content of brokers between all stores, and checks that nothing is lost.
#[derive(Debug, Parser)]
struct Args {
    /// The program, built with all stores that are named
    #[arg(long)]
    broker_binary: PathBuf,

    /// The stores, each of which is moved to each
    #[arg(long, value_delimiter = ',', default_value = "fjall,rocksdb,sled")]
    stores: Vec<Backend>,

    /// Kill the commands so many times, instead of moving each store to each once
    #[arg(long)]
    kills: Option<u32>,

    /// What the moments of the kills follow from
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[tokio::main]
async fn main() -> Result<()> {
    let args = Args::parse();
    ensure!(!args.stores.is_empty(), "no store is named");
    let program = program::Program::new(args.broker_binary);
    match args.kills {
        None => pairs::check(&program, &args.stores).await,
        Some(kills) => kills::check(&program, &args.stores, kills, args.seed).await,
    }
}
