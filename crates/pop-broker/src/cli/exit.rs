//! How the program ends: one line for a person, one code for a script.

use std::{error::Error, fmt, process::ExitCode};

use pop_store::ErrorKind;

use pop_broker::{BrokerError, stores::NotCompiledIn};

/// Exit codes, for `--help`.
pub(crate) const EXIT_CODES: &str = "\
Exit codes:
  0    ended as asked
  1    refused or failed; the line on stderr says why
  2    a flag, an environment variable or the configuration file is wrong
  3    the store is not compiled into this program
  4    the data folder or backup is in use by another process
  5    the data folder or backup is of another store or format
  6    the data folder or backup can't be used: no permission, disk full, damaged
  7    an address can't be listened on
  8    no broker answers at the admin address or data port
  9    the store failed while serving and could not be opened anew
  10   the data folder was handed over to another broker, or waits for that
  130  ended at once by a second signal";

/// What the store can't say, because it doesn't know where its folder comes from.
const USABLE: &str = "; the folder must be writable and have room, or choose another with --data";

/// Why the program ends, as a script sees it. The numbers are those of [`EXIT_CODES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Exit {
    Failed = 1,
    Usage = 2,
    NotCompiledIn = 3,
    FolderInUse = 4,
    FolderForeign = 5,
    FolderUnusable = 6,
    Address = 7,
    NoBroker = 8,
    StoreLost = 9,
    NotOwner = 10,
    SecondSignal = 130,
}

impl Exit {
    pub(crate) const fn code(self) -> u8 {
        self as u8
    }
}

/// The end of the program with an error.
#[derive(Debug)]
pub(crate) struct Failure {
    exit: Exit,
    message: String,
}

impl Failure {
    pub(crate) fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self {
            exit,
            message: message.into(),
        }
    }

    /// What can't be undone is done only when it was said twice.
    pub(crate) fn unless_sure(sure: bool, what: &str) -> Result<(), Self> {
        if sure {
            return Ok(());
        }
        let problem = format!("{what}; nothing was done: add --yes to do it");
        Err(Self::new(Exit::Usage, problem))
    }

    /// An error with what caused it.
    pub(crate) fn because(exit: Exit, error: &dyn Error) -> Self {
        Self::new(exit, chain(error))
    }

    /// The same, with more to say.
    pub(crate) fn with(mut self, more: &str) -> Self {
        self.message.push_str(more);
        self
    }

    pub(crate) fn exit_code(&self) -> ExitCode {
        ExitCode::from(self.exit.code())
    }
}

impl fmt::Display for Failure {
    /// In one line, whatever an error below had to say.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, line) in self.message.lines().map(str::trim).enumerate() {
            let separator = if place == 0 { "" } else { " " };
            write!(f, "{separator}{line}")?;
        }
        Ok(())
    }
}

/// An error and its causes. A cause that the error repeats is left out.
fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let next = error.to_string();
        if !text.contains(&next) {
            text = format!("{text}: {next}");
        }
        cause = error.source();
    }
    text
}

impl From<NotCompiledIn> for Failure {
    fn from(error: NotCompiledIn) -> Self {
        Self::because(Exit::NotCompiledIn, &error)
    }
}

impl From<pop_store::Error> for Failure {
    fn from(error: pop_store::Error) -> Self {
        let exit = match error.kind() {
            ErrorKind::Locked => Exit::FolderInUse,
            ErrorKind::Incompatible => Exit::FolderForeign,
            _ => Exit::FolderUnusable,
        };
        Self::because(exit, &error)
    }
}

impl From<BrokerError> for Failure {
    fn from(error: BrokerError) -> Self {
        let store = match error {
            BrokerError::Store(store) => store,
            BrokerError::NotOwner(_) => return Self::because(Exit::NotOwner, &error),
            _ => return Self::because(Exit::Failed, &error),
        };
        let is_refused = store.kind().is_refusal();
        let failure = Self::from(store);
        match is_refused {
            true => failure.with(USABLE),
            false => failure,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_is_explained() {
        for exit in [
            Exit::Failed,
            Exit::Usage,
            Exit::NotCompiledIn,
            Exit::FolderInUse,
            Exit::FolderForeign,
            Exit::FolderUnusable,
            Exit::Address,
            Exit::NoBroker,
            Exit::StoreLost,
            Exit::NotOwner,
            Exit::SecondSignal,
        ] {
            let line = format!("\n  {:<4} ", exit.code());
            assert!(EXIT_CODES.contains(&line), "{exit:?}");
        }
    }

    #[test]
    fn a_failure_is_one_line() {
        let failure = Failure::new(Exit::Failed, "first\n  second\nthird");
        assert_eq!(failure.to_string(), "first second third");
    }
}
