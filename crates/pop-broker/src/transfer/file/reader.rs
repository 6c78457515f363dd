//! A backup that is read: where its blocks lie, and whether they are what was written.

use std::{path::Path, sync::Arc};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use kv_restore::{Digest, Limiter, SnapshotRef};
use pop_store::{Entry, Keyspace};

use super::{BackupError, bytes::Records, record};
use crate::space::SpaceMeta;

/// Rows and bytes of keys and values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// How many rows.
    pub rows: u64,
    /// How many bytes of keys and values.
    pub bytes: u64,
}

impl Totals {
    pub(super) fn add(&mut self, entry: &Entry) {
        let bytes = entry.key.len() + entry.value.len();
        self.rows += 1;
        self.bytes += u64::try_from(bytes).unwrap_or(u64::MAX);
    }
}

/// Where a block lies, and its first key.
#[derive(Debug)]
pub(super) struct Block {
    pub(super) keyspace: u16,
    pub(super) first: Bytes,
    pub(super) at: u64,
    // Where the next record begins.
    next: u64,
}

/// What all rows add up to, as the last record says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct End {
    pub(super) sum: u128,
    pub(super) all: Totals,
    pub(super) each: Vec<Totals>,
}

impl End {
    pub(super) fn new(digest: &Digest, each: &[Totals]) -> Self {
        Self {
            sum: digest.sum(),
            all: Totals {
                rows: digest.rows(),
                bytes: digest.bytes(),
            },
            each: each.to_vec(),
        }
    }

    pub(super) fn encode(&self) -> Bytes {
        let mut bytes = BytesMut::new();
        bytes.put_u128(self.sum);
        for totals in std::iter::once(&self.all).chain(&self.each) {
            bytes.put_u64(totals.rows);
            bytes.put_u64(totals.bytes);
        }
        bytes.freeze()
    }

    fn decode(mut bytes: Bytes, keyspaces: usize) -> Option<Self> {
        let sum = bytes.try_get_u128().ok()?;
        let mut totals = || {
            Some(Totals {
                rows: bytes.try_get_u64().ok()?,
                bytes: bytes.try_get_u64().ok()?,
            })
        };
        let all = totals()?;
        let each = (0..keyspaces).map(|_| totals()).collect::<Option<_>>()?;
        bytes.is_empty().then_some(Self { sum, all, each })
    }
}

/// A backup, of which everything but the rows was looked at. Clones share it.
#[derive(Clone, Debug)]
pub struct BackupFile(pub(super) Arc<Inner>);

#[derive(Debug)]
pub(super) struct Inner {
    pub(super) records: Records,
    pub(super) keyspaces: Vec<Keyspace>,
    pub(super) blocks: Vec<Block>,
    at: SnapshotRef,
    meta: SpaceMeta,
    end: End,
}

impl BackupFile {
    /// Opens a backup and looks at everything but its rows.
    ///
    /// # Errors
    ///
    /// If it is no whole backup of this version.
    pub fn open(path: &Path) -> Result<Self, BackupError> {
        Self::read(Records::open(path)?)
    }

    pub(super) fn read(records: Records) -> Result<Self, BackupError> {
        let (at, keyspaces, mut place) = records.begin()?;
        let meta = SpaceMeta::from_bytes(&at.meta);
        let meta = meta.map_err(|error| records.foreign(error.to_string()))?;
        let mut blocks = Vec::new();
        let end = loop {
            let front = records.front(place)?;
            match front.kind {
                record::ROWS => {
                    let (keyspace, first) = records.first_key(place)?;
                    blocks.push(Block {
                        keyspace,
                        first,
                        at: place,
                        next: front.next,
                    });
                    place = front.next;
                }
                record::END if front.next == records.length() => {
                    let end = End::decode(records.payload(place, front)?, keyspaces.len());
                    break end.ok_or_else(|| records.damaged(place, "its end can't be read"))?;
                }
                record::END => return Err(records.damaged(front.next, "something follows its end")),
                _ => return Err(records.damaged(place, "a record of an unknown kind")),
            }
        };
        Ok(Self(Arc::new(Inner {
            records,
            keyspaces,
            blocks,
            at,
            meta,
            end,
        })))
    }

