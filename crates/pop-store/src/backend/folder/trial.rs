//! A cut of an engine's file of which only the opened store can tell whether it was right.
//!
//! Until then a copy of the file as it was found lies beside it.

use std::{
    ffi::OsString,
    fs::{self, File, OpenOptions},
    io,
    path::{Path, PathBuf},
};

use super::sync_folder;

/// A file that was cut on trial, if there is one.
#[derive(Debug, Default)]
#[must_use = "the cut is to be confirmed or undone"]
pub(crate) struct Trial(Option<PathBuf>);

impl Trial {
    /// Cuts `file` to `length`, and keeps a copy of it.
    pub(crate) fn cut(file: &Path, length: usize) -> io::Result<Self> {
        // Renamed when it is whole, and there before the cut is: a crash must not leave half
        // a file to go back to, nor none.
        let new = unfinished_copy_of(file);
        fs::copy(file, &new)?;
        File::open(&new)?.sync_all()?;
        fs::rename(new, copy_of(file))?;
        file.parent().map_or(Ok(()), sync_folder)?;
        cut(file, length)?;
        Ok(Self(Some(file.to_owned())))
    }

    /// Puts `file` back if a crash came between its cut and the verdict. A copy that a crash
    /// left unfinished goes: its file was not cut yet.
    pub(crate) fn recover(file: &Path) -> io::Result<()> {
        match fs::remove_file(unfinished_copy_of(file)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        match copy_of(file).try_exists()? {
            true => restore(file),
            false => Ok(()),
        }
    }

    /// The store holds all that was synced: the cut stays.
    pub(crate) fn confirm(self) -> io::Result<()> {
        let file = self.0.as_deref();
        file.map_or(Ok(()), |it| fs::remove_file(copy_of(it)))
    }

    /// It does not: the file goes back to what it was. The engine must be closed.
    pub(crate) fn undo(self) -> io::Result<()> {
        self.0.as_deref().map_or(Ok(()), restore)
    }
}

/// Cuts `file` to `length`, durably.
pub(crate) fn cut(file: &Path, length: usize) -> io::Result<()> {
    let file = OpenOptions::new().write(true).open(file)?;
    file.set_len(u64::try_from(length).map_err(io::Error::other)?)?;
    file.sync_all()
}

/// A name that is none of the engine's.
fn beside(file: &Path, ending: &str) -> PathBuf {
    let mut name = OsString::from(file);
    name.push(ending);
    name.into()
}

fn unfinished_copy_of(file: &Path) -> PathBuf {
    beside(file, ".before-cut-new")
}

fn copy_of(file: &Path) -> PathBuf {
    beside(file, ".before-cut")
}

fn restore(file: &Path) -> io::Result<()> {
    fs::rename(copy_of(file), file)
}
