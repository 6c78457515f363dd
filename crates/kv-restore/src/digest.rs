//! A digest of rows that does not depend on their order, so that the same content has the
//! same digest on every backend and however it was cut into chunks.

use std::fmt;

use bytes::{Bytes, BytesMut};
use pop_store::{Entry, Estimate, Keyspace, Result, Scan, Snapshot};
use xxhash_rust::xxh3::{xxh3_64, xxh3_128_with_seed};

use crate::{Limiter, frame::rows};

/// What a set of rows adds up to.
///
/// Each row is hashed with 128 bits (XXH3) over the lengths and bytes of key and value,
/// seeded by its keyspace; the hashes are summed. It finds damage and loss, not a forger.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Digest {
    pub(crate) sum: u128,
    pub(crate) rows: u64,
    pub(crate) bytes: u64,
}

impl Digest {
    /// Adds a row.
    pub fn add(&mut self, keyspace: Keyspace, entry: &Entry) {
        self.add_to(seed(keyspace.name()), entry);
    }

    /// The sum of the hashes.
    #[must_use]
    pub fn sum(&self) -> u128 {
        self.sum
    }

    /// How many rows were added.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// How many bytes of keys and values they have.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// How much that is.
    #[must_use]
    pub fn estimate(&self) -> Estimate {
        Estimate {
            rows: self.rows,
            bytes: Some(self.bytes),
        }
    }

    /// Adds a row of the keyspace with this [`seed`].
    pub(crate) fn add_to(&mut self, seed: u64, entry: &Entry) {
        let mut row =
            BytesMut::with_capacity(rows::ROW_HEAD_BYTES + entry.key.len() + entry.value.len());
        rows::put_row(&mut row, &entry.key, &entry.value);
        self.add_encoded(seed, &row, entry.key.len() + entry.value.len());
    }

    /// Adds a row as [`rows::put_row`] writes it, with so many bytes of key and value.
    pub(crate) fn add_encoded(&mut self, seed: u64, row: &[u8], bytes: usize) {
        self.sum = self.sum.wrapping_add(xxh3_128_with_seed(row, seed));
        self.rows += 1;
        self.bytes += u64::try_from(bytes).unwrap_or(u64::MAX);
    }
}

/// What tells the rows of one keyspace from those of another.
pub(crate) fn seed(keyspace: &str) -> u64 {
    xxh3_64(keyspace.as_bytes())
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:032x} ({} rows, {} bytes)",
            self.sum, self.rows, self.bytes
        )
    }
}

/// How much is read at once: so little that a low limit is kept evenly, and news comes often.
const READ_BYTES: usize = 1 << 20;

/// The digest of some keyspaces of a snapshot.
///
/// # Errors
///
/// Those of the snapshot's scans.
///
/// # Cancel safety
///
/// It only reads.
pub async fn digest(snapshot: &dyn Snapshot, keyspaces: &[Keyspace]) -> Result<Digest> {
    digest_within(snapshot, keyspaces, &Limiter::none(), |_| {}).await
}

/// The same, read no faster than the limit. `seen` is told what was read until then.
///
/// # Errors
///
/// Those of the snapshot's scans.
///
/// # Cancel safety
///
/// It only reads.
pub async fn digest_within(
    snapshot: &dyn Snapshot,
    keyspaces: &[Keyspace],
    limiter: &Limiter,
    mut seen: impl FnMut(&Digest),
) -> Result<Digest> {
    let mut digest = Digest::default();
    for keyspace in keyspaces {
        let mut pages = Pages::new(Scan::all().with_bytes_max(READ_BYTES));
        while let Some(entries) = pages.next(snapshot, *keyspace).await? {
            let before = digest.bytes;
            for entry in &entries {
                digest.add(*keyspace, entry);
            }
            limiter.acquire(digest.bytes - before).await;
            seen(&digest);
        }
    }
    Ok(digest)
}

/// The pages of one keyspace, in order.
pub(crate) struct Pages {
    scan: Scan,
}

impl Pages {
    pub(crate) fn new(scan: Scan) -> Self {
        Self { scan }
    }

    /// The next page; `None` after the last.
    pub(crate) async fn next(
        &mut self,
        snapshot: &dyn Snapshot,
        keyspace: Keyspace,
    ) -> Result<Option<Vec<Entry>>> {
        let entries = snapshot.scan(keyspace, self.scan.clone()).await?;
        let Some(last) = entries.last() else {
            return Ok(None);
        };
        self.scan.start = above(&last.key);
        Ok(Some(entries))
    }
}

/// The first key above `key`.
pub(crate) fn above(key: &[u8]) -> Bytes {
    let mut above = Vec::with_capacity(key.len() + 1);
    above.extend_from_slice(key);
    above.push(0);
    above.into()
}
