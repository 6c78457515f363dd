//! Sweeping what a deleted topic or group leaves behind, in bounded batches.
//!
//! Each step is complete in itself and the tombstone goes last, so that whoever comes
//! after a crash begins anew and ends where this one would have. What may still turn into
//! something else goes first: a lease before the entry that it becomes when it expires.

use bytes::Bytes;
use pop_model::{
    Checkpoint, GroupId, GroupRecord, Holder, LeaseKey, LogKey, LogQueue, MarkPageKey, Message,
    MetaKey, Mutant, ParkedKey, ProgressKey, QueueId, Retained, RetainedKey, RetryKey, ShardId,
    StoredKey, StoredValue, SubscriptionQueue, TopicId, TopicRecord,
};

use super::{DUE, LEASE, LOG, META, PROGRESS, RETAINED, RETRY, log::remove_body, meta, retained};
use crate::{Durability, Entry, ErrorKind, Keyspace, Result, Scan, Store, WriteBatch};

/// Rows of one batch: a row takes a delete, and a range or another delete for what hangs
/// on it.
const ROWS_MAX: usize = 300;
/// How often the end of a kept message is tried again when its holders change.
const TRIES_MAX: usize = 64;

/// What a sweep took away.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Erased {
    /// Messages.
    pub messages: u64,
    /// Deliveries that were out, and messages that were ready for another one.
    pub deliveries: u64,
}

/// Sweeps everything of a deleted topic, and its tombstone last.
///
/// # Contract
///
/// Nobody adds to it any more: the log is closed to it
/// ([`StoreLog::close_topic`](super::StoreLog::close_topic)), and no receive of it runs.
///
/// # Errors
///
/// The store's; it is to be called again then.
///
/// # Cancel safety
///
/// What is done stays done; it is to be called again.
pub async fn erase_topic(store: &dyn Store, topic: &TopicRecord) -> Result<Erased> {
    let mut erased = Erased::default();
    let subscribed = meta::subscriptions(store).await?.into_iter();
    let subscribed = subscribed.filter(|(queue, _)| queue.topic == topic.id);
    let subscribed: Vec<_> = subscribed.map(|(queue, _)| queue).collect();
    let mut groups: Vec<GroupId> = subscribed.iter().map(|queue| queue.group).collect();
    groups.sort_unstable();
    groups.dedup();
    let mut topics = vec![topic.id];
    if Mutant::DeletionTakesANeighbour.is_on() {
        topics.push(TopicId::new(topic.id.get().saturating_sub(1)));
        topics.push(TopicId::new(topic.id.get().saturating_add(1)));
    }
    for queue in &subscribed {
        erased.deliveries += erase_leases(store, LeaseKey::queue_range(*queue)).await?;
        erase_progress(store, *queue).await?;
    }
    for group in groups {
        let on_retries = SubscriptionQueue {
            group,
            topic: topic.id,
            queue: QueueId::RETRY,
        };
        erase_leases(store, LeaseKey::queue_range(on_retries)).await?;
        erased.deliveries += erase_retries_of_topic(store, group, topic).await?;
    }
    for id in topics {
        for queue in (0..topic.queues).map(QueueId::new) {
            let queue = LogQueue { topic: id, queue };
            erased.messages += erase_log(store, queue).await?;
        }
    }
    for queues in subscribed.chunks(ROWS_MAX) {
        let mut batch = WriteBatch::new();
        for queue in queues {
            batch.delete(META, MetaKey::Subscription(*queue).encode());
        }
        store.write(batch, Durability::Buffered).await?;
    }
    let mut batch = WriteBatch::new();
    batch.delete(META, MetaKey::DeletedTopic(topic.id).encode());
    store.write(batch, Durability::Buffered).await?;
    Ok(erased)
}

/// Sweeps everything of a deleted group, and its tombstone last. Its dead-letter topic is
/// a topic and stays.
///
/// # Contract
///
/// Nobody adds to it any more: no receive of it runs.
///
/// # Errors
///
/// The store's; it is to be called again then.
///
/// # Cancel safety
///
/// What is done stays done; it is to be called again.
pub async fn erase_group(store: &dyn Store, group: &GroupRecord) -> Result<Erased> {
    let mut erased = Erased::default();
    for shard in ShardId::all() {
        erased.deliveries += erase_leases(store, LeaseKey::group_range(shard, group.id)).await?;
        let mut batch = WriteBatch::new();
        for (start, end) in [
            ProgressKey::group_range(shard, group.id),
            MarkPageKey::group_range(shard, group.id),
            ParkedKey::group_range(shard, group.id),
        ] {
            batch.delete_range(PROGRESS, start, end);
        }
        store.write(batch, Durability::Buffered).await?;
    }
    erased.deliveries += erase_rows(store, RETRY, RetryKey::group_range(group.id)).await?;
    let_go(store, group.id).await?;
    let mut batch = WriteBatch::new();
    let (start, end) = MetaKey::subscriptions_of(group.id);
    batch.delete_range(META, start, end);
    batch.delete(META, MetaKey::DeletedGroup(group.id).encode());
    store.write(batch, Durability::Buffered).await?;
    Ok(erased)
}

