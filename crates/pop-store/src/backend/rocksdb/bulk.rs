//! The fast way into an empty space: sorted files, made beside the database and then taken
//! over by it as they are.
//!
//! Files of a space lie in a folder of its name under `staging/` of the database, which
//! RocksDB leaves alone; they are swept at open.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

use rocksdb::{IngestExternalFileOptions, Options, SstFileWriter};

use super::{Database, NAME, error, family};
use crate::{
    Entry, Error, ErrorKind, Result,
    backend::{
        engine::{BulkLoader, Space},
        folder::sync_folder,
    },
};

const STAGING: &str = "staging";
// Bounds what one file costs to make again, and what compaction takes at once later on.
const FILE_BYTES_MAX: u64 = 64 << 20;

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

impl BulkLoader for RocksBulk<'_> {
    fn load(&mut self, space: &Space, rows: &[Entry]) -> Result<()> {
        let files = match self.spaces.entry(space.clone()) {
            std::collections::btree_map::Entry::Occupied(entry) => entry.into_mut(),
            std::collections::btree_map::Entry::Vacant(entry) => {
                entry.insert(Files::begin(&self.staging, space)?)
            }
        };
        for row in rows {
            files.put(self.options, row)?;
        }
        Ok(())
    }

    fn finish(&mut self, space: &Space) -> Result<()> {
        let Some(mut files) = self.spaces.remove(space) else {
            return Ok(());
        };
        files.close()?;
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
    fn begin(staging: &Path, space: &Space) -> Result<Self> {
        let folder = staging.join(space.name());
        fs::create_dir_all(&folder).map_err(failed)?;
        Ok(Self {
            folder,
            finished: Vec::new(),
            open: None,
        })
    }

    fn put(&mut self, options: &'a Options, row: &Entry) -> Result<()> {
        let (writer, _) = match &mut self.open {
            Some(open) => open,
            closed => {
                let path = self.folder.join(format!("{:06}.sst", self.finished.len()));
                let writer = SstFileWriter::create(options);
                writer.open(&path).map_err(error::load_failed)?;
                closed.insert((writer, path))
            }
        };
        writer
            .put(&row.key, &row.value)
            .map_err(error::load_failed)?;
        if writer.file_size() >= FILE_BYTES_MAX {
            self.close()?;
        }
        Ok(())
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

/// Deletes what was made for `space`.
pub(super) fn drop_files(path: &Path, space: &Space) -> Result<()> {
    remove(&path.join(STAGING).join(space.name()))
}

/// Deletes what was made for any space.
pub(super) fn drop_all_files(path: &Path) -> Result<()> {
    remove(&path.join(STAGING))
}

fn remove(folder: &Path) -> Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed(error)),
        _ => Ok(()),
    }
}

/// A failure beside the database: what is in use is as it was.
fn failed(error: io::Error) -> Error {
    Error::new(ErrorKind::Unavailable, NAME, "load")
        .with_detail("the staged files can't be written")
        .with_source(error)
}
