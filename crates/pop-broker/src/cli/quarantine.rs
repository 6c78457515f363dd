//! `quarantine`: look at what could not be worked on.

use clap::{Args, Subcommand};

use super::{Failure, client::Client, table::table};
use crate::admin::api;

/// Shows records that a serving broker could not work on.
///
/// A record that can't be decoded or delivered is put here as it was, with the reason, and
/// never dropped; others go on.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(super) struct Quarantine {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  pop-broker quarantine list
  pop-broker quarantine list --json --count 1000";

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
}

impl Quarantine {
    pub(super) fn run(self) -> Result<(), Failure> {
        let Command::List {
            from,
            count,
            client,
        } = self.command;
        let query = [("from", from.to_string()), ("count", count.to_string())];
        let found: api::Quarantine = client.get(api::QUARANTINE, &query)?;
        client.print(&found, list);
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
