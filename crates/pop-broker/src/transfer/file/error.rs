//! What can be wrong with a backup, and what to do about it.

use std::{
    io,
    path::{Path, PathBuf},
};

use super::{super::Manifest, BackupFile};

/// A backup that can't be read or written.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// It is something else.
    #[error("{} is no backup of a broker", .0.display())]
    NotABackup(PathBuf),
    /// It was written by another version.
    #[error("{} has version {found} of the backup format, this program reads version {}: use the program that wrote it", .path.display(), super::record::VERSION)]
    Version {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u8,
    },
    /// It is of another kind of store, or of a later version's keyspaces.
    #[error("{} does not hold what this program keeps: {what}", .path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// What is different.
        what: String,
    },
    /// It ends before its end.
    #[error("{} is not whole: it breaks off at byte {at}", .path.display())]
    Cut {
        /// The file.
        path: PathBuf,
        /// Where what is whole ends.
        at: u64,
    },
    /// It is not what was written.
    #[error("{} is damaged at byte {at}: {what}", .path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Where the damage begins.
        at: u64,
        /// What was found.
        what: &'static str,
    },
    /// Something else has its name, and is never written over.
    #[error("{} is there already: {what}choose another name, or move it away", .path.display())]
    Exists {
        /// The file.
        path: PathBuf,
        /// What it is, as far as it says so, up to the advice.
        what: String,
    },
    /// Another process writes it.
    #[error("{} is being written by another process", .0.display())]
    InUse(PathBuf),
    /// The system refused.
    #[error("{} can't be {doing}", .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What was tried.
        doing: &'static str,
        /// Why it failed.
        source: io::Error,
    },
}

impl BackupError {
    /// What has the name `path`, and why it is left.
    #[must_use]
    pub fn exists(path: &Path) -> Self {
        let what = match BackupFile::open(path) {
            Ok(file) => {
                let Manifest {
                    taken_at,
                    rows,
                    bytes,
                    ..
                } = Manifest::of(&file);
                format!(
                    "a backup as of {taken_at} with {rows} rows of {bytes} bytes. If that is the \
                     one that was wanted, nothing is left to do; else "
                )
            }
            Err(Self::NotABackup(_)) => "something else than a backup; ".into(),
            Err(error) => format!("{error}; "),
        };
        let path = path.to_owned();
        Self::Exists { path, what }
    }

    /// What turns an error of the system into one of this file.
    pub(in crate::transfer) fn io(
        path: &Path,
        doing: &'static str,
    ) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io {
            path,
            doing,
            source,
        }
    }
}