/// Deletes a range page by page: each row, and what `more` adds for it. Returns the count.
async fn erase(
    store: &dyn Store,
    keyspace: Keyspace,
    (start, end): (Bytes, Bytes),
    mut more: impl FnMut(&Entry, &mut WriteBatch) + Send,
) -> Result<u64> {
    let mut count = 0;
    let mut scan = Scan::range(start, end).with_entries_max(ROWS_MAX);
    loop {
        let page = store.scan(keyspace, scan.clone()).await?;
        let Some(last) = page.last() else {
            return Ok(count);
        };
        // From the last row on: what is deleted is not walked again.
        scan.start = last.key.clone();
        count += u64::try_from(page.len()).unwrap_or(u64::MAX);
        let mut batch = WriteBatch::new();
        for entry in &page {
            more(entry, &mut batch);
            batch.delete(keyspace, entry.key.clone());
        }
        store.write(batch, Durability::Buffered).await?;
    }
}

async fn erase_rows(store: &dyn Store, keyspace: Keyspace, range: (Bytes, Bytes)) -> Result<u64> {
    erase(store, keyspace, range, |_, _| {}).await
}

/// Lease rows with their hints. A hint that a renewal left behind is dropped when it is
/// due, as always; so is that of a row that can't be read.
async fn erase_leases(store: &dyn Store, range: (Bytes, Bytes)) -> Result<u64> {
    let hint = |entry: &Entry, batch: &mut WriteBatch| match Checkpoint::decode(entry.value.clone())
    {
        Ok(lease) => {
            batch.delete(DUE, lease.due_key());
        }
        Err(error) => {
            tracing::error!(key = %entry.key.escape_ascii(), %error, "a deletion swept a lease row that can't be read");
        }
    };
    erase(store, LEASE, range, hint).await
}

async fn erase_progress(store: &dyn Store, queue: SubscriptionQueue) -> Result<()> {
    let (start, end) = MarkPageKey::queue_range(queue);
    let mut batch = WriteBatch::new();
    batch.delete_range(PROGRESS, start, end);
    batch.delete(PROGRESS, ProgressKey { queue }.encode());
    store.write(batch, Durability::Buffered).await?;
    erase_rows(store, PROGRESS, ParkedKey::queue_range(queue)).await?;
    Ok(())
}

/// The retry queue of a group for the topic, and the leases on its entries.
async fn erase_retries_of_topic(
    store: &dyn Store,
    group: GroupId,
    topic: &TopicRecord,
) -> Result<u64> {
    erase_rows(store, RETRY, RetryKey::range_from(group, topic.id, 0)).await
}

/// Messages, bodies, what retention kept of them, and the ends of the queue.
async fn erase_log(store: &dyn Store, queue: LogQueue) -> Result<u64> {
    let body = |entry: &Entry, batch: &mut WriteBatch| match Message::decode(entry.value.clone()) {
        Ok(message) => remove_body(batch, &message.body),
        Err(error) => {
            tracing::error!(key = %entry.key.escape_ascii(), %error, "a deletion swept a message that can't be read");
        }
    };
    let count = erase(store, LOG, LogKey::queue_range(queue), body).await?;
    let kept = |entry: &Entry, batch: &mut WriteBatch| match Retained::decode(entry.value.clone()) {
        Ok(kept) => retained::remove(batch, entry.key.clone(), &kept),
        Err(error) => {
            tracing::error!(key = %entry.key.escape_ascii(), %error, "a deletion swept a kept message that can't be read");
        }
    };
    let kept = erase(store, RETAINED, RetainedKey::queue_range(queue), kept).await?;
    let mut batch = WriteBatch::new();
    batch.delete(META, MetaKey::LogStart(queue).encode());
    batch.delete(META, MetaKey::LogEnd(queue).encode());
    store.write(batch, Durability::Buffered).await?;
    Ok(count + kept)
}

/// Takes a group out of the holders of everything that retention kept.
async fn let_go(store: &dyn Store, group: GroupId) -> Result<()> {
    let (start, end) = RetainedKey::range();
    let mut scan = Scan::range(start, end);
    loop {
        let page = store.scan(RETAINED, scan.clone()).await?;
        let Some(last) = page.last() else {
            return Ok(());
        };
        scan.start = [&last.key[..], &[0]].concat().into();
        for entry in page {
            let_go_of(store, group, entry).await?;
        }
    }
}

async fn let_go_of(store: &dyn Store, group: GroupId, entry: Entry) -> Result<()> {
    let mut row = entry.value;
    for _ in 0..TRIES_MAX {
        let kept = match Retained::decode(row.clone()) {
            Ok(kept) => kept,
            Err(error) => {
                tracing::error!(key = %entry.key.escape_ascii(), %error, "a kept message can't be read");
                return Ok(());
            }
        };
        let of_group = |holder: &Holder| holder.group == group;
        let Some(batch) = retained::without(kept, entry.key.clone(), row, of_group) else {
            return Ok(());
        };
        match store.write(batch, Durability::Buffered).await {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == ErrorKind::Conflict => {}
            Err(error) => return Err(error),
        }
        // Another group let go of it meanwhile.
        match store.get(RETAINED, &entry.key).await? {
            Some(now) => row = now,
            None => return Ok(()),
        }
    }
    Err(crate::Error::new(
        ErrorKind::Conflict,
        store.name(),
        "let go of a kept message",
    ))
}
