//! Backs up, restores and migrates what a real broker left, with the real program, and
//! checks that every copy has the same rows and gives out every message that it must.
//!
//! With `--kills` the program is killed with SIGKILL at random moments, and started again
//! until it is done; and so is the broker that it fetches from, where one serves.

#![allow(clippy::print_stdout, reason = "a checker reports to who started it")]

mod action;
mod broker;
mod clients;
mod drain;
mod fates;
mod fill;
mod handover;
mod kills;
mod ledger;
mod live;
mod offline;
mod pairs;
mod program;
mod served;

use std::path::PathBuf;

use anyhow::{Result, ensure};
use clap::Parser;
use pop_broker::stores::Backend;

use crate::action::Action;

/// Moves the content of brokers between all stores, and checks that nothing is lost.
#[derive(Debug, Parser)]
struct Args {
    /// The program, built with all stores that are named
    #[arg(long)]
    broker_binary: PathBuf,

    /// The stores, each of which is moved to each
    #[arg(long, value_delimiter = ',', default_value = "fjall,rocksdb,sled")]
    stores: Vec<Backend>,

    /// Kill so many times, instead of moving each store to each once
    #[arg(long)]
    kills: Option<u32>,

    /// What is killed, in turn; everything if absent
    #[arg(long, value_delimiter = ',', requires = "kills")]
    action: Vec<Action>,

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
        Some(kills) => kills::check(&program, &args.stores, &args.action, kills, args.seed).await,
    }
}
