//! Cuts the power of a store at chosen moments, on paper, and checks what is left.
//!
//! A workload runs under the recorder, which writes down every change of the store's
//! folder and every promise. From the record, the folder is laid out as the disk may be
//! after a power cut at any moment; the real engine opens it, and what was promised must
//! be there.

#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program for people: what it says is what it is for"
)]

mod broker;
mod check;
mod cut;
mod disk;
mod judge;
mod litter;
mod marks;
mod raw;
mod record;
mod replace;
mod run;
mod stores;
mod work;

use std::{path::PathBuf, process::ExitCode, time::Duration};

use anyhow::Result;
use clap::{Args, Parser, Subcommand};
use pop_broker::stores::Backend;

use crate::{disk::Model, marks::Marks, work::Workload};

#[derive(Debug, Parser)]
#[command(about = "Cuts the power of a store, on paper, and checks what is left")]
struct Flags {
    #[command(subcommand)]
    command: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Records a workload, or takes a record, and checks cuts in it.
    Check(CheckFlags),
    /// Is the workload: started by `check` under the recorder.
    Work(WorkFlags),
}

#[derive(Debug, Args)]
struct CheckFlags {
    /// The store.
    #[arg(long)]
    store: Backend,
    /// The preloaded library.
    #[arg(long)]
    recorder: Option<PathBuf>,
    /// Checks this record, made before, instead of making one.
    #[arg(long)]
    record: Option<PathBuf>,
    /// What runs; each if absent.
    #[arg(long)]
    workload: Vec<Workload>,
    /// For how long it runs; `replace` runs until it is done.
    #[arg(long, default_value_t = 2_000)]
    millis: u64,
    /// How many cuts, per model.
    #[arg(long, default_value_t = 200)]
    cuts: usize,
    /// Goes through the record step by step instead: cuts between every two of its writes,
    /// returns of syncs, changes of names and marks.
    #[arg(long, conflicts_with = "cuts")]
    each_step: bool,
    /// With `--each-step`: how many layouts are drawn before a sync returns and after a write.
    #[arg(long, default_value_t = 2, requires = "each_step")]
    layouts: usize,
    /// With `--each-step`: after how many writes it cuts, at most, besides those of a switch
    /// and those before a sync returns.
    #[arg(long, default_value_t = 500, requires = "each_step")]
    writes: usize,
    /// Counts what breaks by a refusal that says this apart, unless it is more than one cut in
    /// 50.
    #[arg(long)]
    known: Option<String>,
    /// Cuts only within appends to a file whose name begins with this.
    #[arg(long, conflicts_with = "each_step")]
    within_appends: Option<String>,
    /// After how many of them the recovery is recorded, and cut in its turn.
    #[arg(long, default_value_t = 3)]
    recoveries: usize,
    /// Chooses the cuts and what survives them.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// What the file system promises; each if absent.
    #[arg(long)]
    model: Vec<Model>,
    /// Counts `fdatasync` of files with this ending for nothing.
    #[arg(long)]
    ignore_fdatasync: Vec<String>,
    /// Counts `sync_file_range` as a sync. It is none: a wrong checker, to check the check.
    #[arg(long)]
    range_counts: bool,
    /// Judges what the engine opens by itself, without what the store looks at before.
    #[arg(long)]
    engine_alone: bool,
    /// Fails if no promise is broken: for stores and checkers that are wrong on purpose.
    #[arg(long)]
    must_convict: bool,
    /// How many cuts are checked at a time.
    #[arg(long, default_value_t = 2)]
    threads: usize,
}

#[derive(Debug, Args)]
struct WorkFlags {
    #[arg(long)]
    store: Backend,
    #[arg(long)]
    workload: Workload,
    #[arg(long)]
    folder: PathBuf,
    #[arg(long)]
    marks: PathBuf,
    #[arg(long)]
    millis: u64,
    /// Opens what is there and closes it, and nothing else.
    #[arg(long)]
    recover: bool,
}

fn main() -> ExitCode {
    let outcome = match Flags::parse().command {
        Action::Check(flags) => {
            // A panic after a cut is a verdict, and told as one.
            std::panic::set_hook(Box::new(|_| {}));
            run::check(&flags)
        }
        Action::Work(flags) => work(&flags),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("powerloss: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn work(flags: &WorkFlags) -> Result<()> {
    let marks = Marks::open(&flags.marks)?;
    let time = Duration::from_millis(flags.millis);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        if flags.recover {
            return flags.workload.recover(flags.store, &flags.folder).await;
        }
        flags
            .workload
            .run(flags.store, &flags.folder, marks, time)
            .await
    })
}
