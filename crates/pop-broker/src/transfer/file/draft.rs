//! A backup that is written: under a name of its own until it is whole.
//!
//! Whoever writes is killed at any moment. What is whole of the draft is found by its
//! checksums, and the next one goes on behind it, if the source still has that snapshot.

use std::{
    any::Any,
    fs::{File, OpenOptions, TryLockError},
    io::{self, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
    sync::Arc,
};

use async_trait::async_trait;
use bytes::{BufMut, Bytes, BytesMut};
use kv_restore::{Limiter, Position, Resume, SnapshotRef};
use parking_lot::Mutex;
use pop_store::{
    Capabilities, Durability, Entry, Error, ErrorKind, Keyspace, Result, Scan, Snapshot, Staging,
    Store, WriteBatch,
};

use super::{
    super::{
        disk::{Disk, Files},
        manifest::Manifest,
    },
    BackupError, BackupFile,
    bytes::Records,
    reader::{Tally, Totals},
    record,
    snapshot::{NAME, unsupported},
};

/// What the name of a draft ends with.
pub const PARTIAL: &str = ".partial";

/// Where a draft begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Begun {
    /// At the first row.
    Anew,
    /// At the first row, in the place of a draft of another snapshot.
    Instead,
    /// Behind the last row of one that was cut.
    Behind(Resume),
    /// At its end: nothing is missing in it.
    Whole,
}

/// A backup that is being written. Clones share it.
#[derive(Clone, Debug)]
pub struct Draft(Arc<Inner>);

/// A backup of which all is written, to be read again before it gets its name: its source is
/// not needed any more.
#[derive(Debug)]
pub struct Written {
    to: PathBuf,
    partial: PathBuf,
    disk: Arc<dyn Disk>,
    file: BackupFile,
    // Its lock.
    _lock: Arc<dyn Any + Send + Sync>,
}

#[derive(Debug)]
struct Inner {
    to: PathBuf,
    partial: PathBuf,
    at: SnapshotRef,
    keyspaces: Vec<Keyspace>,
    disk: Arc<dyn Disk>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    file: File,
    tally: Tally,
    block: BytesMut,
    place: u16,
}

/// The name of the draft of a backup.
impl Draft {
    /// The file of the draft of `to`.
    #[must_use]
    pub fn path(to: &Path) -> PathBuf {
        let mut name = to.as_os_str().to_owned();
        name.push(PARTIAL);
        name.into()
    }

    /// Which snapshot the draft of `to` is of, if one was left there that says so: one that
    /// somebody still writes is not.
    #[must_use]
    pub fn left(to: &Path) -> Option<SnapshotRef> {
        let partial = Self::path(to);
        let file = File::open(&partial).ok()?;
        file.try_lock_shared().ok()?;
        Some(Records::of(&partial, file).ok()?.begin().ok()?.0)
    }

    /// Begins a backup of a snapshot of these keyspaces that will be called `to`, or goes on
    /// with its draft, which is read no faster than the limit. `seen` is told how many rows and
    /// bytes of that were read.
    ///
    /// # Errors
    ///
    /// If the file can't be written, or another process writes it.
    ///
    /// # Cancel safety
    ///
    /// Dropped, it leaves the draft that is there.
    pub async fn open(
        to: &Path,
        at: &SnapshotRef,
        keyspaces: &[Keyspace],
        limiter: &Limiter,
        seen: impl FnMut(Totals),
    ) -> Result<(Self, Begun), BackupError> {
        Self::open_on(Arc::new(Files), to, at, keyspaces, limiter, seen).await
    }

    async fn open_on(
        disk: Arc<dyn Disk>,
        to: &Path,
        at: &SnapshotRef,
        keyspaces: &[Keyspace],
        limiter: &Limiter,
        seen: impl FnMut(Totals),
    ) -> Result<(Self, Begun), BackupError> {
        let path = Self::path(to);
        let mut file = claim(&path)?;
        let failed = || BackupError::io(&path, "written");
        let was_empty = file.metadata().map_err(failed())?.len() == 0;
        let again = file.try_clone().map_err(failed())?;
        let (tally, begun) = match Found::look(&path, again, at, limiter, seen).await {
            Some(found) => {
                file.set_len(found.whole_to).map_err(failed())?;
                file.seek(SeekFrom::Start(found.whole_to))
                    .map_err(failed())?;
                let begun = found.begun();
                (found.tally, begun)
            }
            None => {
                write_begin(&mut file, at).map_err(failed())?;
                let begun = if was_empty {
                    Begun::Anew
                } else {
                    Begun::Instead
                };
                (Tally::new(keyspaces), begun)
            }
        };
        let inner = Inner {
            to: to.to_owned(),
            partial: path,
            at: at.clone(),
            keyspaces: keyspaces.to_vec(),
            disk,
            state: Mutex::new(State {
                file,
                tally,
                block: BytesMut::new(),
                place: 0,
            }),
        };
        Ok((Self(Arc::new(inner)), begun))
    }

