//! Lease rows and the hints that make them due.
//!
//! Invariant: for each row there is a hint at or before its `visible_at`. A renewal to a
//! later moment may therefore write the row alone; the hint is moved when it is due.

use bytes::Bytes;
use pop_model::{Checkpoint, StoredValue};

use super::{DUE, LEASE};
use crate::WriteBatch;

/// Adds a new delivery: its row, which must not be there yet, and its hint.
pub fn put_new(batch: &mut WriteBatch, checkpoint: &Checkpoint) {
    batch.require_absent(LEASE, checkpoint.lease_key());
    put(batch, checkpoint);
}

/// Replaces the row that was read as `row` and puts a hint for the new moment.
pub fn replace(batch: &mut WriteBatch, row: Bytes, checkpoint: &Checkpoint) {
    batch.require(LEASE, checkpoint.lease_key(), row);
    put(batch, checkpoint);
}

/// Replaces the row that was read as `row` with one that is due later: its old hint does.
pub fn postpone(batch: &mut WriteBatch, row: Bytes, checkpoint: &Checkpoint) {
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
