//! The sync that sled leaves out.

use std::{
    fs::File,
    path::Path,
    sync::atomic::{AtomicU64, Ordering},
};

use super::{NAME, error};
use crate::{Error, ErrorKind, Result, backend::folder::sync_folder};

// sled's log; everything but large values and its own snapshots is in it.
const LOG: &str = "db";

/// sled's log file, opened a second time: a sync goes by the file, whichever handle wrote.
#[derive(Debug)]
pub(super) struct LogFile {
    file: File,
    sync_count: AtomicU64,
}

impl LogFile {
    /// Opens the log of the database in `folder`, and makes its name durable.
    pub(super) fn open(folder: &Path) -> Result<Self> {
        let failed = |error| {
            Error::new(ErrorKind::Unavailable, NAME, "open")
                .with_detail(format!("{} can't be synced", folder.display()))
                .with_source(error)
        };
        let file = File::open(folder.join(LOG)).map_err(failed)?;
        sync_folder(folder).map_err(failed)?;
        Ok(Self {
            file,
            sync_count: AtomicU64::new(0),
        })
    }

    /// Makes what was flushed survive a power cut.
    pub(super) fn sync(&self) -> Result<()> {
        self.file.sync_data().map_err(error::write_failed)?;
        // Only counts; nothing is ordered by it.
        self.sync_count.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// How many syncs succeeded.
    #[cfg(test)]
    pub(super) fn sync_count(&self) -> u64 {
        self.sync_count.load(Ordering::Relaxed)
    }
}
