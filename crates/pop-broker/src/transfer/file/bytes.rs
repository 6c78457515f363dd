//! Records of a backup, read from their places in the file.

use std::{
    fs::File,
    io::{self, Read, Seek, SeekFrom},
    path::{Path, PathBuf},
};

use bytes::{Buf, Bytes};
use kv_restore::SnapshotRef;
use parking_lot::Mutex;
use pop_store::Keyspace;

use super::{BackupError, record};
use crate::space::{KEYSPACES, SPACE};

/// A file of records.
#[derive(Debug)]
pub(super) struct Records {
    path: PathBuf,
    file: Mutex<File>,
    length: u64,
}

/// Kind, length of the payload, and where the next record begins.
#[derive(Clone, Copy, Debug)]
pub(super) struct Front {
    pub(super) kind: u8,
    pub(super) length: usize,
    pub(super) next: u64,
}

impl Records {
    /// Opens a file and looks at its first bytes.
    pub(super) fn open(path: &Path) -> Result<Self, BackupError> {
        let file = File::open(path).map_err(BackupError::io(path, "read"))?;
        Self::of(path, file)
    }

    /// The same of a file that is open.
    pub(super) fn of(path: &Path, file: File) -> Result<Self, BackupError> {
        let meta = file.metadata().map_err(BackupError::io(path, "read"))?;
        let records = Self {
            path: path.to_owned(),
            file: Mutex::new(file),
            length: meta.len(),
        };
        if !meta.is_file() || records.length < record::HEAD_BYTES {
            return Err(BackupError::NotABackup(records.path));
        }
        let head = records.bytes(0, 8)?;
        match head.split_last() {
            Some((&record::VERSION, magic)) if magic == record::MAGIC => Ok(records),
            Some((&found, magic)) if magic == record::MAGIC => Err(BackupError::Version {
                path: records.path,
                found,
            }),
            _ => Err(BackupError::NotABackup(records.path)),
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn length(&self) -> u64 {
        self.length
    }

    /// The bytes at a place, all of which must be there.
    pub(super) fn bytes(&self, at: u64, length: usize) -> Result<Bytes, BackupError> {
        let mut bytes = vec![0; length];
        let mut file = self.file.lock();
        let read = file.seek(SeekFrom::Start(at));
        let read = read.and_then(|_| file.read_exact(&mut bytes));
        match read {
            Ok(()) => Ok(bytes.into()),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Err(self.cut(at)),
            Err(error) => Err(BackupError::io(&self.path, "read")(error)),
        }
    }

    /// The front of the record at a place.
    pub(super) fn front(&self, at: u64) -> Result<Front, BackupError> {
        let left = self.length.saturating_sub(at);
        let around = u64::try_from(record::FRONT_BYTES + record::SUM_BYTES).unwrap_or(u64::MAX);
        if left < around {
            return Err(self.cut(at));
        }
        let front = self.bytes(at, record::FRONT_BYTES)?;
        let (kind, length) =
            record::front(&front).ok_or_else(|| self.damaged(at, "it is no record"))?;
        let next = at + around + u64::from(length);
        if next > self.length {
            return Err(self.cut(at));
        }
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        Ok(Front { kind, length, next })
    }

    /// The payload of a record whose front was read, if its checksum is right.
    pub(super) fn payload(&self, at: u64, front: Front) -> Result<Bytes, BackupError> {
        let length = record::FRONT_BYTES + front.length + record::SUM_BYTES;
        let record = self.bytes(at, length)?;
        record::unseal(&record).ok_or_else(|| self.damaged(at, "its checksum does not match"))
    }

    /// Which snapshot it is of, and where its rows begin.
    pub(super) fn begin(&self) -> Result<(SnapshotRef, Vec<Keyspace>, u64), BackupError> {
        let at = record::HEAD_BYTES;
        let front = self.front(at)?;
        if front.kind != record::BEGIN {
            return Err(self.damaged(at, "it does not say what it is of"));
        }
        let snapshot = SnapshotRef::from_bytes(&self.payload(at, front)?);
        let snapshot = snapshot.map_err(|error| self.foreign(error.to_string()))?;
        if snapshot.space != SPACE {
            return Err(self.foreign(format!("it is of {}", snapshot.space)));
        }
        let known = |name: &String| {
            let mut all = KEYSPACES.iter().copied();
            let found = all.find(|it| it.name() == name);
            found.ok_or_else(|| self.foreign(format!("it has a keyspace {name}")))
        };
        let keyspaces: Result<_, _> = snapshot.keyspaces.iter().map(known).collect();
        Ok((snapshot, keyspaces?, front.next))
    }

    pub(super) fn cut(&self, at: u64) -> BackupError {
        BackupError::Cut {
            path: self.path.clone(),
            at,
        }
    }

    pub(super) fn damaged(&self, at: u64, what: &'static str) -> BackupError {
        BackupError::Damaged {
            path: self.path.clone(),
            at,
            what,
        }
    }

    pub(super) fn foreign(&self, what: String) -> BackupError {
        BackupError::Foreign {
            path: self.path.clone(),
            what,
        }
    }

    /// Keyspace and first key of a block, without the rest of it.
    pub(super) fn first_key(&self, at: u64) -> Result<(u16, Bytes), BackupError> {
        let wrong = || self.damaged(at, "it has no row");
        let start = at + u64::try_from(record::FRONT_BYTES).unwrap_or(0);
        let mut front = self.bytes(start, 2 + 4)?;
        let keyspace = front.try_get_u16().map_err(|_| wrong())?;
        let length = front.try_get_u32().map_err(|_| wrong())?;
        // Longer than any key of a store: the checksum of the block would say so, too.
        if length > 1_024 {
            return Err(self.damaged(at, "its first key is too long"));
        }
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        Ok((keyspace, self.bytes(start + 2 + 8, length)?))
    }
}
