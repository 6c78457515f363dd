//! The only entry to building, testing, running and checking this workspace.
//!
//! `cargo xtask --help` explains every command. One file holds one command; this one only
//! dispatches. What decides whether a change is good lives here and not in a workflow
//! file, so that a machine and a person run the same thing.

#![allow(
    unreachable_pub,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program exports nothing, and its output is what it is for"
)]

mod backends;
mod bench;
mod ci;
mod clients;
mod demo;
mod deny;
mod fix;
mod flags;
mod interop;
mod layers;
mod lint;
mod native;
mod powerloss;
mod readme;
mod restore_check;
mod restore_sim;
mod run;
mod scenarios;
mod sim;
mod steps;
mod test;
mod tidy;
mod torture;
mod workspace;

use std::process::ExitCode;

use flags::{Xtask, XtaskCmd};

fn main() -> ExitCode {
    match dispatch(Xtask::from_env_or_exit().subcommand) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("\nerror: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn dispatch(command: XtaskCmd) -> anyhow::Result<()> {
    match command {
        XtaskCmd::Help(_) => println!("{}", Xtask::help()),
        XtaskCmd::Run(flags) => run::run(flags)?,
        XtaskCmd::Demo(flags) => demo::run(flags.store)?,
        XtaskCmd::Test(flags) => test::run(flags.backend)?,
        XtaskCmd::Interop(flags) => clients::run(flags)?,
        XtaskCmd::Sim(flags) => sim::run(flags)?,
        XtaskCmd::RestoreSim(flags) => restore_sim::run(flags)?,
        XtaskCmd::RestoreCheck(flags) => restore_check::run(flags)?,
        XtaskCmd::Torture(flags) => torture::run(flags)?,
        XtaskCmd::Powerloss(flags) => powerloss::run(flags)?,
        XtaskCmd::Bench(flags) => bench::run(flags)?,
        XtaskCmd::Layers(_) => layers::run()?,
        XtaskCmd::Tidy(_) => tidy::run()?,
        XtaskCmd::Fix(_) => fix::run()?,
        XtaskCmd::Ci(_) => ci::run()?,
    }
    Ok(())
}
