//! What a failure of RocksDB means to a caller of the store.

use rocksdb::{Error as RocksError, ErrorKind as RocksKind};

use super::NAME;
use crate::{Error, ErrorKind};

/// A failed open.
pub(super) fn open_failed(error: RocksError) -> Error {
    let (kind, advice) = match error.kind() {
        RocksKind::IOError => (
            ErrorKind::Unavailable,
            "the engine's files can't be read or written",
        ),
        RocksKind::NotSupported | RocksKind::InvalidArgument => (
            ErrorKind::Incompatible,
            "the engine's files are of another version of RocksDB: dump with that one and restore here",
        ),
        _ => (
            ErrorKind::Corrupt,
            "the engine's files are damaged: restore the folder from a backup",
        ),
    };
    Error::new(kind, NAME, "open")
        .with_detail(format!("{advice}: {error}"))
        .with_source(error)
}

/// A failed read: nothing was changed by it.
pub(super) fn read_failed(error: RocksError) -> Error {
    let kind = match error.kind() {
        RocksKind::Corruption => ErrorKind::Corrupt,
        _ => ErrorKind::Unavailable,
    };
    Error::new(kind, NAME, "read")
        .with_detail(error.to_string())
        .with_source(error)
}

/// A failed write or sync: how much of it happened is not known, unless RocksDB would have
/// stalled and says so before it begins.
pub(super) fn write_failed(error: RocksError) -> Error {
    match error.kind() {
        RocksKind::Incomplete => Error::new(ErrorKind::Unavailable, NAME, "write")
            .with_detail(
                "flushes and compactions are behind the writes: try again in a moment, and if \
                 it goes on, give the store a faster disk",
            )
            .with_source(error),
        _ => Error::new(ErrorKind::InDoubt, NAME, "write")
            .with_detail(error.to_string())
            .with_source(error),
    }
}

/// A failed load beside what is in use, which is as it was.
pub(super) fn load_failed(error: RocksError) -> Error {
    // RocksDB says so in words alone.
    let kind = match error.to_string().contains("No space left") {
        true => ErrorKind::NoSpace,
        false => ErrorKind::Unavailable,
    };
    Error::new(kind, NAME, "load")
        .with_detail(error.to_string())
        .with_source(error)
}
