//! What a failure of sled means to a caller of the store.

use std::{fs, io, path::Path};

use sled::Error as SledError;

use super::NAME;
use crate::{Error, ErrorKind};

/// A failed open of the database at `path`.
pub(super) fn open_failed(error: SledError, path: &Path) -> Error {
    let (kind, advice) = match &error {
        SledError::Io(it) if it.kind() == io::ErrorKind::WouldBlock => {
            (ErrorKind::Locked, "stop the other process".to_owned())
        }
        SledError::Io(_) => (
            ErrorKind::Unavailable,
            "the engine's files can't be read or written".to_owned(),
        ),
        SledError::Unsupported(_) => (
            ErrorKind::Incompatible,
            "the engine's files are of another version of sled".to_owned(),
        ),
        _ => (ErrorKind::Corrupt, damage(path)),
    };
    Error::new(kind, NAME, "open")
        .with_detail(format!("{advice}: {error}"))
        .with_source(error)
}

/// Names a snapshot file that a crash left unfinished: sled refuses those for good, though
/// its log is whole. It is never deleted from here.
fn damage(path: &Path) -> String {
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    let unfinished = entries.filter(|entry| {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let empty = entry.metadata().is_ok_and(|it| it.len() == 0);
        name.starts_with("snap.") && (name.ends_with(".generating") || empty)
    });
    match unfinished.map(|it| it.path()).next() {
        Some(file) => format!(
            "{} was left unfinished by a crash, a known fault of sled: keep a copy of the folder, \
             move that file out and open again",
            file.display()
        ),
        None => "the engine's files are damaged: restore the folder from a backup".to_owned(),
    }
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
