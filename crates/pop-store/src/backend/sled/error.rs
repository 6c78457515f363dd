//! What a failure of sled means to a caller of the store.

use std::path::Path;

use sled::Error as SledError;

use super::NAME;
use crate::{Error, ErrorKind};

/// Whether an open failed because the database is open already. sled says so in words alone.
pub(super) fn is_locked(error: &SledError) -> bool {
    matches!(error, SledError::Io(error) if error.to_string().contains("could not acquire lock"))
}

/// A failed open of the database at `path`.
pub(super) fn open_failed(error: SledError, path: &Path) -> Error {
    let (kind, advice) = match &error {
        error if is_locked(error) => (ErrorKind::Locked, "stop the other process".to_owned()),
        SledError::Io(_) => (
            ErrorKind::Unavailable,
            "the engine's files can't be read or written".to_owned(),
        ),
        SledError::Unsupported(_) => (
            ErrorKind::Incompatible,
            "the engine's files are of another version of sled".to_owned(),
        ),
        _ => (
            ErrorKind::Corrupt,
            format!(
                "the engine's files in {} are damaged: restore the folder from a backup",
                path.display()
            ),
        ),
    };
    Error::new(kind, NAME, "open")
        .with_detail(format!("{advice}: {error}"))
        .with_source(error)
}

/// A failed read: nothing was changed by it.
pub(super) fn read_failed(error: SledError) -> Error {
    let kind = match &error {
        SledError::Io(_) => ErrorKind::Unavailable,
        _ => ErrorKind::Corrupt,
    };
    Error::new(kind, NAME, "read")
        .with_detail(error.to_string())
        .with_source(error)
}

/// A failed write or sync: how much of it happened is not known.
pub(super) fn write_failed(error: impl Into<SledError>) -> Error {
    let error = error.into();
    Error::new(ErrorKind::InDoubt, NAME, "write")
        .with_detail(error.to_string())
        .with_source(error)
}
