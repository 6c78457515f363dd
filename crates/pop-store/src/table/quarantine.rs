//! Records that could not be worked on: kept as they were, listed, never dropped.

use std::sync::atomic::{AtomicU64, Ordering};

use pop_model::{LeaseTime, QuarantineKey, QuarantineRecord, StoredKey, StoredValue};

use super::{QUARANTINE, value::corrupt};
use crate::{Keyspace, Result, Scan, Store, WriteBatch};

/// Gives each record in quarantine a place of its own. One of these serves a store.
#[derive(Debug, Default)]
pub struct QuarantineSequence {
    last: AtomicU64,
}

impl QuarantineSequence {
    /// The place of the next record. Lease time never goes back over a restart, so what
    /// is led by it never meets an earlier one.
    pub fn next(&self, now: LeaseTime) -> u64 {
        let from_time = now.as_millis() << 20;
        let after = |last: u64| Some(from_time.max(last.saturating_add(1)));
        // Relaxed: the place alone matters, nothing else is published with it.
        let last = self
            .last
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, after);
        let (Ok(last) | Err(last)) = last;
        from_time.max(last.saturating_add(1))
    }
}

/// Moves a row into quarantine, if it is still what `record` says.
pub fn put_away(
    batch: &mut WriteBatch,
    sequence: u64,
    keyspace: Keyspace,
    record: QuarantineRecord,
) {
    batch.require(keyspace, record.key.clone(), record.value.clone());
    batch.delete(keyspace, record.key.clone());
    put_copy(batch, sequence, record);
}

/// Adds a copy of a row that stays where it is, since others may be able to use it.
pub fn put_copy(batch: &mut WriteBatch, sequence: u64, record: QuarantineRecord) {
    let key = QuarantineKey { sequence }.encode();
    batch.require_absent(QUARANTINE, key.clone());
    batch.put(QUARANTINE, key, record.encode());
}

/// Lists up to `count` records with a sequence of at least `from`.
///
/// # Errors
///
/// The store's, or a record that can't be decoded.
pub async fn list(
    store: &dyn Store,
    from: u64,
    count: usize,
) -> Result<Vec<(u64, QuarantineRecord)>> {
    let (_, end) = QuarantineKey::range();
    let start = QuarantineKey { sequence: from }.encode();
    let scan = Scan::range(start, end).with_entries_max(count);
    let entries = store.scan(QUARANTINE, scan).await?;
    let decode = |entry: crate::Entry| {
        let wrong = |error| corrupt(store, QUARANTINE, &entry.key, error);
        let key = QuarantineKey::decode(entry.key.clone()).map_err(wrong)?;
        Ok((
            key.sequence,
            QuarantineRecord::decode(entry.value.clone()).map_err(wrong)?,
        ))
    };
    entries.into_iter().map(decode).collect()
}
