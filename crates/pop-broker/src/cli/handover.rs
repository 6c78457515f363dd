//! `handover`: what is left to do by hand when one was cut off.

use std::sync::Arc;

use clap::{Args, Subcommand};
use pop_broker::{
    OpenStore,
    handover::operator::{self, Step},
    transfer::Location,
};

use super::{
    Failure,
    exit::exit_codes,
    say,
    transfer::{ENVIRONMENT, block_on},
};

/// Finishes a handover that was cut off, or takes a folder back that was handed over.
///
/// `bootstrap --handover` needs none of it as long as both sides live: running it again goes
/// on where it was. If the source is down and its folder is retired, `serve` on that folder
/// tells the receipt. Each of these may be killed and typed again: what was done already is
/// said to be so.
#[derive(Args, Debug)]
#[command(after_long_help = after_help())]
pub(super) struct Handover {
    #[command(subcommand)]
    command: Command,
}

fn after_help() -> String {
    format!("{EXAMPLES}\n\n{ENVIRONMENT}\n\n{}", exit_codes())
}

const EXAMPLES: &str = "\
Examples:
  pop-broker handover finish --to fjall:/srv/pop --receipt 00112233445566778899aabbccddeeff
  pop-broker handover finish --to fjall:/srv/pop --source-is-gone --yes
  pop-broker handover undo --at fjall:/srv/old --yes";

#[derive(Debug, Subcommand)]
enum Command {
    /// Makes a folder the owner of what was handed over to it, with the receipt of its source
    Finish {
        /// The folder that waits
        #[arg(long, value_name = "STORE:FOLDER")]
        to: Location,

        /// What the retired source tells
        #[arg(
            long,
            value_name = "RECEIPT",
            value_parser = receipt,
            required_unless_present = "source_is_gone"
        )]
        receipt: Option<String>,

        /// The folder of the source is lost and will never be served again
        #[arg(long, conflicts_with = "receipt")]
        source_is_gone: bool,

        /// Confirms --source-is-gone
        #[arg(long)]
        yes: bool,
    },
    /// Takes a folder back into service that was handed over
    Undo {
        /// The folder that is retired
        #[arg(long, value_name = "STORE:FOLDER")]
        at: Location,

        /// Confirms that the broker that it was handed over to never serves again
        #[arg(long)]
        yes: bool,
    },
}

impl Handover {
    pub(super) fn run(self) -> Result<(), Failure> {
        match self.command {
            Command::Finish {
                to,
                receipt,
                source_is_gone,
                yes,
            } => {
                let what =
                    "if the source is served after all, there are two owners of its messages";
                Failure::unless_sure(!source_is_gone || yes, what)?;
                let opener = opener(&to)?;
                block_on(async {
                    let finished = operator::finish(opener.as_ref(), receipt.as_deref());
                    let finished = finished.await;
                    let finished = finished.map_err(|it| Failure::of_folder(it, &to.folder));
                    let since = match finished? {
                        Step::Done => "now",
                        Step::DoneBefore => "already",
                    };
                    say(&format!("{to} is the owner {since}: serve it"));
                    Ok(())
                })?;
            }
            Command::Undo { at, yes } => {
                let what = "if the broker that this folder was handed over to serves, too, there are two owners of its messages";
                Failure::unless_sure(yes, what)?;
                let opener = opener(&at)?;
                block_on(async {
                    let undone = operator::undo(opener.as_ref()).await;
                    let undone = undone.map_err(|it| Failure::of_folder(it, &at.folder));
                    let (epoch, step) = undone?;
                    let since = match step {
                        Step::Done => "again",
                        Step::DoneBefore => "again already",
                    };
                    say(&format!(
                        "{at} is the owner {since}, as epoch {epoch}: serve it"
                    ));
                    Ok(())
                })?;
            }
        }
        Ok(())
    }
}

fn receipt(text: &str) -> Result<String, &'static str> {
    match operator::is_receipt(text) {
        true => Ok(text.into()),
        false => Err("a receipt has 32 hexadecimal digits, as the source tells it at its start"),
    }
}

fn opener(location: &Location) -> Result<Arc<dyn OpenStore>, Failure> {
    Ok(location.existing()?.opener(&location.folder)?)
}
