//! The one error of the store seam: a kind to branch on, and enough to tell an operator.

use std::fmt;

use bytes::Bytes;

use crate::Keyspace;

/// What a store call returns.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What a caller does about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The store would not do it now, and nothing happened: try again later.
    Unavailable,
    /// The disk is full, or nearly so, and nothing happened: free some space and try again.
    NoSpace,
    /// A precondition did not hold, and nothing happened: read again and decide anew.
    /// [`Error::conflict`] names the key.
    Conflict,
    /// A write may or may not have happened: don't write it again; read it after reopening.
    InDoubt,
    /// An earlier write or sync failed, so nothing more is done, and nothing happened:
    /// drop all state built on this store, reopen it and load again.
    Poisoned,
    /// Stored bytes are not what was written: stop and inspect; nothing was changed.
    Corrupt,
    /// This backend can't do that: ask its capabilities first.
    Unsupported,
    /// The call itself is wrong, for instance too big: fix the caller.
    Invalid,
    /// Another process has the folder open: stop it, or choose another folder.
    Locked,
    /// The folder was written by another backend or format version: the message says
    /// which program or option reads it.
    Incompatible,
}

impl ErrorKind {
    /// Every kind, so that whoever gives each of them a meaning of its own can see in a test
    /// that it has left none out.
    pub const ALL: [Self; 10] = [
        Self::Unavailable,
        Self::NoSpace,
        Self::Conflict,
        Self::InDoubt,
        Self::Poisoned,
        Self::Corrupt,
        Self::Unsupported,
        Self::Invalid,
        Self::Locked,
        Self::Incompatible,
    ];

    /// Whether the store would not begin and goes on: the same call may succeed later.
    #[must_use]
    pub const fn is_refusal(self) -> bool {
        matches!(self, Self::Unavailable | Self::NoSpace)
    }
}

/// Whether a failed write had an effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// The write is known to have had no effect, now and after any restart.
    Refused,
    /// Nobody knows before the store is reopened and read.
    InDoubt,
}

/// A failed store call.
#[derive(Debug)]
pub struct Error(Box<Inner>);

// Boxed, so that the happy path of every call moves one pointer and not this.
#[derive(Debug)]
struct Inner {
    kind: ErrorKind,
    backend: &'static str,
    operation: &'static str,
    detail: Option<String>,
    conflict: Option<(Keyspace, Bytes)>,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl Error {
    /// An error of `backend` in `operation`.
    #[must_use]
    pub fn new(kind: ErrorKind, backend: &'static str, operation: &'static str) -> Self {
        Self(Box::new(Inner {
            kind,
            backend,
            operation,
            detail: None,
            conflict: None,
            source: None,
        }))
    }

    /// A failed precondition on `key`.
    #[must_use]
    pub fn conflict_on(backend: &'static str, keyspace: Keyspace, key: Bytes) -> Self {
        let mut error = Self::new(ErrorKind::Conflict, backend, "write");
        error.0.conflict = Some((keyspace, key));
        error
    }

    /// Adds what exactly is wrong and what can be done about it.
    #[must_use]
    pub fn with_detail(mut self, detail: impl Into<String>) -> Self {
        self.0.detail = Some(detail.into());
        self
    }

    /// Adds the engine's own error.
    #[must_use]
    pub fn with_source(
        mut self,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        self.0.source = Some(source.into());
        self
    }

    /// What a caller does about it.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The backend that failed.
    #[must_use]
    pub fn backend(&self) -> &'static str {
        self.0.backend
    }

    /// What exactly is wrong, and what can be done about it.
    #[must_use]
    pub fn detail(&self) -> Option<&str> {
        self.0.detail.as_deref()
    }

    /// The key whose precondition failed.
    #[must_use]
    pub fn conflict(&self) -> Option<(Keyspace, &Bytes)> {
        self.0
            .conflict
            .as_ref()
            .map(|(keyspace, key)| (*keyspace, key))
    }

    /// Whether the write that got this error had an effect.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        match self.0.kind {
            ErrorKind::InDoubt => Outcome::InDoubt,
            _ => Outcome::Refused,
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        let source = self.0.source.as_deref()?;
        Some(source)
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unavailable => "unavailable, nothing was changed",
            Self::NoSpace => "no space, nothing was changed",
            Self::Conflict => "precondition failed, nothing was changed",
            Self::InDoubt => "in doubt, it may have happened",
            Self::Poisoned => "poisoned by an earlier failure until reopened",
            Self::Corrupt => "corrupt",
            Self::Unsupported => "not supported by this backend",
            Self::Invalid => "invalid call",
            Self::Locked => "in use by another process",
            Self::Incompatible => "incompatible format",
        })
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} store: {} failed ({})",
            self.0.backend, self.0.operation, self.0.kind
        )?;
        if let Some(detail) = &self.0.detail {
            write!(f, ": {detail}")?;
        }
        if let Some((keyspace, key)) = &self.0.conflict {
            write!(f, ": keyspace {keyspace}, key {}", key.escape_ascii())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Mutant: a kind is added and not listed, and nobody asks what becomes of it.
    #[test]
    fn all_kinds_are_listed() {
        // A kind that is added does not compile here: list it, at its place.
        let place = |kind: ErrorKind| match kind {
            ErrorKind::Unavailable => 0,
            ErrorKind::NoSpace => 1,
            ErrorKind::Conflict => 2,
            ErrorKind::InDoubt => 3,
            ErrorKind::Poisoned => 4,
            ErrorKind::Corrupt => 5,
            ErrorKind::Unsupported => 6,
            ErrorKind::Invalid => 7,
            ErrorKind::Locked => 8,
            ErrorKind::Incompatible => 9,
        };
        let places: Vec<usize> = ErrorKind::ALL.into_iter().map(place).collect();
        assert_eq!(places, (0..10).collect::<Vec<_>>());
    }
}
