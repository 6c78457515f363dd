//! `retention`: how messages end by their age.

use clap::{Args, Subcommand};

use super::{Failure, client::Client};
use crate::admin::api;

/// Shows how messages end by their age, and confirms the clock after it jumped.
///
/// How long messages are kept is a setting of the server: `serve --retention`. When the
/// clock of the machine jumps by more than an hour no message ends any more, until it is
/// set right, confirmed here, or was stable for 24 hours.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(super) struct Retention {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  pop-broker retention show
  pop-broker retention confirm";

#[derive(Debug, Subcommand)]
enum Command {
    /// Shows how long messages are kept, and whether a jump of the clock stops it
    Show {
        #[command(flatten)]
        client: Client,
    },
    /// Says that the clock is right: messages end by their age again
    Confirm {
        #[command(flatten)]
        client: Client,
    },
}

impl Retention {
    pub(super) fn run(self) -> Result<(), Failure> {
        match self.command {
            Command::Show { client } => {
                let status: api::Retention = client.get(api::RETENTION, &[])?;
                client.print(&status, tell);
            }
            Command::Confirm { client } => {
                let confirm = api::ConfirmClock {};
                let status: api::Retention = client.post(api::RETENTION, &confirm)?;
                client.print(&status, tell);
            }
        }
        Ok(())
    }
}

fn tell(status: &api::Retention) -> String {
    let Some(seconds) = status.keep_seconds else {
        return "messages are kept for ever".into();
    };
    let kept = format!("messages are kept for {seconds} s");
    match status.clock_jumped_by_ms {
        None => kept,
        Some(by) => format!(
            "{kept}; the clock jumped by {by} ms and nothing ends: set it right, or say `pop-broker retention confirm`"
        ),
    }
}
