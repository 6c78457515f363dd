//! The fast way into an empty space: sorted files, made beside the database and then taken
//! over by it as they are.
//!
//! Files of a space lie in a folder of its name under `staging/` of the database, which
//! RocksDB leaves alone; they are swept at open.

use std::{
    collections::{BTreeMap, btree_map::Entry as MapEntry},
    fs, io,
    path::{Path, PathBuf},
    thread,
};

use rocksdb::{IngestExternalFileOptions, IteratorMode, Options, SstFileWriter};

use super::{Database, NAME, error, family};
use crate::{
    Error, ErrorKind, Result, Rows,
    backend::{
        engine::{BulkLoader, Space},
        folder::sync_folder,
    },
};

const STAGING: &str = "staging";
// Bounds what one file costs to make again, and what compaction takes at once later on.
const FILE_BYTES_MAX: u64 = 64 << 20;

// After this much, some 0.2 ms of work, others have their turn: the writer of the store wakes
// for each batch, and where all processors are busy it would wait for the whole time slice of
// a thread that never sleeps, some 3 ms.
const TURN_BYTES: usize = 48 << 10;

/// Sorted files in the making, on the stack of one thread: a writer borrows its options.
pub(super) struct RocksBulk<'a> {
    database: &'a Database,
    staging: PathBuf,
    options: &'a Options,
    spaces: BTreeMap<Space, Files<'a>>,
}

struct Files<'a> {
    folder: PathBuf,
    finished: Vec<PathBuf>,
    open: Option<(SstFileWriter<'a>, PathBuf)>,
}

impl<'a> RocksBulk<'a> {
    pub(super) fn new(database: &'a Database, path: &Path, options: &'a Options) -> Self {
        Self {
            database,
            staging: path.join(STAGING),
            options,
            spaces: BTreeMap::new(),
        }
    }
}

impl<'a> RocksBulk<'a> {
    fn files(&mut self, space: &Space) -> Result<&mut Files<'a>> {
        match self.spaces.entry(space.clone()) {
            MapEntry::Occupied(entry) => Ok(entry.into_mut()),
            MapEntry::Vacant(entry) => Ok(entry.insert(Files::begin(&self.staging, space)?)),
        }
    }
}

impl BulkLoader for RocksBulk<'_> {
    fn load(&mut self, space: &Space, rows: &Rows) -> Result<()> {
        let options = self.options;
        let files = self.files(space)?;
        let mut bytes = 0;
        for (key, value) in rows.iter() {
            files.put(options, key, value)?;
            bytes += key.len() + value.len();
            if bytes >= TURN_BYTES {
                bytes = 0;
                thread::yield_now();
            }
        }
        files.close_if_full()
    }

    fn checkpoint(&mut self, space: &Space) -> Result<u32> {
        let files = self.files(space)?;
        files.close()?;
        sync_folder(&files.folder).map_err(failed)?;
        u32::try_from(files.finished.len()).map_err(|_| {
            Error::new(ErrorKind::Unavailable, NAME, "checkpoint")
                .with_detail("too many files: load with fewer checkpoints")
        })
    }

    fn finish(&mut self, space: &Space) -> Result<()> {
        self.files(space)?.close()?;
        let Some(files) = self.spaces.remove(space) else {
            return Ok(());
        };
        // Their names as well as their bytes, before the database speaks of them.
        sync_folder(&files.folder).map_err(failed)?;
        let family = family(self.database, space)?;
        self.database
            .ingest_external_file_cf_opts(&family, &ingest(), files.finished)
            .map_err(error::load_failed)?;
        fs::remove_dir_all(files.folder).map_err(failed)
    }
}

impl<'a> Files<'a> {
    /// Makes the folder of `space`, or goes on with the files that are in it.
    fn begin(staging: &Path, space: &Space) -> Result<Self> {
        let folder = staging.join(space.name());
        fs::create_dir_all(&folder).map_err(failed)?;
        // The names of the folders, before a checkpoint counts on them.
        sync_folder(staging).map_err(failed)?;
        if let Some(database) = staging.parent() {
            sync_folder(database).map_err(failed)?;
        }
        Ok(Self {
            finished: files_in(&folder)?,
            folder,
            open: None,
        })
    }

