//! What is killed, each by the name that an operator chooses it with.

use clap::ValueEnum;

/// A way of moving content that must bear a kill at any moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Action {
    /// `backup` of a folder
    Backup,
    /// `restore` of a backup
    Restore,
    /// `migrate` of a folder
    Migrate,
    /// `restore` of a backup that goes bad meanwhile, again with the whole one, and the
    /// folder opened twice
    FailedRestore,
    /// `backup` of a broker that serves; the command or the broker is killed
    LiveBackup,
    /// `bootstrap` of a copy; the command or the broker is killed
    Copy,
    /// `bootstrap --handover`; the command or the broker is killed
    Handover,
}

impl Action {
    /// As the flag takes it.
    pub(crate) fn name(self) -> String {
        let value = self.to_possible_value();
        value.map_or_else(String::new, |it| it.get_name().to_owned())
    }
}
