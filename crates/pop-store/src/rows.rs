//! Many rows in one piece of memory.

use std::mem;

use bytes::{Bytes, BytesMut};

use crate::{Entry, WriteBatch};

/// Rows of one keyspace whose keys and values lie in one piece of memory.
///
/// Key and value of an [`Entry`] have each a count of who uses them. Where many small rows go
/// from one store to another, keeping these counts costs more than anything else that is done
/// to a row on its way. Here it is one count for all of them, and none is freed before all are.
#[derive(Clone, Debug, Default)]
pub struct Rows {
    bytes: Bytes,
    places: Vec<Place>,
    byte_count: usize,
}

/// Where a row lies: its value begins where its key ends.
#[derive(Clone, Copy, Debug)]
struct Place {
    start: usize,
    key_end: usize,
    end: usize,
}

impl Rows {
    /// No rows yet; those that are [pushed](Self::push) lie in `bytes`.
    #[must_use]
    pub fn within(bytes: Bytes, capacity: usize) -> Self {
        Self {
            bytes,
            places: Vec::with_capacity(capacity),
            byte_count: 0,
        }
    }

    /// Adds the row whose key begins at byte `start`, with its value right behind. False, and
    /// nothing is added, if it does not lie within the bytes.
    #[must_use]
    pub fn push(&mut self, start: usize, key_bytes: usize, value_bytes: usize) -> bool {
        let place = || {
            let key_end = start.checked_add(key_bytes)?;
            let end = key_end.checked_add(value_bytes)?;
            (end <= self.bytes.len()).then_some(Place {
                start,
                key_end,
                end,
            })
        };
        let Some(place) = place() else {
            return false;
        };
        self.places.push(place);
        self.byte_count += key_bytes + value_bytes;
        true
    }

    /// How many they are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// How many bytes their keys and values have.
    #[must_use]
    pub fn byte_count(&self) -> usize {
        self.byte_count
    }

    /// Key and value of each.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&[u8], &[u8])> {
        self.places.iter().map(|place| self.row(*place))
    }

    /// Key and value of the last one.
    #[must_use]
    pub fn last(&self) -> Option<(&[u8], &[u8])> {
        self.places.last().map(|place| self.row(*place))
    }

    /// The piece of memory in which they lie.
    #[cfg(feature = "rocksdb")]
    pub(crate) fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    fn row(&self, place: Place) -> (&[u8], &[u8]) {
        // A place lies within the bytes, so that this is all of it.
        let part = |from, to| self.bytes.get(from..to).unwrap_or_default();
        (
            part(place.start, place.key_end),
            part(place.key_end, place.end),
        )
    }

    /// Each by itself. One that is held keeps all of them in memory.
    pub fn entries(&self) -> impl Iterator<Item = Entry> {
        self.iter().map(|(key, value)| Entry {
            key: self.bytes.slice_ref(key),
            value: self.bytes.slice_ref(value),
        })
    }

    /// Each by itself, in parts that a batch can carry.
    pub fn batches(&self) -> impl Iterator<Item = Vec<Entry>> {
        let mut entries = self.entries().peekable();
        std::iter::from_fn(move || {
            let mut batch = Vec::new();
            let mut bytes = 0;
            while let Some(entry) = entries.next_if(|next| {
                let fits = bytes + size(next) <= WriteBatch::BYTES_MAX;
                batch.is_empty() || fits && batch.len() < WriteBatch::KEYS_MAX
            }) {
                bytes += size(&entry);
                batch.push(entry);
            }
            Some(mem::take(&mut batch)).filter(|it| !it.is_empty())
        })
    }
}

fn size(entry: &Entry) -> usize {
    entry.key.len() + entry.value.len()
}

/// A copy, in one piece.
impl From<Vec<Entry>> for Rows {
    fn from(entries: Vec<Entry>) -> Self {
        let mut bytes = BytesMut::with_capacity(entries.iter().map(size).sum());
        for entry in &entries {
            bytes.extend_from_slice(&entry.key);
            bytes.extend_from_slice(&entry.value);
        }
        let mut rows = Self::within(bytes.freeze(), entries.len());
        let mut start = 0;
        for entry in &entries {
            let fits = rows.push(start, entry.key.len(), entry.value.len());
            debug_assert!(fits, "the bytes are those of the entries");
            start += size(entry);
        }
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(key: &'static str, value: Vec<u8>) -> Entry {
        Entry {
            key: key.into(),
            value: value.into(),
        }
    }

    #[test]
    fn rows_are_the_entries_that_they_were_made_of() {
        let entries = vec![
            entry("a", vec![1; 3]),
            entry("", vec![]),
            entry("b", vec![2; 500]),
        ];
        let rows = Rows::from(entries.clone());
        assert_eq!(rows.entries().collect::<Vec<_>>(), entries);
        assert_eq!((rows.len(), rows.byte_count()), (3, 505));
        assert_eq!(rows.last(), Some((&b"b"[..], &[2; 500][..])));
    }

    // Mutant: leave the end out of the check.
    #[test]
    fn a_row_outside_the_bytes_is_not_added() {
        let mut rows = Rows::within(Bytes::from_static(b"keyvalue"), 0);
        assert!(rows.push(0, 3, 5) && rows.push(8, 0, 0));
        assert!(!rows.push(0, 3, 6) && !rows.push(9, 0, 0) && !rows.push(usize::MAX, 1, 1));
        assert_eq!(rows.len(), 2);
        assert_eq!(rows.byte_count(), 8);
    }

    // Mutants: forget the bytes of the batch before; leave one of the limits out.
    #[test]
    fn batches_keep_to_the_limits_and_leave_nothing_out() {
        let many = (0..WriteBatch::KEYS_MAX + 1).map(|_| entry("k", vec![]));
        let large = (0..5).map(|_| entry("l", vec![0; WriteBatch::BYTES_MAX / 2 - 1]));
        let alone = [entry("m", vec![0; WriteBatch::BYTES_MAX + 1])];
        let entries: Vec<_> = many.chain(large).chain(alone).collect();
        let batches: Vec<_> = Rows::from(entries.clone()).batches().collect();
        let counts: Vec<_> = batches.iter().map(Vec::len).collect();
        assert_eq!(counts, [1_000, 2, 2, 2, 1]);
        assert_eq!(batches.concat(), entries);
    }
}
