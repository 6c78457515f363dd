//! The ends of a queue as they are stored, where its rows alone don't tell of them.

use pop_model::{LogQueue, MetaKey, Offset, StoredKey, StoredValue};

use crate::{
    Result, Store, WriteBatch,
    table::{
        META,
        number::{Number, number},
    },
};

/// The first offset of a queue that may still be there.
///
/// # Errors
///
/// The store's, or a record that can't be decoded.
pub(super) async fn start(store: &dyn Store, queue: LogQueue) -> Result<Offset> {
    let start = number(store, &MetaKey::LogStart(queue)).await?;
    Ok(start.map_or(Offset::ZERO, Offset::new))
}

/// Moves the start of a queue, if it is `before`.
pub(super) fn raise_start(batch: &mut WriteBatch, queue: LogQueue, before: Offset, start: Offset) {
    let key = MetaKey::LogStart(queue).encode();
    if before == Offset::ZERO {
        batch.require_absent(META, key.clone());
    } else {
        batch.require(META, key.clone(), Number(before.get()).encode());
    }
    batch.put(META, key, Number(start.get()).encode());
}

/// The end of a queue, if it was ever stored.
///
/// # Errors
///
/// The store's, or a record that can't be decoded.
pub(super) async fn end(store: &dyn Store, queue: LogQueue) -> Result<Option<Offset>> {
    let end = number(store, &MetaKey::LogEnd(queue)).await?;
    Ok(end.map(Offset::new))
}

/// Moves the end of a queue up to `end`, if it is still `before`. It never goes down.
pub(super) fn raise_end(
    batch: &mut WriteBatch,
    queue: LogQueue,
    before: Option<Offset>,
    end: Offset,
) {
    if end <= before.unwrap_or_default() {
        return;
    }
    let key = MetaKey::LogEnd(queue).encode();
    match before {
        None => batch.require_absent(META, key.clone()),
        Some(before) => batch.require(META, key.clone(), Number(before.get()).encode()),
    };
    batch.put(META, key, Number(end.get()).encode());
}
