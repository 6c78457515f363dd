//! The store on [RocksDB](https://rocksdb.org).
//!
//! - A space is a column family; a group is one write batch over all of them, and one record
//!   of the log.
//! - A range delete is RocksDB's own: cheap to write, and each slows the reads that cross it
//!   until it is compacted away. It is for whole queues and not for single rows.
//! - A staged load of more than a few rows goes to sorted files, which a space that nobody
//!   reads yet takes over as they are (`bulk`).
//! - Scans have both bounds set where they have them: without its floor, a scan of due work
//!   steps over everything that was deleted before it.

mod bulk;
mod error;
mod estimate;
mod manifest;
mod options;
mod page;
mod snapshot;
mod stall;

#[cfg(test)]
mod tests;

use std::{
    collections::BTreeSet,
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
};

use bytes::Bytes;
use parking_lot::Mutex;
use rocksdb::{
    BoundColumnFamily, Cache, ColumnFamilyDescriptor, DBWithThreadMode, IteratorMode,
    MultiThreaded, Options, ReadOptions, WriteBatch,
};

use self::{bulk::RocksBulk, manifest::SyncedPart, snapshot::RocksSnapshot};
use super::{
    engine::{BulkLoader, Changes, Engine, EngineSnapshot, EngineStore, OpenOptions, Space},
    folder::{DataFolder, remove_unfinished},
};
use crate::{Capabilities, Direction, Entry, Error, ErrorKind, Estimate, Result, Scan};

const NAME: &str = "rocksdb";
// The file that names the manifest: without it there is no database yet.
const CURRENT: &str = "CURRENT";
// The end of a file's name before it is renamed. Of its options RocksDB leaves such a file for
// good: `PurgeObsoleteFiles` keeps each of them.
const UNFINISHED: &str = ".dbtmp";

type Database = DBWithThreadMode<MultiThreaded>;

/// A store on RocksDB.
pub type RocksStore = EngineStore<RocksEngine>;

impl RocksStore {
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
        // RocksDB makes its database so that it can begin again.
        let path = folder.engine(|_| Ok(()))?;
        remove_unfinished(&path, |name| name.ends_with(UNFINISHED)).map_err(|error| {
            Error::new(ErrorKind::Unavailable, NAME, "open")
                .with_detail(format!("{} can't be swept", path.display()))
                .with_source(error)
        })?;
        manifest::mend(&path, &folder, options.memtable_bytes)?;
        let engine = RocksEngine::open(&path, options.memtable_bytes)?;
        Self::start(engine, Some(folder), &options)
    }
}

/// RocksDB as an [`Engine`].
pub struct RocksEngine {
    database: Arc<Database>,
    // RocksDB has no list of the families that it has open.
    spaces: Mutex<BTreeSet<Space>>,
    cache: Cache,
    memtable_bytes: u64,
    path: PathBuf,
    // `None` if it is open to be read alone.
    synced_part: Option<Mutex<SyncedPart>>,
}

impl RocksEngine {
    /// Opens or makes a database at `path`, whose spaces gather so much in memory.
    ///
    /// # Errors
    ///
    /// `Corrupt` for damaged files, `Incompatible` for those of another version,
    /// `Unavailable` if they can't be read or written.
    pub fn open(path: &Path, memtable_bytes: u64) -> Result<Self> {
        let mut engine = Self::open_by(path, memtable_bytes, |options, families| {
            Database::open_cf_descriptors(options, path, families)
        })?;
        let synced_part = SyncedPart::open(path).map_err(|it| manifest::unreadable(path, it))?;
        engine.synced_part = Some(Mutex::new(synced_part));
        Ok(engine)
    }

    /// Opens the database at `path` and leaves every file of it as it is.
    fn open_read_only(path: &Path, memtable_bytes: u64) -> Result<Self> {
        Self::open_by(path, memtable_bytes, |options, families| {
            Database::open_cf_descriptors_read_only(options, path, families, false)
        })
    }

    fn open_by(
        path: &Path,
        memtable_bytes: u64,
        open: impl FnOnce(&Options, Vec<ColumnFamilyDescriptor>) -> Result<Database, rocksdb::Error>,
    ) -> Result<Self> {
        let options = options::database(memtable_bytes);
        let cache = options::cache();
        let names = if path.join(CURRENT).exists() {
            Database::list_cf(&options, path).map_err(error::open_failed)?
        } else {
            Vec::new()
        };
        let spaces = names.iter().filter_map(|it| Space::from_name(it)).collect();
        // All families that exist must be opened, also the one that RocksDB makes itself.
        let families = names
            .into_iter()
            .map(|name| ColumnFamilyDescriptor::new(name, options::space(&cache, memtable_bytes)));
        let database = open(&options, families.collect()).map_err(error::open_failed)?;
        Ok(Self {
            database: Arc::new(database),
            spaces: Mutex::new(spaces),
            cache,
            memtable_bytes,
            path: path.to_owned(),
            synced_part: None,
        })
    }

