//! `topic`: make, look at and delete topics.

use clap::{Args, Subcommand};

use super::{
    Failure,
    client::Client,
    table::{namespace, table},
};
use crate::admin::api;

/// Makes, shows and deletes topics of a serving broker.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(super) struct Topic {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  pop-broker topic create orders --queues 8
  pop-broker topic list
  pop-broker topic describe orders --json
  pop-broker topic describe %DLQ%billing      the dead letters of group billing
  pop-broker topic delete orders --yes";

#[derive(Debug, Subcommand)]
enum Command {
    /// Makes a topic; it is durable when this returns
    Create {
        /// Its name: letters, digits, `_`, `-`, `%`, `|`, up to 127
        name: String,
        /// Its namespace; the default one if absent
        #[arg(long, default_value = "", hide_default_value = true)]
        namespace: String,
        /// How many queues it gets, 1 to 1024; more let more receives run side by side
        /// [default: 4]
        #[arg(long, value_name = "COUNT")]
        queues: Option<u32>,
        #[command(flatten)]
        client: Client,
    },
    /// Lists all topics, those of the broker's own included
    List {
        #[command(flatten)]
        client: Client,
    },
    /// Deletes a topic with all its messages, for every group and for good
    ///
    /// It is gone when this returns: nobody sends to it or receives from it any more, and
    /// its name is free. What it leaves behind is swept by and by. A client that still uses
    /// the name makes another, empty topic where topics are made on demand.
    Delete {
        /// Its name
        name: String,
        /// Its namespace; the default one if absent
        #[arg(long, default_value = "", hide_default_value = true)]
        namespace: String,
        /// Do it: there is no way back
        #[arg(long)]
        yes: bool,
        #[command(flatten)]
        client: Client,
    },
    /// Shows a topic and which offsets each of its queues holds
    Describe {
        /// Its name
        name: String,
        /// Its namespace; the default one if absent
        #[arg(long, default_value = "", hide_default_value = true)]
        namespace: String,
        #[command(flatten)]
        client: Client,
    },
}

impl Topic {
    pub(super) fn run(self) -> Result<(), Failure> {
        match self.command {
            Command::Create {
                name,
                namespace,
                queues,
                client,
            } => {
                let new = api::NewTopic {
                    namespace,
                    name,
                    queues,
                };
                let made: api::Topic = client.post(api::TOPICS, &new)?;
                client.print(&made, |made| {
                    format!("created topic {} with {} queues", made.name, made.queues)
                });
            }
            Command::List { client } => {
                let topics: Vec<api::Topic> = client.get(api::TOPICS, &[])?;
                client.print(&topics, |topics| list(topics));
            }
            Command::Delete {
                name,
                namespace,
                yes,
                client,
            } => {
                let what = format!("this ends all messages of topic {name}, for every group");
                Failure::unless_sure(yes, &what)?;
                let query = [("namespace", namespace), ("name", name)];
                let deleted: api::Deleted = client.delete(api::TOPIC, &query)?;
                client.print(&deleted, |deleted| {
                    format!("deleted topic {}", deleted.name)
                });
            }
            Command::Describe {
                name,
                namespace,
                client,
            } => {
                let query = [("namespace", namespace), ("name", name)];
                let topic: api::TopicDescription = client.get(api::TOPIC, &query)?;
                client.print(&topic, describe);
            }
        }
        Ok(())
    }
}

fn list(topics: &[api::Topic]) -> String {
    let rows: Vec<_> = topics
        .iter()
        .map(|topic| {
            [
                topic.name.clone(),
                namespace(&topic.namespace),
                topic.queues.to_string(),
            ]
        })
        .collect();
    table(["TOPIC", "NAMESPACE", "QUEUES"], &rows)
}

fn describe(topic: &api::TopicDescription) -> String {
    let rows: Vec<_> = topic
        .bounds
        .iter()
        .map(|queue| {
            [
                queue.queue.to_string(),
                queue.start.to_string(),
                queue.end.to_string(),
                queue.end.saturating_sub(queue.start).to_string(),
            ]
        })
        .collect();
    table(["QUEUE", "FIRST OFFSET", "NEXT OFFSET", "MESSAGES"], &rows)
}
