//! `data`: the data port of a serving broker.

use clap::{Args, Subcommand};
use pop_broker::data::ByteRate;

use super::{Failure, client::Client};
use crate::admin::api;

/// Shows what the data port of a broker does, and sets how fast it may send.
///
/// The port is a setting of the server: `serve --data-listen`. `bootstrap` and `backup` fetch
/// from it.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(super) struct Data {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  pop-broker data show
  pop-broker data rate 20M
  pop-broker data rate off";

#[derive(Debug, Subcommand)]
enum Command {
    /// Shows what it does now and did so far
    Show {
        #[command(flatten)]
        client: Client,
    },
    /// Sets what it sends in a second, to all peers together, until the broker ends
    Rate {
        /// Such as 64M; off for no limit
        rate: ByteRate,

        #[command(flatten)]
        client: Client,
    },
}

impl Data {
    pub(super) fn run(self) -> Result<(), Failure> {
        let (client, data) = match self.command {
            Command::Show { client } => {
                let data: api::Data = client.get(api::DATA, &[])?;
                (client, data)
            }
            Command::Rate { rate, client } => {
                let rate = rate.to_string();
                let data: api::Data = client.post(api::DATA, &api::DataRate { rate })?;
                (client, data)
            }
        };
        client.print(&data, tell);
        Ok(())
    }
}

fn tell(data: &api::Data) -> String {
    let kept = match data.oldest_snapshot_seconds {
        None => "no snapshot is kept".to_owned(),
        Some(age) => format!(
            "{} snapshots are kept, the oldest for {age} s",
            data.snapshots
        ),
    };
    let still = match data.still_seconds {
        Some(seconds) if data.running > 0 => format!(" (one stands still for {seconds} s)"),
        _ => String::new(),
    };
    let mut text = format!(
        "sends {} a second at most; {} connections are open, {} sessions run{still}, {kept}\n\
         {} sessions installed all rows, {} did not, {} connections were refused, {} rows and {} bytes were sent",
        data.rate,
        data.open,
        data.running,
        data.installed,
        data.failed,
        data.refused,
        data.sent_rows,
        data.sent_bytes
    );
    for (what, words) in [
        ("refused", &data.turned_away),
        ("sessions ended", &data.ended),
    ] {
        if !words.is_empty() {
            let words = words.iter().map(|(word, count)| format!("{word} {count}"));
            let words: Vec<_> = words.collect();
            text.push_str(&format!("\n{what}: {}", words.join(", ")));
        }
    }
    text
}
