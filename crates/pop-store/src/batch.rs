//! Writes that happen together or not at all, and the conditions under which they may.

use bytes::Bytes;

use crate::{Error, ErrorKind, Keyspace, Result};

/// What must hold for a batch to be applied: the key has this value, or is absent (`None`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Precondition {
    /// Where the key lives.
    pub keyspace: Keyspace,
    /// The key that is looked at.
    pub key: Bytes,
    /// The value it must have; `None` means that it must be absent.
    pub expected: Option<Bytes>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RangeDelete {
    pub(crate) keyspace: Keyspace,
    pub(crate) start: Bytes,
    pub(crate) end: Bytes,
}

/// Writes over any keyspaces of one store that are applied as one unit.
///
/// The order inside a batch is fixed, whatever the order of the calls: preconditions,
/// range deletes, deletes, puts. So a key that is both deleted and put ends up present,
/// which makes "move to the place where it already is" harmless.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WriteBatch {
    pub(crate) preconditions: Vec<Precondition>,
    pub(crate) range_deletes: Vec<RangeDelete>,
    pub(crate) deletes: Vec<(Keyspace, Bytes)>,
    pub(crate) puts: Vec<(Keyspace, Bytes, Bytes)>,
    bytes: usize,
}

impl WriteBatch {
    /// The most keys one batch may name, so that engines with small transactions fit.
    pub const KEYS_MAX: usize = 1_000;
    /// The most bytes of keys and values one batch may carry.
    pub const BYTES_MAX: usize = 1 << 20;
    /// The longest key.
    pub const KEY_BYTES_MAX: usize = 1_024;

    /// An empty batch. Written `Synced`, it makes everything before it durable.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Requires `key` to have exactly `expected`, else the batch is refused as a conflict.
    pub fn require(&mut self, keyspace: Keyspace, key: Bytes, expected: Bytes) -> &mut Self {
        self.bytes += key.len() + expected.len();
        self.preconditions.push(Precondition {
            keyspace,
            key,
            expected: Some(expected),
        });
        self
    }

    /// Requires `key` to be absent, else the batch is refused as a conflict.
    pub fn require_absent(&mut self, keyspace: Keyspace, key: Bytes) -> &mut Self {
        self.bytes += key.len();
        self.preconditions.push(Precondition {
            keyspace,
            key,
            expected: None,
        });
        self
    }

    /// Deletes every key in `start..end` that was there before this batch.
    pub fn delete_range(&mut self, keyspace: Keyspace, start: Bytes, end: Bytes) -> &mut Self {
        self.bytes += start.len() + end.len();
        self.range_deletes.push(RangeDelete {
            keyspace,
            start,
            end,
        });
        self
    }

    /// Deletes `key`; deleting what is absent is no error.
    pub fn delete(&mut self, keyspace: Keyspace, key: Bytes) -> &mut Self {
        self.bytes += key.len();
        self.deletes.push((keyspace, key));
        self
    }

    /// Puts `value` at `key`, over whatever is there. Of two puts to one key the later wins.
    pub fn put(&mut self, keyspace: Keyspace, key: Bytes, value: Bytes) -> &mut Self {
        self.bytes += key.len() + value.len();
        self.puts.push((keyspace, key, value));
        self
    }

    /// Adds everything of `other` to this batch, so that both happen together.
    pub fn append(&mut self, other: Self) -> &mut Self {
        self.bytes += other.bytes;
        self.preconditions.extend(other.preconditions);
        self.range_deletes.extend(other.range_deletes);
        self.deletes.extend(other.deletes);
        self.puts.extend(other.puts);
        self
    }

    /// How many keys the batch names, preconditions included.
    #[must_use]
    pub fn key_count(&self) -> usize {
        self.preconditions.len()
            + self.range_deletes.len() * 2
            + self.deletes.len()
            + self.puts.len()
    }

    /// How many bytes of keys and values the batch carries.
    #[must_use]
    pub fn byte_count(&self) -> usize {
        self.bytes
    }

    /// Whether the batch has neither a write nor a precondition.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.key_count() == 0
    }

    /// Checks the batch against the limits that every backend shares and the keyspaces
    /// that this store was opened with. Every backend calls it before anything else.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] names the first thing that is too big or unknown.
    pub fn check(&self, backend: &'static str, known: &[Keyspace]) -> Result<()> {
        let invalid =
            |detail: String| Error::new(ErrorKind::Invalid, backend, "write").with_detail(detail);
        if self.key_count() > Self::KEYS_MAX {
            return Err(invalid(format!(
                "batch names {} keys, the limit is {}: split it",
                self.key_count(),
                Self::KEYS_MAX
            )));
        }
        if self.bytes > Self::BYTES_MAX {
            return Err(invalid(format!(
                "batch carries {} bytes, the limit is {}: split it",
                self.bytes,
                Self::BYTES_MAX
            )));
        }
        for (keyspace, key) in self.keys() {
            if key.len() > Self::KEY_BYTES_MAX {
                return Err(invalid(format!(
                    "a key of keyspace {keyspace} has {} bytes, the limit is {}",
                    key.len(),
                    Self::KEY_BYTES_MAX
                )));
            }
            if !known.contains(&keyspace) {
                return Err(invalid(format!(
                    "keyspace {keyspace} is not one this store was opened with"
                )));
            }
        }
        Ok(())
    }

    fn keys(&self) -> impl Iterator<Item = (Keyspace, &Bytes)> {
        let conditions = self.preconditions.iter().map(|it| (it.keyspace, &it.key));
        let starts = self.range_deletes.iter().map(|it| (it.keyspace, &it.start));
        let ends = self.range_deletes.iter().map(|it| (it.keyspace, &it.end));
        let deletes = self.deletes.iter().map(|(keyspace, key)| (*keyspace, key));
        let puts = self.puts.iter().map(|(keyspace, key, _)| (*keyspace, key));
        conditions
            .chain(starts)
            .chain(ends)
            .chain(deletes)
            .chain(puts)
    }
}
