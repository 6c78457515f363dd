//! Lease rows and the hints that make them due.
//!
//! Invariant: for each row there is a hint at or before its `visible_at`. A renewal to a
//! later moment may therefore write the row alone; the hint is moved when it is due.

use bytes::Bytes;
use pop_model::{Checkpoint, LeaseKey, Mutant, Offset, StoredKey, StoredValue, SubscriptionQueue};

use super::{DUE, LEASE, Undecodable};
use crate::{Entry, Error, Result, Scan, Store, StoreExt, WriteBatch};

/// Stores a delivery that was in memory: its row and its hint. A row that is there is of a
/// delivery before a reset, and void.
pub fn store(batch: &mut WriteBatch, checkpoint: &Checkpoint) {
    put(batch, checkpoint);
}

/// Writes the row of a delivery of an ordered queue. It has no hint: its offset is open,
/// and whoever loads the queue finds it.
pub fn keep(batch: &mut WriteBatch, checkpoint: &Checkpoint) {
    batch.put(LEASE, checkpoint.lease_key(), checkpoint.encode());
}

/// Deletes the row of a delivery that only its queue's owner ends.
pub fn delete(batch: &mut WriteBatch, queue: SubscriptionQueue, offset: Offset) {
    batch.delete(LEASE, LeaseKey { queue, offset }.encode());
}

/// Reads the rows of a queue, in the order of their offsets, up to `count`.
///
/// # Errors
///
/// The store's, or a row that can't be decoded.
pub async fn load(
    store: &dyn Store,
    queue: SubscriptionQueue,
    count: usize,
) -> Result<Vec<Checkpoint>> {
    let (rows, bad) = load_readable(store, queue, count).await?;
    match bad.into_iter().next() {
        None => Ok(rows),
        Some(bad) => Err(bad.corrupt(store, LEASE)),
    }
}

/// As [`load`], and those that can't be decoded apart.
///
/// # Errors
///
/// The store's.
pub async fn load_readable(
    store: &dyn Store,
    queue: SubscriptionQueue,
    count: usize,
) -> Result<(Vec<Checkpoint>, Vec<Undecodable>)> {
    let (start, end) = LeaseKey::queue_range(queue);
    let (mut rows, mut bad) = (Vec::new(), Vec::new());
    store
        .for_each_page(LEASE, Scan::range(start, end), |entries| {
            for Entry { key, value } in entries {
                match Checkpoint::decode(value.clone()) {
                    Ok(row) => rows.push(row),
                    Err(error) => bad.push(Undecodable { key, value, error }),
                }
            }
            Ok::<_, Error>(rows.len() < count)
        })
        .await?;
    Ok((rows, bad))
}

/// Replaces the row that was read as `row` and puts a hint for the new moment.
pub fn replace(batch: &mut WriteBatch, row: Bytes, checkpoint: &Checkpoint) {
    batch.require(LEASE, checkpoint.lease_key(), row);
    put(batch, checkpoint);
}

/// Replaces the row that was read as `row` with one that is due later: its old hint does.
pub fn postpone(batch: &mut WriteBatch, row: Bytes, checkpoint: &Checkpoint) {
    if Mutant::EqualDeadlineDeletesTheHint.is_on() {
        batch.delete(DUE, checkpoint.due_key());
    }
    batch.require(LEASE, checkpoint.lease_key(), row);
    batch.put(LEASE, checkpoint.lease_key(), checkpoint.encode());
}

/// Ends the delivery that was read as `row`. A hint that a renewal left behind stays; it
/// is dropped when it is due.
pub fn remove(batch: &mut WriteBatch, row: Bytes, checkpoint: &Checkpoint) {
    batch.require(LEASE, checkpoint.lease_key(), row);
    batch.delete(LEASE, checkpoint.lease_key());
    batch.delete(DUE, checkpoint.due_key());
}

fn put(batch: &mut WriteBatch, checkpoint: &Checkpoint) {
    batch.put(LEASE, checkpoint.lease_key(), checkpoint.encode());
    batch.put(DUE, checkpoint.due_key(), Bytes::new());
}
