//! What an ordered read asks for.

use bytes::Bytes;

/// A key and its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The key.
    pub key: Bytes,
    /// Its value.
    pub value: Bytes,
}

/// The way a scan walks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Direction {
    /// From the smallest key of the range upward.
    #[default]
    Forward,
    /// From the largest key of the range downward.
    Backward,
}

/// A bounded, ordered read of the half-open range `start..end`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Scan {
    /// The smallest key that may be returned.
    pub start: Bytes,
    /// The first key above the range; `None` means the end of the keyspace.
    pub end: Option<Bytes>,
    /// The way to walk.
    pub direction: Direction,
    /// The most entries to return.
    pub entries_max: usize,
    /// Stop after the entry with which the returned bytes of keys and values reach this;
    /// at least one entry is returned if there is one.
    pub bytes_max: usize,
}

impl Scan {
    /// The most entries one scan returns, unless it says another number.
    pub const ENTRIES_MAX_DEFAULT: usize = 1_024;
    /// The most bytes one scan returns, unless it says another number.
    pub const BYTES_MAX_DEFAULT: usize = 8 << 20;

    /// All keys in `start..end`, forward, within the default limits.
    #[must_use]
    pub fn range(start: impl Into<Bytes>, end: impl Into<Bytes>) -> Self {
        Self {
            end: Some(end.into()),
            ..Self::from(start)
        }
    }

    /// All keys from `start` to the end of the keyspace, forward, within the default limits.
    #[must_use]
    pub fn from(start: impl Into<Bytes>) -> Self {
        Self {
            start: start.into(),
            end: None,
            direction: Direction::Forward,
            entries_max: Self::ENTRIES_MAX_DEFAULT,
            bytes_max: Self::BYTES_MAX_DEFAULT,
        }
    }

    /// The whole keyspace, forward, within the default limits.
    #[must_use]
    pub fn all() -> Self {
        Self::from(Bytes::new())
    }

    /// The same range from its largest key downward.
    #[must_use]
    pub fn backward(mut self) -> Self {
        self.direction = Direction::Backward;
        self
    }

    /// At most `entries_max` entries.
    #[must_use]
    pub fn with_entries_max(mut self, entries_max: usize) -> Self {
        self.entries_max = entries_max;
        self
    }

    /// About `bytes_max` bytes of keys and values.
    #[must_use]
    pub fn with_bytes_max(mut self, bytes_max: usize) -> Self {
        self.bytes_max = bytes_max;
        self
    }

    /// Whether no key can lie in the range.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries_max == 0 || self.end.as_ref().is_some_and(|end| *end <= self.start)
    }

    /// Takes entries from an iterator that already walks the range in the right
    /// direction, until a limit of this scan is reached. Backends share it, so that the
    /// limits mean the same everywhere.
    ///
    /// # Errors
    ///
    /// The first error of the iterator.
    pub fn collect<E>(
        &self,
        entries: impl Iterator<Item = Result<Entry, E>>,
    ) -> Result<Vec<Entry>, E> {
        let mut taken = Vec::new();
        let mut bytes = 0;
        for entry in entries.take(self.entries_max) {
            let entry = entry?;
            bytes += entry.key.len() + entry.value.len();
            taken.push(entry);
            if bytes >= self.bytes_max {
                break;
            }
        }
        Ok(taken)
    }
}
