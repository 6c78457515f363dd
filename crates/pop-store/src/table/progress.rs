//! The committed offset of a subscription queue and the settled marks above it.

use pop_model::{
    MarkPage, MarkPageKey, Offset, Progress, ProgressKey, StoredKey, StoredValue, SubscriptionQueue,
};

use super::{PROGRESS, get_value, value::corrupt};
use crate::{Error, Result, Scan, Store, StoreExt, WriteBatch};

/// Reads the progress of a queue; `None` if none was ever written.
///
/// # Errors
///
/// The store's, or a row that can't be decoded.
pub async fn load(
    store: &dyn Store,
    queue: SubscriptionQueue,
) -> Result<(Option<Progress>, Vec<(u64, MarkPage)>)> {
    let progress = get_value(store, PROGRESS, &ProgressKey { queue }.encode()).await?;
    let (start, end) = MarkPageKey::queue_range(queue);
    let mut pages = Vec::new();
    store
        .for_each_page(PROGRESS, Scan::range(start, end), |entries| {
            for entry in entries {
                let wrong = |error| corrupt(store, PROGRESS, &entry.key, error);
                let key = MarkPageKey::decode(entry.key.clone()).map_err(wrong)?;
                pages.push((key.page, MarkPage::decode(entry.value).map_err(wrong)?));
            }
            Ok::<_, Error>(true)
        })
        .await?;
    Ok((progress, pages))
}

/// The committed offset of a queue; the first one if none was ever written.
///
/// # Errors
///
/// The store's, or a row that can't be decoded.
pub async fn committed(store: &dyn Store, queue: SubscriptionQueue) -> Result<Offset> {
    let progress: Option<Progress> =
        get_value(store, PROGRESS, &ProgressKey { queue }.encode()).await?;
    Ok(progress.map_or(Offset::ZERO, |progress| progress.committed))
}

/// Adds a new committed offset.
pub fn put(batch: &mut WriteBatch, queue: SubscriptionQueue, progress: &Progress) {
    batch.put(PROGRESS, ProgressKey { queue }.encode(), progress.encode());
}

/// Adds a page of settled marks.
pub fn put_page(batch: &mut WriteBatch, queue: SubscriptionQueue, page: u64, marks: &MarkPage) {
    batch.put(
        PROGRESS,
        MarkPageKey { queue, page }.encode(),
        marks.encode(),
    );
}

/// Drops a page that the committed offset has passed.
pub fn delete_page(batch: &mut WriteBatch, queue: SubscriptionQueue, page: u64) {
    batch.delete(PROGRESS, MarkPageKey { queue, page }.encode());
}
