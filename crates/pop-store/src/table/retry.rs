//! The retry queue of a group for one topic.

use bytes::Bytes;
use pop_model::{
    GroupId, MetaKey, RetryBounds, RetryEntry, RetryKey, StoredKey, StoredValue, TopicId,
};

use super::{META, RETRY, get_value, value::corrupt};
use crate::{Error, Result, Scan, Store, StoreExt, WriteBatch};

/// Reads the floor of a retry queue and the sequences that are in it.
///
/// # Errors
///
/// The store's, or a key that can't be decoded.
pub async fn load(
    store: &dyn Store,
    group: GroupId,
    topic: TopicId,
) -> Result<(RetryBounds, Vec<u64>)> {
    let key = MetaKey::RetryBounds { group, topic }.encode();
    let bounds: RetryBounds = get_value(store, META, &key).await?.unwrap_or_default();
    let (start, end) = RetryKey::range_from(group, topic, bounds.floor);
    let mut sequences = Vec::new();
    store
        .for_each_page(RETRY, Scan::range(start, end), |entries| {
            for entry in entries {
                let key = RetryKey::decode(entry.key.clone());
                sequences.push(
                    key.map_err(|error| corrupt(store, RETRY, &entry.key, error))?
                        .sequence,
                );
            }
            Ok::<_, Error>(true)
        })
        .await?;
    Ok((bounds, sequences))
}

/// Adds an entry.
pub fn put(batch: &mut WriteBatch, key: RetryKey, entry: &RetryEntry) {
    batch.put(RETRY, key.encode(), entry.encode());
}

/// Removes the entry that was read as `row`.
pub fn remove(batch: &mut WriteBatch, key: RetryKey, row: Bytes) {
    batch.require(RETRY, key.encode(), row);
    batch.delete(RETRY, key.encode());
}

/// Adds a new floor.
pub fn put_floor(batch: &mut WriteBatch, group: GroupId, topic: TopicId, floor: u64) {
    let key = MetaKey::RetryBounds { group, topic };
    batch.put(META, key.encode(), RetryBounds { floor }.encode());
}
