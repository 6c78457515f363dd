//! A cut of a journal of which only the opened store can tell whether it was right.
//!
//! Until then a copy of the journal as it was found lies beside it.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

/// A journal that was cut on trial, if there is one.
#[derive(Debug, Default)]
#[must_use = "the cut is to be confirmed or undone"]
pub(super) struct Trial(Option<PathBuf>);

impl Trial {
    /// Keeps a copy of `journal`, which is about to be cut.
    pub(super) fn begin(journal: &Path) -> io::Result<Self> {
        // Renamed when it is whole: a crash must not leave half a journal to go back to.
        let new = journal.with_extension("jnl-before-cut-new");
        fs::copy(journal, &new)?;
        File::open(&new)?.sync_all()?;
        fs::rename(new, copy_of(journal))?;
        Ok(Self(Some(journal.to_owned())))
    }

    /// Puts `journal` back if a crash came between its cut and the verdict.
    pub(super) fn recover(journal: &Path) -> io::Result<()> {
        match copy_of(journal).try_exists()? {
            true => restore(journal),
            false => Ok(()),
        }
    }

    /// The store holds all that was synced: the cut stays.
    pub(super) fn confirm(self) -> io::Result<()> {
        let journal = self.0.as_deref();
        journal.map_or(Ok(()), |it| fs::remove_file(copy_of(it)))
    }

    /// It does not: the journal goes back to what it was. fjall must be closed.
    pub(super) fn undo(self) -> io::Result<()> {
        self.0.as_deref().map_or(Ok(()), restore)
    }
}

fn copy_of(journal: &Path) -> PathBuf {
    journal.with_extension("jnl-before-cut")
}

fn restore(journal: &Path) -> io::Result<()> {
    fs::rename(copy_of(journal), journal)
}
