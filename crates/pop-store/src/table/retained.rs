//! Messages that retention took out of the log while somebody refers to them.
//!
//! A message is kept once, whoever refers to it. Whoever settles a reference knows nothing
//! of it: what nobody refers to any more is collected later.

use std::collections::BTreeSet;

use bytes::Bytes;
use pop_model::{Holder, LogQueue, Message, Offset, Retained, RetainedKey, StoredKey, StoredValue};

use super::{
    RETAINED, get_value,
    log::{LogEntry, remove_body},
};
use crate::{Result, Store, WriteBatch};

/// The row of a message as it was in the log, if it is kept.
pub(super) async fn get(
    store: &dyn Store,
    queue: LogQueue,
    offset: Offset,
) -> Result<Option<Bytes>> {
    let key = RetainedKey { queue, offset }.encode();
    let kept: Option<Retained> = get_value(store, RETAINED, &key).await?;
    Ok(kept.map(|kept| kept.row))
}

/// Keeps a row for its holders.
pub(super) fn keep(
    batch: &mut WriteBatch,
    queue: LogQueue,
    row: &LogEntry,
    holders: BTreeSet<Holder>,
) {
    let offset = row.offset;
    let kept = Retained {
        holders: holders.into_iter().collect(),
        row: row.row.clone(),
    };
    batch.put(
        RETAINED,
        RetainedKey { queue, offset }.encode(),
        kept.encode(),
    );
}

/// Adds the end of a kept message, with its body.
pub(super) fn remove(batch: &mut WriteBatch, key: Bytes, kept: &Retained) {
    batch.delete(RETAINED, key);
    match Message::decode(kept.row.clone()) {
        Ok(message) => remove_body(batch, &message.body),
        Err(error) => tracing::error!(%error, "a kept message that can't be read ended"),
    }
}

/// What takes holders out of a kept message that was read as `row`, and it with the last
/// one; `None` if all stay.
pub(super) fn without(
    mut kept: Retained,
    key: Bytes,
    row: Bytes,
    is_gone: impl Fn(&Holder) -> bool,
) -> Option<WriteBatch> {
    let held = kept.holders.len();
    kept.holders.retain(|holder| !is_gone(holder));
    if kept.holders.len() == held {
        return None;
    }
    let mut batch = WriteBatch::new();
    batch.require(RETAINED, key.clone(), row);
    if kept.holders.is_empty() {
        remove(&mut batch, key, &kept);
    } else {
        batch.put(RETAINED, key, kept.encode());
    }
    Some(batch)
}