    /// Drops what was written: the source has other rows there.
    ///
    /// # Errors
    ///
    /// If the file can't be written.
    pub fn restart(&self) -> Result<(), BackupError> {
        let mut state = self.0.state.lock();
        let written = write_begin(&mut state.file, &self.0.at);
        written.map_err(BackupError::io(&self.0.partial, "written"))?;
        state.tally = Tally::new(&self.0.keyspaces);
        state.block.clear();
        Ok(())
    }

    /// Makes sure, synced, that all of it is here.
    ///
    /// # Errors
    ///
    /// If it is not whole or can't be written.
    pub fn written(self) -> Result<Written, BackupError> {
        let Inner {
            to, partial, disk, ..
        } = &*self.0;
        // Also of a draft that was found whole: who wrote it may have been killed before that.
        let synced = disk.sync(partial, &self.0.state.lock().file);
        synced.map_err(BackupError::io(partial, "written"))?;
        Ok(Written {
            to: to.clone(),
            partial: partial.clone(),
            disk: Arc::clone(disk),
            file: BackupFile::open(partial)?,
            _lock: self.0,
        })
    }
}

impl Written {
    /// What it has.
    #[must_use]
    pub fn totals(&self) -> Totals {
        self.file.digest().1
    }

    /// Reads all of it again, no faster than the limit, and gives it its name. `from` is where
    /// it was asked for; once somebody was told that it is there, [`BackupFile::told`] says so.
    ///
    /// # Errors
    ///
    /// If what is read is not what was written, or something has that name.
    ///
    /// # Cancel safety
    ///
    /// Dropped, it is a draft that [`Draft::open`] finds whole.
    pub async fn finish(
        self,
        from: &str,
        limiter: &Limiter,
        seen: impl FnMut(Totals),
    ) -> Result<BackupFile, BackupError> {
        let Self {
            to,
            partial,
            disk,
            file,
            ..
        } = &self;
        file.verify(limiter, seen).await?;
        if to.exists() {
            return Err(BackupError::exists(to));
        }
        // First, so that a backup that has its name has its manifest.
        Manifest::of(file).write(to, from, disk.as_ref())?;
        let failed = || BackupError::io(to, "named");
        disk.rename(partial, to).map_err(failed())?;
        disk.sync_folder_of(to).map_err(failed())?;
        BackupFile::open(to)
    }
}

/// Others finish it no more often than this between an open and its lock; a file system whose
/// files have other numbers each time would have it go on for ever.
const CLAIMS_MAX: usize = 100;

/// Opens a draft for this process alone.
fn claim(path: &Path) -> Result<File, BackupError> {
    for _ in 0..CLAIMS_MAX {
        if let Some(file) = lock(open(path)?, path)? {
            return Ok(file);
        }
    }
    Err(BackupError::InUse(path.to_owned()))
}

fn open(path: &Path) -> Result<File, BackupError> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    // It has the bodies of all messages, and the keys of handles.
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path).map_err(BackupError::io(path, "written"))
}

/// Nothing, if that is not the draft any more: who had its lock may have finished it since it
/// was opened, and a backup that has its name is not to be written.
fn lock(file: File, path: &Path) -> Result<Option<File>, BackupError> {
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Err(BackupError::InUse(path.to_owned())),
        Err(TryLockError::Error(error)) => return Err(BackupError::io(path, "written")(error)),
    }
    let is_there = is_at(&file, path).map_err(BackupError::io(path, "read"))?;
    Ok(is_there.then_some(file))
}

