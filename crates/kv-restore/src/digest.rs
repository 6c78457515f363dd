//! A digest of rows that does not depend on their order, so that the same content has the
//! same digest on every backend.

use std::{fmt, hash::Hasher};

use bytes::Bytes;
use pop_store::{Entry, Keyspace, Result, Scan, Snapshot};
use siphasher::sip128::{Hasher128, SipHasher24};

/// What a set of rows adds up to.
///
/// Each row is hashed with 128 bits over its keyspace, key and value, every part led by
/// its length; the hashes are summed. It finds damage and loss, not a forger.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Digest {
    sum: u128,
    rows: u64,
    bytes: u64,
}

impl Digest {
    /// Adds a row.
    pub fn add(&mut self, keyspace: Keyspace, entry: &Entry) {
        let mut hasher = SipHasher24::new();
        for part in [keyspace.name().as_bytes(), &entry.key, &entry.value] {
            hasher.write(&part.len().to_be_bytes());
            hasher.write(part);
        }
        self.sum = self.sum.wrapping_add(hasher.finish128().as_u128());
        self.rows += 1;
        self.bytes += u64::try_from(entry.key.len() + entry.value.len()).unwrap_or(u64::MAX);
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
    let mut digest = Digest::default();
    for keyspace in keyspaces {
        let mut pages = Pages::new(Scan::all());
        while let Some(entries) = pages.next(snapshot, *keyspace).await? {
            for entry in &entries {
                digest.add(*keyspace, entry);
            }
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
        let mut above = last.key.to_vec();
        above.push(0);
        self.scan.start = Bytes::from(above);
        Ok(Some(entries))
    }
}
