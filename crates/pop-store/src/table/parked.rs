//! Messages of an ordered queue that wait in the store for the one before them in their
//! message group. Their offsets are settled: the gate passes them.

use bytes::Bytes;
use pop_model::{Offset, ParkedKey, StoredKey, SubscriptionQueue};

use super::{PROGRESS, value::corrupt};
use crate::{Error, Result, Scan, Store, StoreExt, WriteBatch};

/// A message that is parked: the hash of its message group, and its offset.
pub type Parked = (u64, Offset);

/// Parks a message.
pub fn put(batch: &mut WriteBatch, queue: SubscriptionQueue, parked: Parked) {
    batch.put(PROGRESS, key(queue, parked), Bytes::new());
}

/// A message is parked no longer.
pub fn delete(batch: &mut WriteBatch, queue: SubscriptionQueue, parked: Parked) {
    batch.delete(PROGRESS, key(queue, parked));
}

/// Deletes everything of a queue.
pub fn delete_all(batch: &mut WriteBatch, queue: SubscriptionQueue) {
    let (start, end) = ParkedKey::queue_range(queue);
    batch.delete_range(PROGRESS, start, end);
}

/// The first `count` of a message group from an offset on, ascending.
///
/// # Errors
///
/// The store's, or a key that can't be decoded.
pub async fn of_message_group(
    store: &dyn Store,
    queue: SubscriptionQueue,
    (message_group, from): Parked,
    count: usize,
) -> Result<Vec<Offset>> {
    let (start, end) = ParkedKey::range_from(queue, message_group, from);
    let scan = Scan::range(start, end).with_entries_max(count);
    let entries = store.scan(PROGRESS, scan).await?;
    let offset = |entry: crate::Entry| Ok(decode(store, entry.key)?.offset);
    entries.into_iter().map(offset).collect()
}

/// Calls `visit` for each of a queue: by message group, in order.
///
/// # Errors
///
/// The store's, or a key that can't be decoded.
pub async fn for_each(
    store: &dyn Store,
    queue: SubscriptionQueue,
    mut visit: impl FnMut(Parked) + Send,
) -> Result<()> {
    let (start, end) = ParkedKey::queue_range(queue);
    let scan = Scan::range(start, end);
    let page = |entries: Vec<crate::Entry>| {
        for entry in entries {
            let key = decode(store, entry.key)?;
            visit((key.message_group, key.offset));
        }
        Ok::<_, Error>(true)
    };
    store.for_each_page(PROGRESS, scan, page).await
}

fn key(queue: SubscriptionQueue, (message_group, offset): Parked) -> Bytes {
    let key = ParkedKey {
        queue,
        message_group,
        offset,
    };
    key.encode()
}

fn decode(store: &dyn Store, key: Bytes) -> Result<ParkedKey> {
    let decoded = ParkedKey::decode(key.clone());
    decoded.map_err(|error| corrupt(store, PROGRESS, &key, error))
}
