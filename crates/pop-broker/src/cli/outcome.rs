//! What a transfer that failed comes to: a code for a script, the place that it is about, and
//! what to do. One place for `backup`, `restore`, `migrate` and `bootstrap`, so that the same
//! failure is the same in all of them.

use std::{error::Error as _, fmt, io, path::Path};

use kv_restore::{AbortCode, ErrorKind, Phase, RestoreError, Retry, Switch};
use pop_broker::{
    bootstrap::BootstrapError,
    data::{self, SourceUrl},
    transfer::{LocationError, SourceError, file::BackupError},
};

use rustls::AlertDescription;

use super::{Exit, Failure, exit::ROOM};

/// A transfer, as it is called when it fails.
pub(super) struct Transfer<'a> {
    /// The command.
    pub(super) what: &'static str,
    /// Where the rows come from.
    pub(super) from: Origin<'a>,
    /// Where they go.
    pub(super) to: &'a Path,
    /// What is there if it fails.
    pub(super) kept: &'a str,
}

/// Of a folder.
pub(super) const UNCHANGED: &str = "what was there before is unchanged";

/// Where rows come from.
#[derive(Clone, Copy, Debug)]
pub(super) enum Origin<'a> {
    /// A broker that runs.
    Broker(&'a SourceUrl),
    /// The folder of a store, on this machine.
    Folder(&'a Path),
    /// A file that was made before, on this machine.
    Backup(&'a Path),
}

/// What failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    /// Where rows go.
    Target,
    /// The way to where they come from, or whoever is there, who is silent.
    Way,
    /// Where they come from: it says so itself, or gives what is damaged.
    Source,
    /// Neither: it was refused, or is a fault of this program.
    Neither,
}

impl fmt::Display for Origin<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Broker(url) => write!(f, "{url}"),
            Self::Folder(path) | Self::Backup(path) => write!(f, "{}", path.display()),
        }
    }
}

impl Transfer<'_> {
    /// A session that failed, as an operator sees it: who speaks with whom is nobody's concern.
    pub(super) fn failed(&self, error: &RestoreError) -> Failure {
        let mut text = format!("{} failed: {}", self.what, error.kind());
        if !error.detail().is_empty() {
            text.push_str(&format!(": {}", error.detail()));
        }
        let mut cause = error.source();
        while let Some(error) = cause {
            let next = error.to_string();
            if !text.contains(&next) {
                text.push_str(&format!(": {next}"));
            }
            cause = error.source();
        }
        let side = side(error.kind());
        let failure = Failure::new(exit(side, self.from), text).advised(error);
        let failure = match side {
            Side::Way | Side::Source => failure.at(self.from),
            Side::Target | Side::Neither => failure.at(self.to.display()),
        };
        let mut failure = failure.and(first(error.kind(), self.from));
        // What lies here is as damaged the next time.
        let is_lost = side == Side::Source && !matches!(self.from, Origin::Broker(_));
        if !is_lost {
            failure = failure.and(again(error.retry()));
        }
        match error.phase() {
            // It may have been switched.
            Phase::Committing if error.kind() != ErrorKind::Commit(Switch::NotDone) => failure,
            _ => failure.and(Some(self.kept)),
        }
    }

    /// The same of all that can be wrong with a bootstrap.
    pub(super) fn not_bootstrapped(&self, error: BootstrapError) -> Failure {
        let of_folder = |exit, error| Failure::because(exit, error).at(self.to.display());
        match error {
            BootstrapError::Restore(error) => self.failed(&error),
            BootstrapError::Source(error) => error.into(),
            BootstrapError::Meta(_) => Failure::because(Exit::Failed, &error).at(self.from),
            BootstrapError::Broker(error) => Failure::of_folder(error, self.to),
            BootstrapError::NoReceipt(_)
            | BootstrapError::Awaiting { .. }
            | BootstrapError::NotTakenBack { .. } => of_folder(Exit::NotOwner, &error),
            BootstrapError::NotEmpty
            | BootstrapError::Owned { .. }
            | BootstrapError::StaleEpoch { .. } => of_folder(Exit::Failed, &error),
        }
    }
}

