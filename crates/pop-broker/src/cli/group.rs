//! `group`: make, look at and delete consumer groups.

use clap::{Args, Subcommand};

use super::{
    Failure,
    client::Client,
    table::{namespace, table},
};
use crate::admin::api::{self, Start};

/// Makes, shows and deletes consumer groups of a serving broker.
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
  pop-broker group create ledger --fifo
  pop-broker group list
  pop-broker group delete audit --yes";

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
        /// Consumes the messages of a message group in order, one batch at a time
        #[arg(long)]
        fifo: bool,
        #[command(flatten)]
        client: Client,
    },
    /// Deletes a group with its offsets, its deliveries and its retries, for good
    ///
    /// It is gone when this returns. Messages stay, for other groups; a group of the same
    /// name is another one and begins where new groups do. Its dead-letter topic stays
    /// unless --with-dead-letters is given: a group of the same name adds to it.
    Delete {
        /// Its name
        name: String,
        /// Its namespace; the default one if absent
        #[arg(long, default_value = "", hide_default_value = true)]
        namespace: String,
        /// Delete its dead-letter topic, too
        #[arg(long)]
        with_dead_letters: bool,
        /// Do it: there is no way back
        #[arg(long)]
        yes: bool,
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
                fifo,
                client,
            } => {
                let new = api::NewGroup {
                    namespace,
                    name,
                    delivery_attempts_max,
                    start,
                    fifo,
                };
                let made: api::Group = client.post(api::GROUPS, &new)?;
                client.print(&made, |made| {
                    let attempts = made.delivery_attempts_max;
                    format!("created group {}, {attempts} deliveries at most", made.name)
                });
            }
            Command::Delete {
                name,
                namespace,
                with_dead_letters,
                yes,
                client,
            } => {
                let letters = match with_dead_letters {
                    true => " and ends its dead letters",
                    false => "",
                };
                let what = format!("this forgets how far group {name} has come{letters}");
                Failure::unless_sure(yes, &what)?;
                let query = [
                    ("namespace", namespace),
                    ("name", name),
                    ("with_dead_letters", with_dead_letters.to_string()),
                ];
                let deleted: api::Deleted = client.delete(api::GROUP, &query)?;
                client.print(&deleted, |deleted| match &deleted.dead_letters_kept {
                    None => format!("deleted group {}", deleted.name),
                    Some(kept) => format!(
                        "deleted group {}; its dead letters stay in topic {kept}",
                        deleted.name
                    ),
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
                if group.fifo { "fifo" } else { "any" }.into(),
            ]
        })
        .collect();
    let titles = ["GROUP", "NAMESPACE", "DELIVERIES AT MOST", "START", "ORDER"];
    table(titles, &rows)
}
