//! How a store on a blocking engine is opened.

use std::time::Duration;

use crate::Keyspace;

/// Options shared by all backends on an [`Engine`](super::Engine).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct OpenOptions {
    /// The keyspaces to open; one that is not there yet is made.
    pub keyspaces: Vec<Keyspace>,
    /// A buffered write is synced after at most this long.
    pub buffered_sync: Duration,
    /// Writes are refused while the file system has less than this free, so that the
    /// engine never meets a full disk in the middle of a write.
    pub free_bytes_min: u64,
    /// How many threads read.
    pub reader_count: usize,
    /// How much a keyspace gathers in memory before it is written as a table, where the
    /// engine has tables. Four times as much may be in its logs.
    pub memtable_bytes: u64,
    /// How many bytes of batches may wait for the writer; more wait in their callers.
    pub queue_bytes_max: u32,
    /// How much is kept in memory for snapshots that are open, where the engine has none of
    /// its own: what was written over since. What is beyond this goes to the disk.
    pub snapshot_bytes: u64,
    /// Whether a staging that was checkpointed is kept, to be resumed; else an open sweeps it.
    pub keep_staging: bool,
}

impl OpenOptions {
    /// The defaults, with these keyspaces.
    #[must_use]
    pub fn new(keyspaces: &[Keyspace]) -> Self {
        Self {
            keyspaces: keyspaces.to_vec(),
            buffered_sync: Duration::from_millis(50),
            free_bytes_min: 64 << 20,
            reader_count: 3,
            memtable_bytes: 32 << 20,
            queue_bytes_max: 32 << 20,
            snapshot_bytes: 64 << 20,
            keep_staging: false,
        }
    }

    /// Sets how long a buffered write may stay unsynced.
    #[must_use]
    pub fn with_buffered_sync(mut self, buffered_sync: Duration) -> Self {
        self.buffered_sync = buffered_sync;
        self
    }

    /// Sets how much of the disk must stay free.
    #[must_use]
    pub fn with_free_bytes_min(mut self, free_bytes_min: u64) -> Self {
        self.free_bytes_min = free_bytes_min;
        self
    }

    /// Sets how many threads read; at least one does.
    #[must_use]
    pub fn with_reader_count(mut self, reader_count: usize) -> Self {
        self.reader_count = reader_count;
        self
    }

    /// Sets how much a keyspace gathers in memory before it is written as a table.
    #[must_use]
    pub fn with_memtable_bytes(mut self, memtable_bytes: u64) -> Self {
        self.memtable_bytes = memtable_bytes;
        self
    }

    /// Sets how much is kept in memory for snapshots that are open.
    #[must_use]
    pub fn with_snapshot_bytes(mut self, snapshot_bytes: u64) -> Self {
        self.snapshot_bytes = snapshot_bytes;
        self
    }

    /// Keeps a staging that was checkpointed, for who goes on with it. Without this an open
    /// sweeps it, so that it does not hold its room on disk for long.
    #[must_use]
    pub fn with_staging_kept(mut self) -> Self {
        self.keep_staging = true;
        self
    }

    /// Sets how many bytes of batches may wait for the writer; one batch always may.
    #[must_use]
    pub fn with_queue_bytes_max(mut self, queue_bytes_max: u32) -> Self {
        self.queue_bytes_max = queue_bytes_max;
        self
    }
}
