//! Whose the rows of a store are, so that a test can say that nothing is left of an id.

use bytes::Bytes;
use pop_model::{
    BodyChunkKey, DueKey, GroupId, LeaseKey, LogKey, MarkPageKey, MetaKey, ParkedKey, ProgressKey,
    RetainedKey, RetryKey, StoredKey, SubscriptionQueue, TopicId,
};
use pop_store::{
    Keyspace, MemStore,
    table::{BODY, DUE, KEYSPACES, LEASE, LOG, META, PROGRESS, RETAINED, RETRY},
};

use crate::audit::all;

/// The topic and the group that a key speaks of.
pub(crate) type Owner = (Option<TopicId>, Option<GroupId>);

fn owner(keyspace: Keyspace, key: Bytes) -> Owner {
    let queue = |queue: SubscriptionQueue| (Some(queue.topic), Some(queue.group));
    match keyspace {
        LOG => (Some(LogKey::decode(key).unwrap().queue.topic), None),
        RETAINED => (Some(RetainedKey::decode(key).unwrap().queue.topic), None),
        LEASE => queue(LeaseKey::decode(key).unwrap().queue),
        DUE => queue(DueKey::decode(key).unwrap().queue),
        PROGRESS => match ProgressKey::decode(key.clone()) {
            Ok(key) => queue(key.queue),
            Err(_) => match MarkPageKey::decode(key.clone()) {
                Ok(key) => queue(key.queue),
                Err(_) => queue(ParkedKey::decode(key).unwrap().queue),
            },
        },
        RETRY => {
            let key = RetryKey::decode(key).unwrap();
            (Some(key.topic), Some(key.group))
        }
        META => match MetaKey::decode(key).unwrap() {
            MetaKey::Subscription(it) => queue(it),
            MetaKey::LogStart(it) | MetaKey::LogEnd(it) => (Some(it.topic), None),
            MetaKey::Topic(it) | MetaKey::DeletedTopic(it) => (Some(it), None),
            MetaKey::Group(it) | MetaKey::DeletedGroup(it) => (None, Some(it)),
            _ => (None, None),
        },
        _ => (None, None),
    }
}

/// The keyspace of every row that speaks of something that `is_its`.
pub(crate) async fn rows_of(store: &MemStore, is_its: impl Fn(Owner) -> bool) -> Vec<Keyspace> {
    let mut found = Vec::new();
    for keyspace in KEYSPACES {
        for entry in all(store, keyspace).await {
            if is_its(owner(keyspace, entry.key)) {
                found.push(keyspace);
            }
        }
    }
    found
}

/// How many bodies have chunks.
pub(crate) async fn body_count(store: &MemStore) -> usize {
    let rows = all(store, BODY).await.into_iter();
    let bodies = rows.filter_map(|row| BodyChunkKey::decode(row.key).ok());
    let bodies: std::collections::BTreeSet<_> = bodies.map(|key| key.body).collect();
    bodies.len()
}