/// What failed, of each kind: a new one is to be given its place here.
fn side(kind: ErrorKind) -> Side {
    match kind {
        ErrorKind::Begin
        | ErrorKind::Staging
        | ErrorKind::NoSpace
        | ErrorKind::Commit(_)
        | ErrorKind::Stalled => Side::Target,
        ErrorKind::Transport | ErrorKind::Idle | ErrorKind::TooSlow => Side::Way,
        // It ends or was started anew, or does not hear us.
        ErrorKind::PeerAborted(
            AbortCode::Closing | AbortCode::UnknownSession | AbortCode::Idle,
        ) => Side::Way,
        ErrorKind::PeerAborted(_) | ErrorKind::Corrupt(_) | ErrorKind::SourceGone => Side::Source,
        ErrorKind::Busy
        | ErrorKind::Protocol
        | ErrorKind::Obsolete
        | ErrorKind::StaleEpoch
        | ErrorKind::Superseded
        | ErrorKind::Cancelled
        | ErrorKind::Closed
        | ErrorKind::TaskLost => Side::Neither,
    }
}

fn exit(side: Side, from: Origin<'_>) -> Exit {
    match (side, from) {
        (Side::Target, _) => Exit::FolderUnusable,
        (Side::Way, Origin::Broker(_)) => Exit::NoBroker,
        (Side::Way | Side::Source, Origin::Folder(_) | Origin::Backup(_)) => Exit::FolderUnusable,
        (Side::Source, Origin::Broker(_)) | (Side::Neither, _) => Exit::Failed,
    }
}

/// What to do before it is tried again; nothing where what the system refused says it, or
/// nothing is to be done.
fn first(kind: ErrorKind, from: Origin<'_>) -> Option<&'static str> {
    let is_broker = matches!(from, Origin::Broker(_));
    match kind {
        ErrorKind::NoSpace => Some(ROOM),
        ErrorKind::Stalled => Some("see what keeps its disk from answering"),
        ErrorKind::Commit(Switch::InDoubt) => Some(
            "it has the old content or the new one, whole: the same command shows which, and puts the new one there if it is not",
        ),
        ErrorKind::Transport if is_broker => {
            Some("start that broker if it is down, or see why it can't be reached from here")
        }
        ErrorKind::Idle | ErrorKind::TooSlow | ErrorKind::PeerAborted(_) if is_broker => {
            Some("the log of that broker says more")
        }
        ErrorKind::Transport | ErrorKind::Idle | ErrorKind::TooSlow | ErrorKind::PeerAborted(_) => {
            Some("see what is wrong with its disk")
        }
        ErrorKind::Corrupt(_) if is_broker => Some(
            "if that happens again, see what is wrong with the network, or with the disk of that broker",
        ),
        ErrorKind::Corrupt(_) if matches!(from, Origin::Backup(_)) => {
            Some("see what is wrong with its disk, or take another backup")
        }
        ErrorKind::Corrupt(_) => Some("see what is wrong with its disk"),
        ErrorKind::SourceGone if is_broker => Some(
            "a broker keeps a snapshot for as long as --data-snapshot-age-max allows, 6 hours if it does not say: give it more, or choose a higher --rate",
        ),
        ErrorKind::Protocol => Some("use programs of the same version on both sides"),
        ErrorKind::Obsolete | ErrorKind::StaleEpoch => {
            Some("what is there is newer: choose another folder, so that it is kept")
        }
        ErrorKind::TaskLost => Some(
            "that is a fault of this program: report it, with what it says under POP_LOG=debug",
        ),
        ErrorKind::Begin
        | ErrorKind::Staging
        | ErrorKind::Commit(Switch::NotDone)
        | ErrorKind::Busy
        | ErrorKind::SourceGone
        | ErrorKind::Superseded
        | ErrorKind::Cancelled
        | ErrorKind::Closed => None,
    }
}

/// Whether the same command can succeed.
fn again(retry: Retry) -> Option<&'static str> {
    match retry {
        Retry::Now => Some("type the same command again"),
        Retry::Later => {
            Some("type the same command again: it goes on where this one was, if it can")
        }
        Retry::NewerSnapshot => {
            Some("type the same command again: it asks for a snapshot of what is there then")
        }
        Retry::Never => None,
    }
}