    /// Called after every sync: what is promised then may rely on the MANIFEST too.
    fn mark_synced_part(&self) {
        if let Some(synced_part) = &self.synced_part {
            synced_part.lock().advance();
        }
    }
}

fn family<'a>(database: &'a Database, space: &Space) -> Result<Arc<BoundColumnFamily<'a>>> {
    database.cf_handle(space.name()).ok_or_else(|| {
        Error::new(ErrorKind::Invalid, NAME, "open")
            .with_detail(format!("space {space} is not open"))
    })
}

impl fmt::Debug for RocksEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RocksEngine")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

impl Engine for RocksEngine {
    fn name(&self) -> &'static str {
        NAME
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::core()
            .with_durable(0)
            .with_cheap_range_delete()
            .for_production()
    }

    fn spaces(&self) -> Result<Vec<Space>> {
        Ok(self.spaces.lock().iter().cloned().collect())
    }

    fn open_space(&self, space: &Space) -> Result<()> {
        let mut spaces = self.spaces.lock();
        if !spaces.contains(space) {
            // What is there before the space is would become part of it.
            bulk::drop_files(&self.path, space)?;
            self.database
                .create_cf(
                    space.name(),
                    &options::space(&self.cache, self.memtable_bytes),
                )
                .map_err(error::write_failed)?;
            spaces.insert(space.clone());
        }
        Ok(())
    }

    fn drop_space(&self, space: &Space) -> Result<()> {
        let mut spaces = self.spaces.lock();
        if spaces.remove(space) {
            self.database
                .drop_cf(space.name())
                .map_err(error::write_failed)?;
        }
        bulk::drop_files(&self.path, space)
    }

    fn apply(&self, changes: &Changes, sync: bool) -> Result<()> {
        stall::write(&self.database, || batch(&self.database, changes), sync)?;
        if sync {
            self.mark_synced_part();
        }
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        self.database.flush_wal(true).map_err(error::write_failed)?;
        self.mark_synced_part();
        Ok(())
    }

    fn get(&self, space: &Space, key: &[u8]) -> Result<Option<Bytes>> {
        let value = self
            .database
            .get_pinned_cf(&family(&self.database, space)?, key);
        let value = value.map_err(error::read_failed)?;
        Ok(value.map(|it| Bytes::copy_from_slice(&it)))
    }

    fn scan(&self, space: &Space, scan: &Scan) -> Result<Vec<Entry>> {
        // An iterator reads as of the moment it was made.
        let (options, mode) = read_options(scan);
        let family = family(&self.database, space)?;
        collect(self.database.iterator_cf_opt(&family, options, mode), scan)
    }

    fn snapshot(&self) -> Result<Option<Arc<dyn EngineSnapshot>>> {
        Ok(Some(Arc::new(RocksSnapshot::take(&self.database)?)))
    }

    fn estimate(&self, space: &Space) -> Result<Option<Estimate>> {
        estimate::of(&self.database, &family(&self.database, space)?)
    }

    fn has_bulk_load(&self) -> bool {
        true
    }

    fn bulk_load(&self, work: &mut dyn FnMut(&mut dyn BulkLoader)) {
        let options = options::sorted_file(&self.cache);
        work(&mut RocksBulk::new(&self.database, &self.path, &options));
    }

    fn resume_bulk_load(&self, space: &Space, files: u32) -> Result<bool> {
        bulk::go_back(&self.database, &self.path, space, files)
    }

    fn sweep_bulk_loads(&self, kept: &[Space]) -> Result<()> {
        bulk::drop_all_files(&self.path, kept)
    }
}

/// Inside a batch RocksDB goes by the order of the calls.
fn batch(database: &Database, changes: &Changes) -> Result<WriteBatch> {
    let mut batch = WriteBatch::default();
    for (space, start, end) in &changes.range_deletes {
        batch.delete_range_cf(&family(database, space)?, start, end);
    }
    for operation in &changes.operations {
        let family = family(database, &operation.space)?;
        match &operation.value {
            Some(value) => batch.put_cf(&family, &operation.key, value),
            None => batch.delete_cf(&family, &operation.key),
        }
    }
    Ok(batch)
}

fn read_options(scan: &Scan) -> (ReadOptions, IteratorMode<'static>) {
    let mut options = ReadOptions::default();
    options.set_iterate_lower_bound(&*scan.start);
    if let Some(end) = &scan.end {
        options.set_iterate_upper_bound(&**end);
    }
    // With bounds, the ends are those of the range.
    let mode = match scan.direction {
        Direction::Forward => IteratorMode::Start,
        Direction::Backward => IteratorMode::End,
    };
    (options, mode)
}

fn collect(
    entries: impl Iterator<Item = Result<(Box<[u8]>, Box<[u8]>), rocksdb::Error>>,
    scan: &Scan,
) -> Result<Vec<Entry>> {
    scan.collect(entries.map(|entry| {
        let (key, value) = entry.map_err(error::read_failed)?;
        Ok(Entry {
            key: key.into(),
            value: value.into(),
        })
    }))
}
