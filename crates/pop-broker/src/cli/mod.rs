//! The command line.

mod backup;
mod bootstrap;
mod client;
mod data;
mod exit;
mod group;
mod handover;
mod migrate;
mod offset;
mod outcome;
mod progress;
mod quarantine;
mod remote;
mod restore;
mod retention;
mod serve;
mod table;
mod topic;
mod transfer;

use std::{
    io::{self, Write},
    process::ExitCode,
};

use clap::{Parser, Subcommand};

pub(crate) use exit::{Exit, Failure};

/// A message queue with POP consumption, for the official Apache RocketMQ 5 clients.
///
/// A consumer receives messages under a lease and acknowledges each one; what is not
/// acknowledged in time comes back, until a dead-letter topic takes it.
#[derive(Debug, Parser)]
#[command(name = "pop-broker", version, after_long_help = AFTER_HELP, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const AFTER_HELP: &str = "\
First steps:
  pop-broker serve --store memory          try it; nothing is kept
  pop-broker serve                         keep messages below ~/.local/share/pop-broker
  pop-broker topic create orders           in another terminal
  pop-broker topic describe orders

`pop-broker help serve` tells how to configure it, and which exit codes there are.";

#[derive(Debug, Subcommand)]
enum Command {
    Serve(Box<serve::Serve>),
    Topic(topic::Topic),
    Group(group::Group),
    Offset(offset::Offset),
    Quarantine(quarantine::Quarantine),
    Retention(retention::Retention),
    Backup(backup::Backup),
    Restore(restore::Restore),
    Migrate(migrate::Migrate),
    Bootstrap(bootstrap::Bootstrap),
    Handover(handover::Handover),
    Data(data::Data),
}

/// Runs the command that was typed.
pub(crate) fn run() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Serve(serve) => serve.run(),
        Command::Topic(topic) => topic.run(),
        Command::Group(group) => group.run(),
        Command::Offset(offset) => offset.run(),
        Command::Quarantine(quarantine) => quarantine.run(),
        Command::Retention(retention) => retention.run(),
        Command::Backup(backup) => backup.run(),
        Command::Restore(restore) => restore.run(),
        Command::Migrate(migrate) => migrate.run(),
        Command::Bootstrap(bootstrap) => bootstrap.run(),
        Command::Handover(handover) => handover.run(),
        Command::Data(data) => data.run(),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            complain(&failure.to_string());
            failure.exit_code()
        }
    }
}

/// Prints to stdout. Whoever closed it does not want to read on.
pub(crate) fn say(text: &str) {
    let mut out = io::stdout().lock();
    let _ = writeln!(out, "{text}").and_then(|()| out.flush());
}

/// Prints a line to stderr.
pub(crate) fn complain(line: &str) {
    let _ = writeln!(io::stderr().lock(), "pop-broker: {line}");
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_and_every_flag_is_explained() {
        check(&Cli::command());
    }

    fn check(command: &clap::Command) {
        assert!(command.get_about().is_some(), "{}", command.get_name());
        for flag in command.get_arguments() {
            let name = flag.get_id();
            assert!(flag.get_help().is_some(), "{} {name}", command.get_name());
        }
        command.get_subcommands().for_each(check);
    }
}
