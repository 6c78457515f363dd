//! The store on [sled](https://docs.rs/sled) 0.34: for evaluation, tests and small devices,
//! not for production.
//!
//! What sled leaves to do, and is done here:
//!
//! - `flush` does not sync on Linux: it ends with `sync_file_range`, which leaves the file's
//!   length and the disk's cache alone. So a sync is `flush` and then `fdatasync` of its file.
//!   And it follows every write, also one that nobody waits for: sled writes over the old
//!   place of a row once it has flushed the new one, and a power cut that takes the new one
//!   back would lose a row that was synced long before.
//! - It takes the snapshot file that a crash left unfinished for one, and refuses to open. Its
//!   log has all that such a file can have, so it is removed before.
//! - Its large values go to blob files that are never synced. So a value is cut into pieces
//!   that stay in the log.
//! - Its batches are atomic in one tree only. So there is one, and a space is a prefix.
//! - Its iterators see what is written meanwhile. So reads and writes exclude each other.
//!
//! What is sled's own and stays: the log grows under churn and is given back late; it is no
//! longer maintained. It has no snapshots: the store keeps what is written over while one is
//! open.
//!
//! A space has no tree of its own that could go at once. So one that is dropped is taken off
//! the list, and its rows go with later writes, some with each; what is left, the next open
//! deletes.

mod error;
mod log;
mod pieces;
mod registry;

#[cfg(test)]
mod tests;

use std::{
    fmt, fs, io,
    panic::catch_unwind,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use bytes::Bytes;
use parking_lot::RwLock;
use sled::{Batch, Db};

use self::{log::LogFile, pieces::Pieces, registry::Registry};
use super::{
    engine::{Changes, Engine, EngineStore, OpenOptions, Space},
    folder::DataFolder,
};
use crate::{Capabilities, Direction, Entry, Error, ErrorKind, Result, Scan};

const NAME: &str = "sled";
const CACHE_BYTES: u64 = 64 << 20;
// How long a database that was dropped is waited for: its threads need some milliseconds.
const LOCKED_PAUSE: Duration = Duration::from_millis(10);
const LOCKED_TRIES_MAX: u32 = 200;
// How many keys of dropped spaces go with one write: more than the pieces of the largest
// value, so that what is dropped goes faster than what takes its place can come.
const DROP_KEYS_MAX: usize = 512;

/// A store on sled.
pub type SledStore = EngineStore<SledEngine>;

impl SledStore {
    /// Opens the store in the folder `path`, which is made if it is not there.
    ///
    /// It blocks: call it before the runtime serves, or from a thread that may block.
    ///
    /// # Errors
    ///
    /// `Locked` if another process has the folder, `Incompatible` if another backend or
    /// format has it, `Corrupt` if its files are damaged or end before what was synced,
    /// `Unavailable` if they can't be read or written.
    pub fn open(path: impl AsRef<Path>, options: OpenOptions) -> Result<Self> {
        let folder = DataFolder::claim(path, NAME)?;
        let path = folder.engine(|path| SledEngine::open(path).map(drop))?;
        let engine = SledEngine::open(&path)?;
        Self::start(engine, Some(folder), &options)
    }
}

/// sled as an [`Engine`].
pub struct SledEngine {
    db: Db,
    log: LogFile,
    // Held for reading by every read and for writing by every write, because a value is in
    // pieces and an iterator shows what is written meanwhile.
    registry: RwLock<Registry>,
    path: PathBuf,
}

impl SledEngine {
    /// Opens or makes a database at `path`.
    ///
    /// # Errors
    ///
    /// `Corrupt` for damaged files, `Unavailable` if they can't be read or written.
    pub fn open(path: &Path) -> Result<Self> {
        drop_unfinished_snapshots(path).map_err(|error| {
            Error::new(ErrorKind::Unavailable, NAME, "open")
                .with_detail(format!("the files in {} can't be swept", path.display()))
                .with_source(error)
        })?;
        // Over some damages sled panics.
        let opened = catch_unwind(|| open_once_free(path));
        let db = opened
            .map_err(|_| {
                Error::new(ErrorKind::Corrupt, NAME, "open").with_detail(
                    "the engine panicked over its files: restore the folder from a backup",
                )
            })?
            .map_err(|error| error::open_failed(error, path))?;
        let log = LogFile::open(path)?;
        let registry = Registry::load(&db)?;
        let engine = Self {
            db,
            log,
            registry: RwLock::new(registry),
            path: path.to_owned(),
        };
        engine.finish_drops()?;
        Ok(engine)
    }

    /// Deletes what is left of dropped spaces.
    fn finish_drops(&self) -> Result<()> {
        let mut registry = self.registry.write();
        while registry.has_dropped() {
            let mut batch = Batch::default();
            self.delete_dropped(&mut registry, &mut batch)?;
            self.commit(batch)?;
        }
        Ok(())
    }

    /// Adds to `batch` that some of what is left of dropped spaces goes.
    fn delete_dropped(&self, registry: &mut Registry, batch: &mut Batch) -> Result<()> {
        let mut room = DROP_KEYS_MAX;
        for id in registry.dropped() {
            let prefixes = pieces::prefixes(id).into_iter();
            let keys = prefixes.flat_map(|it| self.db.scan_prefix(it).keys());
            for key in keys.take(room) {
                batch.remove(key.map_err(error::write_failed)?);
                room -= 1;
            }
            if room == 0 {
                break;
            }
            registry.forget(id, batch);
        }
        Ok(())
    }

    /// Applies `batch`, synced: what drops a space is written over old places, too.
    fn commit(&self, batch: Batch) -> Result<()> {
        self.hand_over(batch)?;
        self.log.sync()
    }

    /// Applies `batch` and hands it to the operating system.
    fn hand_over(&self, batch: Batch) -> Result<()> {
        self.db.apply_batch(batch).map_err(error::write_failed)?;
        self.db.flush().map_err(error::write_failed)?;
        Ok(())
    }
}

/// Opens the database once its lock is free: a database that was dropped holds it until its
/// own threads are done. Another process has the lock of the store's folder as well, and is
/// met there.
fn open_once_free(path: &Path) -> sled::Result<Db> {
    let config = sled::Config::new().path(path).cache_capacity(CACHE_BYTES);
    for _ in 0..LOCKED_TRIES_MAX {
        match config.open() {
            Err(error) if error::is_locked(&error) => {
                #[expect(clippy::disallowed_methods, reason = "waits for threads of sled")]
                thread::sleep(LOCKED_PAUSE);
            }
            other => return other,
        }
    }
    config.open()
}

/// Removes what a crash left of a snapshot that sled was writing.
fn drop_unfinished_snapshots(folder: &Path) -> io::Result<()> {
    if !folder.is_dir() {
        return Ok(());
    }
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name.starts_with("snap.") && name.ends_with(".generating") {
            let file = entry.path();
            tracing::info!(file = %file.display(), "removing what a crash left of a snapshot");
            fs::remove_file(file)?;
        }
    }
    Ok(())
}

