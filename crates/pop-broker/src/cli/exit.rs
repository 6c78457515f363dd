//! How the program ends: one line for a person, one code for a script.

use std::{error::Error, fmt, io, path::Path, process::ExitCode};

use pop_store::ErrorKind;

use pop_broker::{BrokerError, stores::NotCompiledIn};

macro_rules! exits {
    ($($name:ident = $number:literal, $text:literal;)+) => {
        /// Why the program ends, as a script sees it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub(crate) enum Exit {
            $(#[doc = $text] $name = $number,)+
        }

        /// Each with what it means.
        const EXITS: &[(Exit, &str)] = &[$((Exit::$name, $text)),+];
    };
}

// Scripts rely on the numbers: none changes its meaning, and none is used again.
exits! {
    Failed = 1, "refused or failed; the line on stderr says why";
    Usage = 2, "a flag, an environment variable or the configuration file is wrong";
    NotCompiledIn = 3, "the store is not compiled into this program";
    FolderInUse = 4, "the data folder or backup is in use by another process";
    FolderForeign = 5, "the data folder or backup is of another store or format";
    FolderUnusable = 6, "the data folder or backup can't be used: no permission, disk full, damaged";
    Address = 7, "an address can't be listened on";
    NoBroker = 8, "no broker answers at the admin address or data port, or it was lost on the way";
    StoreLost = 9, "the store failed while serving and could not be opened anew";
    NotOwner = 10, "the data folder was handed over to another broker, or waits for that";
    SecondSignal = 130, "ended at once by a second signal";
}

/// The table of them, for `--help`.
pub(crate) fn exit_codes() -> String {
    let mut table = "Exit codes:\n  0    ended as asked".to_owned();
    for (exit, text) in EXITS {
        table.push_str(&format!("\n  {:<4} {text}", exit.code()));
    }
    table
}

/// What the store can't say, because it doesn't know where its folder comes from.
const USABLE: &str = "; the folder must be writable and have room, or choose another with --data";

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

    /// An error with what caused it, and what to do about that.
    pub(crate) fn because(exit: Exit, error: &(dyn Error + 'static)) -> Self {
        Self::new(exit, chain(error)).advised(error)
    }

    /// The same, with what to do about an error of the system that is among the causes.
    pub(crate) fn advised(self, error: &(dyn Error + 'static)) -> Self {
        match advice(error, &self.message) {
            Some(advice) => self.with("; ").with(advice),
            None => self,
        }
    }

    /// The same, of this file, folder or address, if that is not named yet.
    pub(crate) fn at(mut self, place: impl fmt::Display) -> Self {
        let place = place.to_string();
        if !self.message.contains(&place) {
            self.message = format!("{place}: {}", self.message);
        }
        self
    }

    /// An error of a broker on a folder that a command was given for a while.
    pub(crate) fn of_folder(error: BrokerError, folder: &Path) -> Self {
        let failure = match error {
            BrokerError::Store(error) => error.into(),
            error => Self::from(error),
        };
        failure.at(folder.display())
    }

    /// The same, with what to do, if that is not said yet.
    pub(crate) fn and(self, more: Option<&str>) -> Self {
        match more.filter(|more| !self.message.contains(more)) {
            Some(more) => self.with("; ").with(more),
            None => self,
        }
    }

    /// The same, with more to say.
    pub(crate) fn with(mut self, more: &str) -> Self {
        self.message.push_str(more);
        self
    }

    #[cfg(test)]
    pub(crate) fn exit(&self) -> Exit {
        self.exit
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

// What only a person can do about a disk.
pub(super) const ROOM: &str = "free some space there, or choose another place";
const RIGHT: &str = "let the user of this program write there, or choose another place";
const WRITABLE: &str = "it is there to be read alone: choose another place";

/// What to do about what the system refused. Some engines pass its error on in words alone.
fn advice(error: &(dyn Error + 'static), text: &str) -> Option<&'static str> {
    let mut by_kind = None;
    let mut cause = Some(error);
    while let Some(error) = cause {
        let kind = error.downcast_ref::<io::Error>().map(io::Error::kind);
        by_kind = by_kind.or(match kind {
            Some(io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) => Some(ROOM),
            Some(io::ErrorKind::PermissionDenied) => Some(RIGHT),
            Some(io::ErrorKind::ReadOnlyFilesystem) => Some(WRITABLE),
            _ => None,
        });
        cause = error.source();
    }
    let by_words = || {
        let words = [
            ("No space left on device", ROOM),
            ("Permission denied", RIGHT),
            ("Read-only file system", WRITABLE),
        ];
        let said = words.iter().find(|(words, _)| text.contains(words));
        said.map(|(_, advice)| *advice)
    };
    let advice = by_kind.or_else(by_words);
    // Where whoever failed knew it better.
    advice.filter(|_| !text.contains("free some space"))
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

    // Catches: a number that changes under the scripts that know it.
    #[test]
    fn the_codes_stay_as_they_are() {
        use Exit::*;
        let known = [
            (Failed, 1),
            (Usage, 2),
            (NotCompiledIn, 3),
            (FolderInUse, 4),
            (FolderForeign, 5),
            (FolderUnusable, 6),
            (Address, 7),
            (NoBroker, 8),
            (StoreLost, 9),
            (NotOwner, 10),
            (SecondSignal, 130),
        ];
        let told = EXITS.iter().map(|(exit, _)| (*exit, exit.code()));
        assert_eq!(told.collect::<Vec<_>>(), known);
        let table = exit_codes();
        for (exit, code) in known {
            assert!(table.contains(&format!("\n  {code:<4} ")), "{exit:?}");
        }
    }

    // Catches: the first cause alone is looked at; room is asked for twice.
    #[test]
    fn what_the_system_refused_comes_with_what_to_do() {
        let store = |source: io::Error| {
            let error = pop_store::Error::new(ErrorKind::Unavailable, "fjall", "open");
            Failure::from(error.with_source(source)).to_string()
        };
        for (kind, advice) in [
            (io::ErrorKind::StorageFull, ROOM),
            (io::ErrorKind::PermissionDenied, RIGHT),
            (io::ErrorKind::ReadOnlyFilesystem, WRITABLE),
        ] {
            assert!(store(kind.into()).ends_with(advice), "{kind}");
        }
        let words = io::Error::other("IO error: No space left on device: 000123.log");
        assert!(store(words).ends_with(ROOM));
        assert!(!store(io::ErrorKind::TimedOut.into()).contains("choose"));
        let full = pop_store::Error::new(ErrorKind::NoSpace, "fjall", "load")
            .with_detail("disk nearly full: free some space")
            .with_source(io::Error::from(io::ErrorKind::StorageFull));
        let text = Failure::from(full).to_string();
        assert_eq!(text.matches("free some space").count(), 1, "{text}");
    }

    // Catches: a path that is never named; one that is named again.
    #[test]
    fn a_path_is_named_once() {
        let failure = Failure::new(Exit::FolderUnusable, "no room").at("/data");
        assert_eq!(failure.to_string(), "/data: no room");
        let again = failure.at("/data");
        assert_eq!(again.to_string(), "/data: no room");
    }

    // Catches: words of another that are passed on as they are.
    #[test]
    fn a_failure_is_one_line() {
        let failure = Failure::new(Exit::Failed, "first\n  second\nthird");
        assert_eq!(failure.to_string(), "first second third");
    }
}