/// Whether an open file still has this name.
#[cfg(unix)]
fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    use std::os::unix::fs::MetadataExt;
    let place = |it: std::fs::Metadata| (it.dev(), it.ino());
    match std::fs::metadata(path) {
        Ok(named) => Ok(place(named) == place(file.metadata()?)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Elsewhere files have no number to tell them by.
#[cfg(not(unix))]
fn is_at(_: &File, _: &Path) -> io::Result<bool> {
    Ok(true)
}

fn write_begin(file: &mut File, at: &SnapshotRef) -> io::Result<()> {
    file.set_len(0)?;
    file.seek(SeekFrom::Start(0))?;
    file.write_all(&record::MAGIC)?;
    file.write_all(&[record::VERSION])?;
    file.write_all(&record::seal(record::BEGIN, &at.to_bytes()))
}

/// What is whole of a draft of the same snapshot.
struct Found {
    whole_to: u64,
    tally: Tally,
    is_whole: bool,
}

impl Found {
    async fn look(
        path: &Path,
        file: File,
        at: &SnapshotRef,
        limiter: &Limiter,
        mut seen: impl FnMut(Totals),
    ) -> Option<Self> {
        let records = Records::of(path, file).ok()?;
        let (found, keyspaces, begin) = records.begin().ok()?;
        // The moment may differ: it is that of the draft, the content is the same.
        let same = found.id == at.id && found.keyspaces == at.keyspaces;
        let mut whole = Self {
            whole_to: begin,
            tally: Tally::new(&keyspaces),
            is_whole: false,
        };
        while same && !whole.is_whole {
            let begin = whole.whole_to;
            if whole.take(&records).is_none() {
                break;
            }
            limiter.acquire(whole.whole_to - begin).await;
            seen(whole.tally.totals());
        }
        same.then_some(whole)
    }

    /// Takes the next record, if it is whole.
    fn take(&mut self, records: &Records) -> Option<()> {
        let front = records.front(self.whole_to).ok()?;
        let payload = records.payload(self.whole_to, front).ok()?;
        match front.kind {
            record::ROWS => {
                let (keyspace, rows) = record::rows(payload)?;
                self.tally.add(keyspace, &rows).then_some(())?;
            }
            record::END if payload == self.tally.end().encode() => self.is_whole = true,
            _ => return None,
        }
        self.whole_to = front.next;
        Some(())
    }

    fn begun(&self) -> Begun {
        match &self.tally.last {
            _ if self.is_whole => Begun::Whole,
            None => Begun::Anew,
            Some((keyspace, key)) => Begun::Behind(Resume {
                after: Position {
                    keyspace: *keyspace,
                    key: key.clone(),
                },
                totals: self.tally.digest,
            }),
        }
    }
}

impl State {
    fn load(&mut self, place: u16, rows: &[Entry]) -> Result<()> {
        if place != self.place {
            self.flush()?;
            self.place = place;
        }
        if !self.tally.add(place, rows) {
            let error = Error::new(ErrorKind::Invalid, NAME, "load");
            return Err(error.with_detail("a row came out of order"));
        }
        for row in rows {
            if self.block.is_empty() {
                self.block.put_u16(place);
            }
            record::put_row(&mut self.block, row);
            if self.block.len() >= record::BLOCK_BYTES {
                self.flush()?;
            }
        }
        Ok(())
    }

    /// Writes the rows that wait, as one block.
    fn flush(&mut self) -> Result<()> {
        let block = self.block.split();
        match block.is_empty() {
            true => Ok(()),
            false => self.write(record::ROWS, &block),
        }
    }

    fn write(&mut self, kind: u8, payload: &[u8]) -> Result<()> {
        let written = self.file.write_all(&record::seal(kind, payload));
        written.map_err(unwritten)
    }

    fn end(&mut self) -> Result<()> {
        self.flush()?;
        self.write(record::END, &self.tally.end().encode())
    }
}

fn unwritten(error: io::Error) -> Error {
    let kind = match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => ErrorKind::NoSpace,
        _ => ErrorKind::Unavailable,
    };
    Error::new(kind, NAME, "load")
        .with_detail("the backup can't be written")
        .with_source(error)
}

/// The draft as a target: rows come in order, and nothing else is done with it.
#[async_trait]
impl Store for Draft {
    fn name(&self) -> &'static str {
        NAME
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::core().with_replace()
    }

    fn keyspaces(&self) -> &[Keyspace] {
        &self.0.keyspaces
    }

    async fn write(&self, _: WriteBatch, _: Durability) -> Result<()> {
        Err(unsupported("write"))
    }

    async fn get(&self, _: Keyspace, _: &[u8]) -> Result<Option<Bytes>> {
        Err(unsupported("get"))
    }

    async fn scan(&self, _: Keyspace, _: Scan) -> Result<Vec<Entry>> {
        Err(unsupported("scan"))
    }

    async fn snapshot(&self) -> Result<Arc<dyn Snapshot>> {
        Err(unsupported("snapshot"))
    }

    async fn begin_replace(&self, _: &[Keyspace]) -> Result<Box<dyn Staging>> {
        Ok(Box::new(self.clone()))
    }

    async fn close(&self) -> Result<()> {
        Ok(())
    }
}

#[async_trait]
impl Staging for Draft {
    // Files are written where the session runs: it has nothing else to do.
    async fn load(&mut self, keyspace: Keyspace, entries: Vec<Entry>) -> Result<()> {
        let place = self.0.keyspaces.iter().position(|it| *it == keyspace);
        let place = place.and_then(|it| u16::try_from(it).ok());
        let place = place.ok_or_else(|| Error::new(ErrorKind::Invalid, NAME, "load"))?;
        self.0.state.lock().load(place, &entries)
    }

    async fn publish(self: Box<Self>) -> Result<()> {
        let mut state = self.0.state.lock();
        state.end()?;
        let synced = self.0.disk.sync(&self.0.partial, &state.file);
        synced.map_err(unwritten)
    }

    async fn abort(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests;
