//! Topics and groups that are deleted: what stands of them until everything is swept.
//!
//! The tombstone takes the place of the record and of the name in one batch, so that the
//! name is free at once, for another topic or group with another id.

use bytes::Bytes;
use pop_model::{GroupRecord, MetaKey, StoredKey, StoredValue, TopicRecord};

use super::{META, meta};
use crate::{Result, Store, WriteBatch};

/// Deletes a topic, if it is still as it was read.
pub fn delete_topic(batch: &mut WriteBatch, topic: &TopicRecord) {
    let record = MetaKey::Topic(topic.id).encode();
    let name = MetaKey::TopicByName(topic.name.clone()).encode();
    bury(batch, record, name, MetaKey::DeletedTopic(topic.id), topic);
}

/// Deletes a group, if it is still as it was read.
pub fn delete_group(batch: &mut WriteBatch, group: &GroupRecord) {
    let record = MetaKey::Group(group.id).encode();
    let name = MetaKey::GroupByName(group.name.clone()).encode();
    bury(batch, record, name, MetaKey::DeletedGroup(group.id), group);
}

fn bury(
    batch: &mut WriteBatch,
    record: Bytes,
    name: Bytes,
    tombstone: MetaKey,
    value: &impl StoredValue,
) {
    let value = value.encode();
    batch.require(META, record.clone(), value.clone());
    batch.delete(META, record).delete(META, name);
    batch.put(META, tombstone.encode(), value);
}

/// Reads the topics that are deleted and not yet swept.
///
/// # Errors
///
/// The store's, or a record that can't be decoded.
pub async fn deleted_topics(store: &dyn Store) -> Result<Vec<TopicRecord>> {
    let found = meta::load_all(store, MetaKey::deleted_topics()).await?;
    Ok(found.into_iter().map(|(_, topic)| topic).collect())
}

/// Reads the groups that are deleted and not yet swept.
///
/// # Errors
///
/// The store's, or a record that can't be decoded.
pub async fn deleted_groups(store: &dyn Store) -> Result<Vec<GroupRecord>> {
    let found = meta::load_all(store, MetaKey::deleted_groups()).await?;
    Ok(found.into_iter().map(|(_, group)| group).collect())
}

/// Requires a topic to be there as it was read, and so not to be deleted.
pub fn require_topic(batch: &mut WriteBatch, topic: &TopicRecord) {
    batch.require(META, MetaKey::Topic(topic.id).encode(), topic.encode());
}

/// Requires a group to be there as it was read, and so not to be deleted.
pub fn require_group(batch: &mut WriteBatch, group: &GroupRecord) {
    batch.require(META, MetaKey::Group(group.id).encode(), group.encode());
}