impl From<LocationError> for Failure {
    fn from(error: LocationError) -> Self {
        let exit = match &error {
            LocationError::Unknown { .. } => Exit::FolderForeign,
            LocationError::Unreadable { .. } => Exit::FolderUnusable,
            LocationError::Missing(_)
            | LocationError::NoStore(_)
            | LocationError::NoFolder(_)
            | LocationError::Taken { .. }
            | LocationError::Memory => Exit::Usage,
        };
        Self::because(exit, &error)
    }
}

impl From<SourceError> for Failure {
    fn from(error: SourceError) -> Self {
        match error {
            SourceError::Store(error) => error.into(),
            SourceError::NotOwner(_) => Self::because(Exit::NotOwner, &error),
            SourceError::Offer(_) => Self::because(Exit::Failed, &error),
        }
    }
}

impl From<data::SourceError> for Failure {
    fn from(error: data::SourceError) -> Self {
        use data::SourceError as Error;
        let (exit, advice) = match &error {
            Error::NoCa(_) | Error::NoTls(_) | Error::NoName(_) | Error::Tls(_) => {
                (Exit::Usage, None)
            }
            Error::Broken { error, .. } => {
                let usual =
                    "see that it runs, with that --data-listen, and can be reached from here";
                (Exit::NoBroker, Some(of_tls(error).unwrap_or(usual)))
            }
            Error::Refused { busy: true, .. } => {
                (Exit::Failed, Some("type the same command again later"))
            }
            Error::Refused { .. } | Error::TakenBack(_) => (Exit::Failed, None),
        };
        Self::because(exit, &error).and(advice)
    }
}

/// What to do about an error of TLS: whoever is there does answer.
fn of_tls(error: &io::Error) -> Option<&'static str> {
    let error = error.get_ref()?.downcast_ref::<rustls::Error>()?;
    Some(match error {
        rustls::Error::InvalidCertificate(_) => {
            "see that --tls-ca has what signed the certificate of that broker, and that this is of the host in the URL and not out of date"
        }
        rustls::Error::AlertReceived(
            AlertDescription::CertificateRequired
            | AlertDescription::NoCertificate
            | AlertDescription::BadCertificate
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::CertificateRevoked
            | AlertDescription::CertificateExpired
            | AlertDescription::CertificateUnknown
            | AlertDescription::UnknownCA
            | AlertDescription::AccessDenied,
        ) => {
            "see that --tls-certificate and --tls-key are given, and signed by what that broker has as --data-tls-client-ca"
        }
        _ => "see that TLS is spoken there: with --data-tls-certificate and --data-tls-key",
    })
}

impl Failure {
    /// Of a backup, with what to do if it is damaged.
    pub(super) fn of_backup(error: &BackupError, if_damaged: &str) -> Self {
        let exit = match error {
            BackupError::NotABackup(_) => Exit::Usage,
            BackupError::Io { source, .. } if source.kind() == io::ErrorKind::NotFound => {
                Exit::Usage
            }
            BackupError::Version { .. } | BackupError::Foreign { .. } => Exit::FolderForeign,
            BackupError::InUse(_) => Exit::FolderInUse,
            BackupError::Cut { .. } | BackupError::Damaged { .. } | BackupError::Io { .. } => {
                Exit::FolderUnusable
            }
            BackupError::Exists { .. } => Exit::Failed,
        };
        let is_damaged = matches!(error, BackupError::Damaged { .. } | BackupError::Cut { .. });
        Self::because(exit, error).and(is_damaged.then_some(if_damaged))
    }
}

impl From<BackupError> for Failure {
    fn from(error: BackupError) -> Self {
        Self::of_backup(&error, "take another copy of it")
    }
}

#[cfg(test)]
mod tests;
