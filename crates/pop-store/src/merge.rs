//! The net effect of a group of batches that are committed together.

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::{Error, Keyspace, Result, WriteBatch};

/// Several batches folded into one write.
///
/// Batch `i` sees the effect of batches `0..i`; a failed precondition leaves the group as
/// it was and rejects only its own batch. What remains is the shape every engine can take,
/// also those whose batches have no order inside: first [`range_deletes`](Self::range_deletes)
/// on the content before the group, then one net operation a key.
#[derive(Debug, Default)]
pub struct Group {
    range_deletes: Vec<(Keyspace, Bytes, Bytes)>,
    // `None` is a delete. Invariant: no key of a range delete that came later than its
    // operation is in here, so that applying the range deletes first is right.
    operations: BTreeMap<(Keyspace, Bytes), Option<Bytes>>,
    bytes: usize,
}

impl Group {
    /// A group without effect.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds `batch`, if its preconditions hold on what `read` returns for the content
    /// before the group, seen through the batches already in it.
    ///
    /// # Errors
    ///
    /// A conflict, or the first error of `read`; the group is as it was.
    pub fn add(
        &mut self,
        backend: &'static str,
        batch: WriteBatch,
        mut read: impl FnMut(Keyspace, &[u8]) -> Result<Option<Bytes>>,
    ) -> Result<()> {
        for condition in &batch.preconditions {
            let holds = match self.pending(condition.keyspace, &condition.key) {
                Some(value) => value == condition.expected.as_ref(),
                None => read(condition.keyspace, &condition.key)? == condition.expected,
            };
            if !holds {
                return Err(Error::conflict_on(
                    backend,
                    condition.keyspace,
                    condition.key.clone(),
                ));
            }
        }
        self.bytes += batch.byte_count();
        for range in batch.range_deletes {
            if range.start >= range.end {
                continue;
            }
            let covered: Vec<_> = self
                .operations
                .range((range.keyspace, range.start.clone())..(range.keyspace, range.end.clone()))
                .map(|(key, _)| key.clone())
                .collect();
            for key in covered {
                self.operations.remove(&key);
            }
            self.range_deletes
                .push((range.keyspace, range.start, range.end));
        }
        for (keyspace, key) in batch.deletes {
            self.operations.insert((keyspace, key), None);
        }
        for (keyspace, key, value) in batch.puts {
            self.operations.insert((keyspace, key), Some(value));
        }
        Ok(())
    }

    /// What the group makes of `key`: `None` if it does not touch it.
    fn pending(&self, keyspace: Keyspace, key: &Bytes) -> Option<Option<&Bytes>> {
        if let Some(value) = self.operations.get(&(keyspace, key.clone())) {
            return Some(value.as_ref());
        }
        let deleted = self
            .range_deletes
            .iter()
            .any(|(space, start, end)| *space == keyspace && start <= key && key < end);
        deleted.then_some(None)
    }

    /// Ranges to delete from the content before the group, first.
    #[must_use]
    pub fn range_deletes(&self) -> &[(Keyspace, Bytes, Bytes)] {
        &self.range_deletes
    }

    /// One net operation a key, in key order: put this value, or delete (`None`).
    pub fn operations(&self) -> impl Iterator<Item = (Keyspace, &Bytes, Option<&Bytes>)> {
        self.operations
            .iter()
            .map(|((keyspace, key), value)| (*keyspace, key, value.as_ref()))
    }

    /// The same, by value.
    pub fn into_operations(self) -> impl Iterator<Item = (Keyspace, Bytes, Option<Bytes>)> {
        let operations = self.operations.into_iter();
        operations.map(|((keyspace, key), value)| (keyspace, key, value))
    }

    /// How many keys the group writes.
    #[must_use]
    pub fn key_count(&self) -> usize {
        self.operations.len() + self.range_deletes.len()
    }

    /// How many bytes its batches carried.
    #[must_use]
    pub fn byte_count(&self) -> usize {
        self.bytes
    }

    /// Whether nothing is to be written.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.operations.is_empty() && self.range_deletes.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Keyspace = Keyspace::new("a");

    fn bytes(text: &'static str) -> Bytes {
        Bytes::from_static(text.as_bytes())
    }

    fn add(group: &mut Group, batch: &WriteBatch) -> Result<()> {
        group.add("test", batch.clone(), |_, key| {
            Ok((key == b"base").then(|| bytes("0")))
        })
    }

    fn net(group: &Group) -> Vec<(Bytes, Option<Bytes>)> {
        group
            .operations()
            .map(|(_, key, value)| (key.clone(), value.cloned()))
            .collect()
    }

    #[test]
    fn a_later_batch_sees_what_an_earlier_one_did() {
        let mut group = Group::new();
        add(&mut group, WriteBatch::new().put(A, bytes("k"), bytes("1"))).unwrap();
        add(
            &mut group,
            WriteBatch::new()
                .require(A, bytes("k"), bytes("1"))
                .put(A, bytes("k"), bytes("2")),
        )
        .unwrap();
        let error = add(
            &mut group,
            WriteBatch::new()
                .require(A, bytes("k"), bytes("1"))
                .delete(A, bytes("k")),
        );
        assert_eq!(error.unwrap_err().conflict(), Some((A, &bytes("k"))));
        assert_eq!(net(&group), [(bytes("k"), Some(bytes("2")))]);
    }

    #[test]
    fn a_range_delete_hides_the_base_and_earlier_puts_but_not_later_ones() {
        let mut group = Group::new();
        add(&mut group, WriteBatch::new().put(A, bytes("b"), bytes("1"))).unwrap();
        add(
            &mut group,
            WriteBatch::new()
                .delete_range(A, bytes("a"), bytes("z"))
                .put(A, bytes("c"), bytes("2")),
        )
        .unwrap();
        add(
            &mut group,
            WriteBatch::new()
                .require_absent(A, bytes("base"))
                .require_absent(A, bytes("b")),
        )
        .unwrap();
        add(
            &mut group,
            WriteBatch::new().require(A, bytes("c"), bytes("2")),
        )
        .unwrap();
        assert_eq!(net(&group), [(bytes("c"), Some(bytes("2")))]);
        assert_eq!(group.range_deletes().len(), 1);
    }

    #[test]
    fn an_empty_range_deletes_nothing() {
        let mut group = Group::new();
        add(
            &mut group,
            WriteBatch::new().delete_range(A, bytes("z"), bytes("a")),
        )
        .unwrap();
        assert!(group.is_empty());
    }
}
