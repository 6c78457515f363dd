//! `serve`: puts the settings together and hands them to the server.

use std::path::PathBuf;

use clap::Args;

use super::{Failure, exit::exit_codes};
use crate::{
    config::{Choices, Settings},
    server,
};

/// Serves until SIGTERM or Ctrl-C.
///
/// Prints one line that starts with `ready` on stdout once it serves; everything else goes
/// to stderr. The first signal ends it cleanly: nothing new is accepted, waiting receives
/// are answered, running work comes to its end and the store is closed. A second one ends
/// it at once, as a crash would: nothing that was promised is lost.
#[derive(Debug, Args)]
#[command(after_long_help = after_help())]
pub(super) struct Serve {
    /// Configuration file, TOML; none if absent
    ///
    /// Its keys are the flags below without the dashes in front, and `[[topics]]` and
    /// `[[groups]]`, which are created if they are missing. Relative paths in it start at
    /// its own folder. A key that is not known is refused.
    #[arg(long, value_name = "FILE", env = "POP_CONFIG")]
    config: Option<PathBuf>,

    #[command(flatten)]
    choices: Choices,
}

impl Serve {
    pub(super) fn run(self) -> Result<(), Failure> {
        let file = match &self.config {
            Some(path) => Choices::read(path)?,
            None => Choices::default(),
        };
        server::run(Settings::decide(self.choices.or(file))?)
    }
}

fn after_help() -> String {
    format!("{EXAMPLES}\n\n{}", exit_codes())
}

const EXAMPLES: &str = "\
A setting is looked for in four places, and the first one that has it wins: the flag, the
environment variable, the configuration file, the default.

Examples:
  pop-broker serve --store memory
      Tries it out on this machine; nothing survives the process.
  pop-broker serve --data /var/lib/pop-broker --listen 0.0.0.0:8081
      Serves other machines. There are no passwords yet: let the network decide who
      may connect.
  POP_DATA=/var/lib/pop-broker pop-broker serve --config /etc/pop-broker.toml
      Takes the folder from the environment and the rest from a file:

        listen = \"0.0.0.0:8081\"
        ack-durability = \"sync\"
        auto-create-topics = false

        [[topics]]
        name = \"orders\"
        queues = 8                    # the setting `queues` if absent

        [[groups]]
        name = \"billing\"
        delivery-attempts-max = 5     # 17 if absent; then the dead-letter topic
        start = \"latest\"              # the setting `new-group-start` if absent
        fifo = true                   # message groups in order; false if absent";
