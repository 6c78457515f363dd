//! `quarantine`: look at what could not be worked on, and say what becomes of it.

use clap::{Args, Subcommand};

use super::{Failure, client::Client, table::table};
use crate::admin::api;

/// Shows records that a serving broker could not work on, puts them back or drops them.
///
/// A record that can't be decoded or delivered is put here as it was, with the reason, and
/// stays until it is put back to work or dropped here; others go on.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(super) struct Quarantine {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  pop-broker quarantine list
  pop-broker quarantine list --json --count 1000
  pop-broker quarantine redrive 1048576
  pop-broker quarantine drop 1048576 --yes";

#[derive(Debug, Subcommand)]
enum Command {
    /// Lists quarantined records, oldest first
    List {
        /// The first place to list; the last line of a list names the next one
        #[arg(long, value_name = "PLACE", default_value_t = 0)]
        from: u64,
        /// How many at most, 1 to 1000
        #[arg(long, default_value_t = 100)]
        count: u16,
        #[command(flatten)]
        client: Client,
    },
    /// Puts a record back to where it came from, if it can be worked on now
    ///
    /// A lease is looked at again at once; a retry entry, or a message that a group could
    /// not read, is ready for another delivery to that group. Where that can't be, the
    /// record stays and the answer says why.
    Redrive {
        /// Its place, as `list` shows it
        place: u64,
        #[command(flatten)]
        client: Client,
    },
    /// Ends a record for good: what it stands for is never delivered
    Drop {
        /// Its place, as `list` shows it
        place: u64,
        /// Do it: there is no way back
        #[arg(long)]
        yes: bool,
        #[command(flatten)]
        client: Client,
    },
}

impl Quarantine {
    pub(super) fn run(self) -> Result<(), Failure> {
        match self.command {
            Command::List {
                from,
                count,
                client,
            } => {
                let query = [("from", from.to_string()), ("count", count.to_string())];
                let found: api::Quarantine = client.get(api::QUARANTINE, &query)?;
                client.print(&found, list);
            }
            Command::Redrive { place, client } => {
                let redrive = api::Redrive { place };
                let done: api::Place = client.post(api::QUARANTINE, &redrive)?;
                client.print(&done, |done| {
                    format!("the record at place {} is worked on again", done.place)
                });
            }
            Command::Drop { place, yes, client } => {
                let what = format!("this ends the record at place {place}");
                Failure::unless_sure(yes, &what)?;
                let query = [("place", place.to_string())];
                let dropped: api::Quarantined = client.delete(api::QUARANTINE, &query)?;
                client.print(&dropped, |dropped| {
                    format!(
                        "dropped the record at place {}: {}",
                        dropped.place, dropped.reason
                    )
                });
            }
        }
        Ok(())
    }
}

fn list(found: &api::Quarantine) -> String {
    let Some(next) = found.next else {
        return "nothing is in quarantine here".into();
    };
    let rows: Vec<_> = found
        .records
        .iter()
        .map(|record| {
            [
                record.place.to_string(),
                record.at_unix_ms.to_string(),
                record.keyspace.clone(),
                record.key_hex.clone(),
                record.value_bytes.to_string(),
                record.reason.clone(),
            ]
        })
        .collect();
    let header = ["PLACE", "UNIX MS", "KEYSPACE", "KEY", "BYTES", "REASON"];
    let rows = table(header, &rows);
    format!("{rows}\nmore, if there are: pop-broker quarantine list --from {next}")
}
