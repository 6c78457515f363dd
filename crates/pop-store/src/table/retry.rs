//! The retry queue of a group for one topic: its entries by their sequence.
//!
//! What is settled of it is kept like that of any other queue, under
//! [`QueueId::RETRY`](pop_model::QueueId::RETRY).

use pop_model::{
    Offset, RetryEntry, RetryKey, StoredKey, StoredValue, SubscriptionQueue,
    limits::MARK_PAGE_OFFSETS,
};

use super::{RETRY, progress, value::corrupt};
use crate::{Result, Scan, Store, WriteBatch};

/// Adds an entry.
pub fn put(batch: &mut WriteBatch, key: RetryKey, entry: &RetryEntry) {
    batch.put(RETRY, key.encode(), entry.encode());
}

/// The end of a retry queue: above every entry, and above everything that is settled, so
/// that no sequence is given out twice.
///
/// # Errors
///
/// The store's, or a key that can't be decoded.
pub async fn end(store: &dyn Store, queue: SubscriptionQueue) -> Result<Offset> {
    let (start, end) = RetryKey::range_from(queue.group, queue.topic, 0);
    let scan = Scan::range(start, end).backward().with_entries_max(1);
    let mut after_last = Offset::ZERO;
    for entry in store.scan(RETRY, scan).await? {
        let key = RetryKey::decode(entry.key.clone());
        let key = key.map_err(|error| corrupt(store, RETRY, &entry.key, error))?;
        after_last = Offset::new(key.sequence).next();
    }
    let readable = progress::load_readable(store, queue).await?;
    let committed = readable
        .progress
        .map_or(Offset::ZERO, |progress| progress.committed);
    let marked = readable.pages.last();
    let marked = marked.map_or(Offset::ZERO, |(number, page)| page.end(*number));
    // Anything on one that can't be decoded may be settled.
    let bad = readable.bad.last();
    let after_bad = bad.map_or(Offset::ZERO, |(number, _)| {
        Offset::new(number.saturating_add(1).saturating_mul(MARK_PAGE_OFFSETS))
    });
    Ok(after_last.max(committed).max(marked).max(after_bad))
}