    /// Which snapshot it is of.
    #[must_use]
    pub fn at(&self) -> &SnapshotRef {
        &self.0.at
    }

    /// What travelled with the snapshot.
    #[must_use]
    pub fn meta(&self) -> &SpaceMeta {
        &self.0.meta
    }

    /// Its file.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.0.records.path()
    }

    /// How many bytes the file has.
    #[must_use]
    pub fn file_bytes(&self) -> u64 {
        self.0.records.length()
    }

    /// What its last record says: the digest, and what all rows add up to.
    #[must_use]
    pub fn digest(&self) -> (u128, Totals) {
        (self.0.end.sum, self.0.end.all)
    }

    /// Its keyspaces, and what their rows add up to.
    pub fn keyspaces(&self) -> impl Iterator<Item = (Keyspace, Totals)> {
        let each = self.0.end.each.iter().copied();
        self.0.keyspaces.iter().copied().zip(each)
    }

    /// Reads every row, no faster than the limit, and compares them with what the last record
    /// says. `seen` is told how many rows and bytes of them were read.
    ///
    /// # Errors
    ///
    /// The first damage.
    ///
    /// # Cancel safety
    ///
    /// It only reads.
    pub async fn verify(
        &self,
        limiter: &Limiter,
        mut seen: impl FnMut(Totals),
    ) -> Result<Digest, BackupError> {
        let mut tally = Tally::new(&self.0.keyspaces);
        for block in &self.0.blocks {
            limiter.acquire(block.next - block.at).await;
            let (keyspace, rows) = self.0.rows(block)?;
            if !tally.add(keyspace, &rows) {
                return Err(self
                    .0
                    .records
                    .damaged(block.at, "its rows are not in order"));
            }
            seen(tally.totals());
        }
        if tally.end() != self.0.end {
            let end = self.0.records.length();
            return Err(self.0.records.damaged(end, "its rows don't add up"));
        }
        Ok(tally.digest)
    }
}

impl Inner {
    /// The rows of a block.
    pub(super) fn rows(&self, block: &Block) -> Result<(u16, Vec<Entry>), BackupError> {
        let front = self.records.front(block.at)?;
        let payload = self.records.payload(block.at, front)?;
        let rows = record::rows(payload);
        rows.ok_or_else(|| self.records.damaged(block.at, "its rows can't be read"))
    }
}

/// What rows add up to as they come, in their order.
#[derive(Debug)]
pub(super) struct Tally {
    keyspaces: Vec<Keyspace>,
    each: Vec<Totals>,
    pub(super) digest: Digest,
    pub(super) last: Option<(u16, Bytes)>,
}

impl Tally {
    pub(super) fn new(keyspaces: &[Keyspace]) -> Self {
        Self {
            keyspaces: keyspaces.to_vec(),
            each: vec![Totals::default(); keyspaces.len()],
            digest: Digest::default(),
            last: None,
        }
    }

    /// Adds rows, unless one of them does not come after all before it.
    pub(super) fn add(&mut self, keyspace: u16, rows: &[Entry]) -> bool {
        let place = usize::from(keyspace);
        let (Some(name), Some(totals)) = (self.keyspaces.get(place), self.each.get_mut(place))
        else {
            return false;
        };
        for row in rows {
            let next = (keyspace, row.key.clone());
            if self.last.as_ref().is_some_and(|last| *last >= next) {
                return false;
            }
            self.digest.add(*name, row);
            totals.add(row);
            self.last = Some(next);
        }
        true
    }

    pub(super) fn totals(&self) -> Totals {
        End::new(&self.digest, &[]).all
    }

    pub(super) fn end(&self) -> End {
        End::new(&self.digest, &self.each)
    }
}
