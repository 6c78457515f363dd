//! `group`: make and look at consumer groups.

use clap::{Args, Subcommand};

use super::{
    Failure,
    client::Client,
    table::{namespace, table},
};
use crate::admin::api::{self, Start};

/// Makes and shows consumer groups of a serving broker.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(super) struct Group {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  pop-broker group create billing --delivery-attempts-max 5
  pop-broker group create audit --start latest
  pop-broker group list";

#[derive(Debug, Subcommand)]
enum Command {
    /// Makes a group; it is durable when this returns
    Create {
        /// Its name: letters, digits, `_`, `-`, `%`, `|`, up to 120
        name: String,
        /// Its namespace; the default one if absent
        #[arg(long, default_value = "", hide_default_value = true)]
        namespace: String,
        /// Deliveries of a message before it goes to the group's dead-letter topic, 1 to
        /// 1000 [default: 17]
        #[arg(long, value_name = "COUNT")]
        delivery_attempts_max: Option<u32>,
        /// Where it starts: earliest (at the first message that is still there) or latest
        /// (behind the last one) [default: earliest]
        #[arg(long, value_name = "WHERE", hide_possible_values = true)]
        start: Option<Start>,
        #[command(flatten)]
        client: Client,
    },
    /// Lists all groups
    List {
        #[command(flatten)]
        client: Client,
    },
}

impl Group {
    pub(super) fn run(self) -> Result<(), Failure> {
        match self.command {
            Command::Create {
                name,
                namespace,
                delivery_attempts_max,
                start,
                client,
            } => {
                let new = api::NewGroup {
                    namespace,
                    name,
                    delivery_attempts_max,
                    start,
                };
                let made: api::Group = client.post(api::GROUPS, &new)?;
                client.print(&made, |made| {
                    let attempts = made.delivery_attempts_max;
                    format!("created group {}, {attempts} deliveries at most", made.name)
                });
            }
            Command::List { client } => {
                let groups: Vec<api::Group> = client.get(api::GROUPS, &[])?;
                client.print(&groups, |groups| list(groups));
            }
        }
        Ok(())
    }
}

fn list(groups: &[api::Group]) -> String {
    let rows: Vec<_> = groups
        .iter()
        .map(|group| {
            [
                group.name.clone(),
                namespace(&group.namespace),
                group.delivery_attempts_max.to_string(),
                match group.start {
                    Start::Earliest => "earliest".into(),
                    Start::Latest => "latest".into(),
                },
            ]
        })
        .collect();
    table(["GROUP", "NAMESPACE", "DELIVERIES AT MOST", "START"], &rows)
}