impl fmt::Debug for SledEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SledEngine")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

impl Engine for SledEngine {
    fn name(&self) -> &'static str {
        NAME
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::core().with_durable(0)
    }

    fn spaces(&self) -> Result<Vec<Space>> {
        Ok(self.registry.read().spaces())
    }

    fn open_space(&self, space: &Space) -> Result<()> {
        let mut registry = self.registry.write();
        if registry.find(space).is_some() {
            return Ok(());
        }
        let mut batch = Batch::default();
        registry.add(space, &mut batch);
        self.commit(batch)
    }

    fn drop_space(&self, space: &Space) -> Result<()> {
        let mut batch = Batch::default();
        self.registry.write().drop_space(space, &mut batch);
        self.commit(batch)
    }

    fn apply(&self, changes: &Changes, _sync: bool) -> Result<()> {
        let mut registry = self.registry.write();
        // In a sled batch the later call for a key wins.
        let mut batch = Batch::default();
        for (space, start, end) in &changes.range_deletes {
            let pieces = Pieces::new(&self.db, registry.id(space)?);
            pieces.remove_range(start, end, &mut batch)?;
        }
        for operation in &changes.operations {
            let pieces = Pieces::new(&self.db, registry.id(&operation.space)?);
            pieces.remove(&operation.key, &mut batch)?;
            if let Some(value) = &operation.value {
                pieces.insert(&operation.key, value, &mut batch);
            }
        }
        self.delete_dropped(&mut registry, &mut batch)?;
        self.hand_over(batch)?;
        // Reads go on meanwhile.
        drop(registry);
        self.log.sync()
    }

    fn sync(&self) -> Result<()> {
        self.db.flush().map_err(error::write_failed)?;
        self.log.sync()
    }

    fn get(&self, space: &Space, key: &[u8]) -> Result<Option<Bytes>> {
        let registry = self.registry.read();
        Pieces::new(&self.db, registry.id(space)?).get(key)
    }

    fn scan(&self, space: &Space, scan: &Scan) -> Result<Vec<Entry>> {
        let registry = self.registry.read();
        let pieces = Pieces::new(&self.db, registry.id(space)?);
        let entries = pieces.range(&scan.start, scan.end.as_deref());
        match scan.direction {
            Direction::Forward => scan.collect(entries),
            Direction::Backward => scan.collect(entries.rev()),
        }
    }
}
