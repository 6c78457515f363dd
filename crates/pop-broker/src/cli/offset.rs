//! `offset`: look at how far groups have come, and set them back or forward.

use clap::{ArgGroup, Args, Subcommand};

use super::{Failure, client::Client, table::table};
use crate::admin::api;

/// Shows how far a group has come in a topic, and sets it back or forward.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(super) struct Offset {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  pop-broker offset show --group billing --topic orders
  pop-broker offset reset --group billing --topic orders --to-earliest
  pop-broker offset reset --group billing --topic orders --to-time-unix-ms 1767225600000
  pop-broker offset reset --group billing --topic orders --queue 2 --to-offset 4711";

#[derive(Debug, Subcommand)]
enum Command {
    /// Shows each queue: what it holds, what is committed, what is out and what is left
    Show {
        #[command(flatten)]
        of: Of,
        #[command(flatten)]
        client: Client,
    },
    /// Sets where the group goes on. What is out becomes void: its receipt handles are
    /// refused, and nothing of it is delivered again
    #[command(group(ArgGroup::new("to").required(true)))]
    Reset {
        #[command(flatten)]
        of: Of,
        /// To the first message that is still there
        #[arg(long, group = "to")]
        to_earliest: bool,
        /// Behind the last message
        #[arg(long, group = "to")]
        to_latest: bool,
        /// To the first message that was stored at or after this moment, in milliseconds
        /// since 1970
        #[arg(
            long,
            group = "to",
            value_name = "MILLISECONDS",
            allow_negative_numbers = true
        )]
        to_time_unix_ms: Option<i64>,
        /// To this offset of one queue
        #[arg(long, group = "to", value_name = "OFFSET", requires = "queue")]
        to_offset: Option<u64>,
        /// The queue that --to-offset is about
        #[arg(long, value_name = "QUEUE", requires = "to_offset")]
        queue: Option<u32>,
        #[command(flatten)]
        client: Client,
    },
}

/// Which group, in which topic.
#[derive(Args, Debug)]
struct Of {
    /// The group
    #[arg(long)]
    group: String,
    /// The topic
    #[arg(long)]
    topic: String,
    /// The namespace of both; the default one if absent
    #[arg(long, default_value = "", hide_default_value = true)]
    namespace: String,
}

impl Of {
    fn query(&self) -> [(&'static str, String); 3] {
        [
            ("namespace", self.namespace.clone()),
            ("group", self.group.clone()),
            ("topic", self.topic.clone()),
        ]
    }
}

impl Offset {
    pub(super) fn run(self) -> Result<(), Failure> {
        match self.command {
            Command::Show { of, client } => {
                let progress: Vec<api::Progress> = client.get(api::OFFSETS, &of.query())?;
                client.print(&progress, |progress| show(progress));
            }
            Command::Reset {
                of,
                to_earliest,
                to_latest: _,
                to_time_unix_ms,
                to_offset,
                queue,
                client,
            } => {
                let to = match (to_time_unix_ms, to_offset.zip(queue)) {
                    (Some(millis), _) => api::ResetTo::TimeUnixMs(millis),
                    (_, Some((offset, queue))) => api::ResetTo::Offset { queue, offset },
                    _ if to_earliest => api::ResetTo::Earliest,
                    _ => api::ResetTo::Latest,
                };
                let reset = api::Reset {
                    of: api::Consumption {
                        namespace: of.namespace,
                        group: of.group,
                        topic: of.topic,
                    },
                    to,
                };
                let progress: Vec<api::Progress> = client.post(api::OFFSETS, &reset)?;
                client.print(&progress, |progress| show(progress));
            }
        }
        Ok(())
    }
}

fn show(progress: &[api::Progress]) -> String {
    let rows: Vec<_> = progress
        .iter()
        .map(|progress| {
            [
                progress
                    .queue
                    .map_or("retry".into(), |queue| queue.to_string()),
                progress.start.to_string(),
                progress.end.to_string(),
                progress.committed.to_string(),
                progress.in_flight.to_string(),
                progress.lag.to_string(),
            ]
        })
        .collect();
    let header = ["QUEUE", "START", "END", "COMMITTED", "IN FLIGHT", "LAG"];
    table(header, &rows)
}
