//! Records that could not be worked on: kept as they were, and listed, until an operator
//! says what becomes of them.

use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use pop_model::{
    Checkpoint, Holder, LeaseKey, LeaseTime, LogKey, LogQueue, Offset, QuarantineKey,
    QuarantineRecord, RetryEntry, RetryKey, StoredKey, StoredValue, SubscriptionEpoch,
    SubscriptionQueue,
};

use super::{LEASE, LOG, QUARANTINE, RETRY, value::corrupt};
use crate::{Keyspace, Result, Scan, Store, StoreExt, WriteBatch};

/// Gives each record in quarantine a place of its own. One of these serves a store.
#[derive(Debug, Default)]
pub struct QuarantineSequence {
    last: AtomicU64,
}

impl QuarantineSequence {
    /// Goes on after the last record of a store. Lease time alone would not do: over a
    /// restart it stands still, and after a crash it may be a moment behind.
    ///
    /// # Errors
    ///
    /// The store's, or a key that can't be decoded.
    pub async fn resume(store: &dyn Store) -> Result<Self> {
        let (start, end) = QuarantineKey::range();
        let scan = Scan::range(start, end).backward().with_entries_max(1);
        let last = store.scan(QUARANTINE, scan).await?.into_iter().next();
        let last = match last {
            None => 0,
            Some(entry) => QuarantineKey::decode(entry.key.clone())
                .map(|key| key.sequence)
                .map_err(|error| corrupt(store, QUARANTINE, &entry.key, error))?,
        };
        Ok(Self {
            last: AtomicU64::new(last),
        })
    }

    /// The place of the next record, in the order of lease time where that goes on.
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

/// Reads a record, with its row.
///
/// # Errors
///
/// The store's, or a record that can't be decoded.
pub async fn get(store: &dyn Store, sequence: u64) -> Result<Option<(Bytes, QuarantineRecord)>> {
    let key = QuarantineKey { sequence }.encode();
    let Some(row) = store.get(QUARANTINE, &key).await? else {
        return Ok(None);
    };
    let record = QuarantineRecord::decode(row.clone());
    let record = record.map_err(|error| corrupt(store, QUARANTINE, &key, error))?;
    Ok(Some((row, record)))
}

/// The messages of a queue that records refer to, and for whom: put back to work they are
/// needed again.
pub(super) async fn references(
    store: &dyn Store,
    queue: LogQueue,
) -> Result<Vec<(Offset, Holder)>> {
    let (start, end) = QuarantineKey::range();
    let mut found = Vec::new();
    let visit = |entries: Vec<crate::Entry>| {
        for entry in entries {
            let record = QuarantineRecord::decode(entry.value);
            let record = record.map_err(|error| corrupt(store, QUARANTINE, &entry.key, error))?;
            found.extend(reference(&record).filter(|(of, ..)| *of == queue));
        }
        Ok::<_, crate::Error>(true)
    };
    store
        .for_each_page(QUARANTINE, Scan::range(start, end), visit)
        .await?;
    let found = found.into_iter();
    Ok(found.map(|(_, offset, holder)| (offset, holder)).collect())
}

/// The deliveries of a queue that are in quarantine.
pub(super) async fn deliveries(store: &dyn Store, of: SubscriptionQueue) -> Result<Vec<Offset>> {
    let (start, end) = QuarantineKey::range();
    let mut found = Vec::new();
    let visit = |entries: Vec<crate::Entry>| {
        for entry in entries {
            let record = QuarantineRecord::decode(entry.value);
            let record = record.map_err(|error| corrupt(store, QUARANTINE, &entry.key, error))?;
            let key = match record.keyspace == LEASE.name() {
                true => LeaseKey::decode(record.key).ok(),
                false => None,
            };
            found.extend(key.filter(|key| key.queue == of).map(|key| key.offset));
        }
        Ok::<_, crate::Error>(true)
    };
    store
        .for_each_page(QUARANTINE, Scan::range(start, end), visit)
        .await?;
    Ok(found)
}

/// What a record refers to, where it can be read. A lease on a retry entry does not: the
/// entry is there, and does.
fn reference(record: &QuarantineRecord) -> Option<(LogQueue, Offset, Holder)> {
    let (key, value) = (record.key.clone(), record.value.clone());
    match record.keyspace.as_str() {
        it if it == LEASE.name() => {
            let key = LeaseKey::decode(key).ok()?;
            let epoch = Checkpoint::decode(value).ok()?.identity.epoch;
            let group = key.queue.group;
            let holder = Holder { group, epoch };
            (!key.queue.is_retry()).then_some((key.queue.log_queue(), key.offset, holder))
        }
        it if it == RETRY.name() => {
            let group = RetryKey::decode(key).ok()?.group;
            let entry = RetryEntry::decode(value).ok()?;
            let epoch = entry.epoch;
            Some((entry.source, entry.offset, Holder { group, epoch }))
        }
        it if it == LOG.name() => {
            let key = LogKey::decode(key).ok()?;
            let group = record.group?;
            // No delivery of it was ever made, so that no reset makes it void.
            let epoch = SubscriptionEpoch::new(u64::MAX);
            Some((key.queue, key.offset, Holder { group, epoch }))
        }
        _ => None,
    }
}

/// Ends the record that was read as `row`, in the batch with what becomes of it.
pub fn remove(batch: &mut WriteBatch, sequence: u64, row: Bytes) {
    let key = QuarantineKey { sequence }.encode();
    batch.require(QUARANTINE, key.clone(), row);
    batch.delete(QUARANTINE, key);
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
