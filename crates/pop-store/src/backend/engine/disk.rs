//! Refuses writes before the disk is full, because afterwards no engine knows what it wrote.

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use super::pace;
use crate::{Error, ErrorKind, Result};

// Both bound how much can be written on an old answer: asking costs a system call.
const CHECK_INTERVAL: Duration = Duration::from_millis(250);
const CHECK_BYTES: usize = 16 << 20;

/// Watches the free space of one folder.
#[derive(Debug)]
pub(super) struct DiskGuard {
    folder: PathBuf,
    free_bytes_min: u64,
    checked_at: Option<Instant>,
    written_since: usize,
}

impl DiskGuard {
    pub(super) fn new(folder: PathBuf, free_bytes_min: u64) -> Self {
        Self {
            folder,
            free_bytes_min,
            checked_at: None,
            written_since: 0,
        }
    }

    /// One more for the same folder, for another thread.
    pub(super) fn another(&self) -> Self {
        Self::new(self.folder.clone(), self.free_bytes_min)
    }

    /// Lets `bytes` through, or refuses while too little is free.
    pub(super) fn admit(&mut self, backend: &'static str, bytes: usize) -> Result<()> {
        self.written_since = self.written_since.saturating_add(bytes);
        let fresh = self
            .checked_at
            .is_some_and(|at| pace::now().duration_since(at) < CHECK_INTERVAL);
        if fresh && self.written_since < CHECK_BYTES {
            return Ok(());
        }
        let free = fs4::available_space(&self.folder).map_err(|error| {
            Error::new(ErrorKind::Unavailable, backend, "write")
                .with_detail(format!(
                    "free space of {} is unknown",
                    self.folder.display()
                ))
                .with_source(error)
        })?;
        if free < self.free_bytes_min {
            // Not remembered: the next write asks again, so that freed space counts at once.
            self.checked_at = None;
            return Err(
                Error::new(ErrorKind::NoSpace, backend, "write").with_detail(format!(
                    "disk nearly full: {} KiB free in {}, at least {} KiB are kept free; \
                 free some space, writes then go on by themselves",
                    free >> 10,
                    self.folder.display(),
                    self.free_bytes_min >> 10,
                )),
            );
        }
        self.checked_at = Some(pace::now());
        self.written_since = 0;
        Ok(())
    }
}