    fn put(&mut self, options: &'a Options, key: &[u8], value: &[u8]) -> Result<()> {
        let (writer, _) = match &mut self.open {
            Some(open) => open,
            closed => {
                let path = self.folder.join(name(self.finished.len()));
                let writer = SstFileWriter::create(options);
                writer.open(&path).map_err(error::load_failed)?;
                closed.insert((writer, path))
            }
        };
        writer.put(key, value).map_err(error::load_failed)
    }

    /// Asked after a load and not after a row, of which it would be a sixth of the cost.
    fn close_if_full(&mut self) -> Result<()> {
        match &self.open {
            Some((writer, _)) if writer.file_size() >= FILE_BYTES_MAX => self.close(),
            _ => Ok(()),
        }
    }

    /// Finishes the file that is open, which also syncs it.
    fn close(&mut self) -> Result<()> {
        if let Some((mut writer, path)) = self.open.take() {
            writer.finish().map_err(error::load_failed)?;
            self.finished.push(path);
        }
        Ok(())
    }
}

/// Any overlap is an error: the space is empty, and no snapshot that is open reads it.
fn ingest() -> IngestExternalFileOptions {
    let mut options = IngestExternalFileOptions::default();
    options.set_move_files(true);
    // Without a sequence number of their own files can't be put under a snapshot; with any
    // snapshot of the database open that would be refused.
    options.set_snapshot_consistency(false);
    options.set_allow_global_seqno(false);
    // Writes to all other spaces would wait for it.
    options.set_allow_blocking_flush(false);
    options
}

/// Goes back to the first `count` files that were made for `space`, if they are all there
/// and nothing else is.
pub(super) fn go_back(database: &Database, path: &Path, space: &Space, count: u32) -> Result<bool> {
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    let folder = path.join(STAGING).join(space.name());
    let files = files_in(&folder)?;
    let expected = (0..count).map(|it| folder.join(name(it)));
    let whole = files.len() >= count && files.iter().zip(expected).all(|(a, b)| *a == b);
    // An ingest that was not published has taken its files along.
    let mut rows = database.iterator_cf(&family(database, space)?, IteratorMode::Start);
    if !whole || rows.next().is_some() {
        return Ok(false);
    }
    for file in files.into_iter().skip(count) {
        fs::remove_file(file).map_err(failed)?;
    }
    Ok(true)
}

/// Names sort as their numbers do.
fn name(number: usize) -> String {
    format!("{number:010}.sst")
}

fn files_in(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed(error)),
    };
    let paths = entries.map(|it| Ok(it?.path()));
    let mut paths: Vec<_> = paths.collect::<io::Result<_>>().map_err(failed)?;
    paths.sort_unstable();
    Ok(paths)
}

/// Deletes what was made for `space`.
pub(super) fn drop_files(path: &Path, space: &Space) -> Result<()> {
    remove(&path.join(STAGING).join(space.name()))
}

/// Deletes what was made for any space but those that are kept.
pub(super) fn drop_all_files(path: &Path, kept: &[Space]) -> Result<()> {
    let staging = path.join(STAGING);
    if kept.is_empty() {
        return remove(&staging);
    }
    for folder in files_in(&staging)? {
        if !kept.iter().any(|it| folder.ends_with(it.name())) {
            remove(&folder)?;
        }
    }
    Ok(())
}

fn remove(folder: &Path) -> Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed(error)),
        _ => Ok(()),
    }
}

/// A failure beside the database: what is in use is as it was.
fn failed(error: io::Error) -> Error {
    let (kind, advice) = match error.kind() {
        io::ErrorKind::StorageFull => (ErrorKind::NoSpace, "the disk is full: free some space"),
        _ => (ErrorKind::Unavailable, "the staged files can't be written"),
    };
    Error::new(kind, NAME, "load")
        .with_detail(advice)
        .with_source(error)
}
