//! Records that could not be worked on: kept as they were, listed, never dropped.

use bytes::Bytes;
use pop_model::{QuarantineKey, QuarantineRecord, StoredKey, StoredValue, WallTime};

use super::{QUARANTINE, value::corrupt};
use crate::{Keyspace, Result, Scan, Store, WriteBatch};

/// Moves the row `value` at `key` of `keyspace`, as it was read, into quarantine.
pub fn put_away(
    batch: &mut WriteBatch,
    sequence: u64,
    keyspace: Keyspace,
    key: Bytes,
    value: Bytes,
    reason: String,
    at: WallTime,
) {
    batch.require(keyspace, key.clone(), value.clone());
    batch.delete(keyspace, key.clone());
    let record = QuarantineRecord {
        reason,
        keyspace: keyspace.name().into(),
        key,
        value,
        at,
    };
    batch.put(
        QUARANTINE,
        QuarantineKey { sequence }.encode(),
        record.encode(),
    );
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
