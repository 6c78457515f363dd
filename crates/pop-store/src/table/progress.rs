//! The committed offset of a subscription queue and the settled marks above it.

use pop_model::{
    MarkPage, MarkPageKey, Offset, Progress, ProgressKey, StoredKey, StoredValue, SubscriptionQueue,
};

use super::{PROGRESS, Undecodable, get_value, value::corrupt};
use crate::{Entry, Error, Result, Scan, Store, StoreExt, WriteBatch};

/// Reads the progress of a queue; `None` if none was ever written.
///
/// # Errors
///
/// The store's, or a row that can't be decoded.
pub async fn load(
    store: &dyn Store,
    queue: SubscriptionQueue,
) -> Result<(Option<Progress>, Vec<(u64, MarkPage)>)> {
    let readable = load_readable(store, queue).await?;
    match readable.bad.into_iter().next() {
        None => Ok((readable.progress, readable.pages)),
        Some((_, bad)) => Err(bad.corrupt(store, PROGRESS)),
    }
}

/// What can be decoded of the progress of a queue.
#[derive(Debug, Default)]
pub struct Readable {
    /// The committed offset, if one was ever written.
    pub progress: Option<Progress>,
    /// The pages, by their number.
    pub pages: Vec<(u64, MarkPage)>,
    /// Those that can't be decoded.
    pub bad: Vec<(u64, Undecodable)>,
}

/// As [`load`], and pages that can't be decoded apart.
///
/// # Errors
///
/// The store's, or a row that is no page and can't be decoded.
pub async fn load_readable(store: &dyn Store, queue: SubscriptionQueue) -> Result<Readable> {
    let progress = get_value(store, PROGRESS, &ProgressKey { queue }.encode()).await?;
    let mut readable = Readable {
        progress,
        ..Readable::default()
    };
    let (start, end) = MarkPageKey::queue_range(queue);
    store
        .for_each_page(PROGRESS, Scan::range(start, end), |entries| {
            for Entry { key, value } in entries {
                let wrong = |error| corrupt(store, PROGRESS, &key, error);
                let number = MarkPageKey::decode(key.clone()).map_err(wrong)?.page;
                match MarkPage::decode(value.clone()) {
                    Ok(page) => readable.pages.push((number, page)),
                    Err(error) => readable
                        .bad
                        .push((number, Undecodable { key, value, error })),
                }
            }
            Ok::<_, Error>(true)
        })
        .await?;
    Ok(readable)
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
