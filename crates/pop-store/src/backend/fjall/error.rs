//! What a failure of fjall means to a caller of the store.

use fjall::Error as FjallError;

use super::NAME;
use crate::{Error, ErrorKind};

/// A failed open.
pub(super) fn open_failed(error: FjallError) -> Error {
    let (kind, advice) = match &error {
        FjallError::Locked => (ErrorKind::Locked, "stop the other process"),
        FjallError::InvalidVersion(_) => (
            ErrorKind::Incompatible,
            "the engine's files are of another version of fjall: dump with that one and restore here",
        ),
        FjallError::Io(_) => (
            ErrorKind::Unavailable,
            "the engine's files can't be read or written",
        ),
        _ => (
            ErrorKind::Corrupt,
            "the engine's files are damaged: restore the folder from a backup",
        ),
    };
    Error::new(kind, NAME, "open")
        .with_detail(advice)
        .with_source(error)
}

/// A failed read: nothing was changed by it.
pub(super) fn read_failed(error: FjallError) -> Error {
    let kind = match &error {
        FjallError::Io(_) => ErrorKind::Unavailable,
        FjallError::Poisoned => ErrorKind::Poisoned,
        _ => ErrorKind::Corrupt,
    };
    Error::new(kind, NAME, "read")
        .with_detail(error.to_string())
        .with_source(error)
}

/// A failed write or sync: how much of it happened is not known.
pub(super) fn write_failed(error: FjallError) -> Error {
    Error::new(ErrorKind::InDoubt, NAME, "write")
        .with_detail(error.to_string())
        .with_source(error)
}
