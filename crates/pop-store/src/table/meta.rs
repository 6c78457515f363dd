//! Single facts: topics, groups, subscriptions, counters, and the marks of clocks and scans.

use bytes::Bytes;
use pop_model::{
    CodecError, GroupId, GroupName, GroupRecord, HandleKeys, Incarnation, LeaseTime, MetaKey,
    ShardId, StoredKey, StoredValue, SubscriptionQueue, SubscriptionRecord, TopicId, TopicName,
    TopicRecord,
};

use super::{
    META, get_value,
    number::{Number, number},
    value::corrupt,
};
use crate::{Durability, Error, ErrorKind, Result, Scan, Store, StoreExt, WriteBatch};

/// The counter that ids of topics and groups come from.
pub const ID_COUNTER: &str = "id";
/// The counter that ids of chunked bodies come from.
pub const BODY_COUNTER: &str = "body";

/// Takes `count` numbers from a counter and returns the first. They are never given out
/// again: whatever is written with them is committed after the counter.
///
/// # Errors
///
/// The store's.
pub async fn take_numbers(store: &dyn Store, counter: &str, count: u64) -> Result<u64> {
    let key = MetaKey::Counter(counter.into()).encode();
    loop {
        let before = store.get(META, &key).await?;
        let first = match &before {
            // 0 is never given out, so that it can stand for "none" in a debugger.
            None => 1,
            Some(value) => {
                let number = Number::decode(value.clone());
                number.map_err(|error| corrupt(store, META, &key, error))?.0
            }
        };
        let mut batch = WriteBatch::new();
        match before {
            None => batch.require_absent(META, key.clone()),
            Some(before) => batch.require(META, key.clone(), before),
        };
        batch.put(
            META,
            key.clone(),
            Number(first.saturating_add(count)).encode(),
        );
        match store.write(batch, Durability::Buffered).await {
            Ok(()) => return Ok(first),
            // Somebody else took numbers in between; each round one of us gets through.
            Err(error) if error.kind() == ErrorKind::Conflict => {}
            Err(error) => return Err(error),
        }
    }
}

pub(super) async fn load_all<V: StoredValue + Send>(
    store: &dyn Store,
    (start, end): (Bytes, Bytes),
) -> Result<Vec<(Bytes, V)>> {
    let mut values = Vec::new();
    store
        .for_each_page(META, Scan::range(start, end), |entries| {
            for entry in entries {
                let value = V::decode(entry.value)
                    .map_err(|error| corrupt(store, META, &entry.key, error))?;
                values.push((entry.key, value));
            }
            Ok::<_, Error>(true)
        })
        .await?;
    Ok(values)
}

/// Reads all topics.
///
/// # Errors
///
/// The store's, or a record that can't be decoded.
pub async fn topics(store: &dyn Store) -> Result<Vec<TopicRecord>> {
    let topics = load_all(store, MetaKey::topics()).await?;
    Ok(topics.into_iter().map(|(_, topic)| topic).collect())
}

/// Reads all groups.
///
/// # Errors
///
/// The store's, or a record that can't be decoded.
pub async fn groups(store: &dyn Store) -> Result<Vec<GroupRecord>> {
    let groups = load_all(store, MetaKey::groups()).await?;
    Ok(groups.into_iter().map(|(_, group)| group).collect())
}

/// The topic that has this name now.
///
/// # Errors
///
/// The store's, or a record that can't be decoded.
pub async fn topic_by_name(store: &dyn Store, name: &TopicName) -> Result<Option<TopicRecord>> {
    match number(store, &MetaKey::TopicByName(name.clone())).await? {
        Some(id) => get_value(store, META, &MetaKey::Topic(TopicId::new(id)).encode()).await,
        None => Ok(None),
    }
}

/// The group that has this name now.
///
/// # Errors
///
/// The store's, or a record that can't be decoded.
pub async fn group_by_name(store: &dyn Store, name: &GroupName) -> Result<Option<GroupRecord>> {
    match number(store, &MetaKey::GroupByName(name.clone())).await? {
        Some(id) => get_value(store, META, &MetaKey::Group(GroupId::new(id)).encode()).await,
        None => Ok(None),
    }
}

/// The subscription of a queue, if its group is subscribed.
///
/// # Errors
///
/// The store's, or a record that can't be decoded.
pub async fn subscription(
    store: &dyn Store,
    queue: SubscriptionQueue,
) -> Result<Option<SubscriptionRecord>> {
    get_value(store, META, &MetaKey::Subscription(queue).encode()).await
}

/// Reads all subscriptions.
///
/// # Errors
///
/// The store's, or a record that can't be decoded.
pub async fn subscriptions(
    store: &dyn Store,
) -> Result<Vec<(SubscriptionQueue, SubscriptionRecord)>> {
    let rows = load_all(store, MetaKey::subscriptions()).await?;
    let queue = |(key, record): (Bytes, SubscriptionRecord)| match MetaKey::decode(key.clone()) {
        Ok(MetaKey::Subscription(queue)) => Ok((queue, record)),
        Ok(_) => Err(corrupt(
            store,
            META,
            &key,
            CodecError::Kind {
                what: "subscription key",
                code: 0,
            },
        )),
        Err(error) => Err(corrupt(store, META, &key, error)),
    };
    rows.into_iter().map(queue).collect()
}

/// Adds a topic, whose name must be free.
pub fn put_new_topic(batch: &mut WriteBatch, topic: &TopicRecord) {
    let by_name = MetaKey::TopicByName(topic.name.clone()).encode();
    batch.require_absent(META, by_name.clone());
    batch.put(META, by_name, Number(topic.id.get()).encode());
    batch.put(META, MetaKey::Topic(topic.id).encode(), topic.encode());
}

/// Replaces the record of a topic that is there.
pub fn put_topic(batch: &mut WriteBatch, before: &TopicRecord, topic: &TopicRecord) {
    let key = MetaKey::Topic(topic.id).encode();
    batch.require(META, key.clone(), before.encode());
    batch.put(META, key, topic.encode());
}

/// Adds a group, whose name must be free.
pub fn put_new_group(batch: &mut WriteBatch, group: &GroupRecord) {
    let by_name = MetaKey::GroupByName(group.name.clone()).encode();
    batch.require_absent(META, by_name.clone());
    batch.put(META, by_name, Number(group.id.get()).encode());
    batch.put(META, MetaKey::Group(group.id).encode(), group.encode());
}

/// Replaces the record of a group that is there.
pub fn put_group(batch: &mut WriteBatch, before: &GroupRecord, group: &GroupRecord) {
    let key = MetaKey::Group(group.id).encode();
    batch.require(META, key.clone(), before.encode());
    batch.put(META, key, group.encode());
}

/// Adds the subscription of a queue, if there is none yet.
pub fn put_new_subscription(
    batch: &mut WriteBatch,
    queue: SubscriptionQueue,
    record: &SubscriptionRecord,
) {
    let key = MetaKey::Subscription(queue).encode();
    batch.require_absent(META, key.clone());
    batch.put(META, key, record.encode());
}

/// Replaces the subscription of a queue, as a reset does.
pub fn put_subscription(
    batch: &mut WriteBatch,
    queue: SubscriptionQueue,
    record: &SubscriptionRecord,
) {
    batch.put(META, MetaKey::Subscription(queue).encode(), record.encode());
}

/// A fresh id for a topic.
///
/// # Errors
///
/// The store's.
pub async fn next_topic_id(store: &dyn Store) -> Result<TopicId> {
    take_numbers(store, ID_COUNTER, 1).await.map(TopicId::new)
}

/// A fresh id for a group.
///
/// # Errors
///
/// The store's.
pub async fn next_group_id(store: &dyn Store) -> Result<GroupId> {
    take_numbers(store, ID_COUNTER, 1).await.map(GroupId::new)
}

/// The keys that sign receipt handles, if there are any.
///
/// # Errors
///
/// The store's, or a record that can't be decoded.
pub async fn handle_keys(store: &dyn Store) -> Result<Option<HandleKeys>> {
    get_value(store, META, &MetaKey::HandleKeys.encode()).await
}

/// Adds the keys that sign receipt handles.
pub fn put_handle_keys(batch: &mut WriteBatch, keys: &HandleKeys) {
    batch.put(META, MetaKey::HandleKeys.encode(), keys.encode());
}

/// The incarnation of the last open.
///
/// # Errors
///
/// The store's, or a record that can't be decoded.
pub async fn incarnation(store: &dyn Store) -> Result<Option<Incarnation>> {
    let number = number(store, &MetaKey::Incarnation).await?;
    Ok(number.map(Incarnation::new))
}

/// Adds the incarnation of this open.
pub fn put_incarnation(batch: &mut WriteBatch, incarnation: Incarnation) {
    batch.put(
        META,
        MetaKey::Incarnation.encode(),
        Number(incarnation.get()).encode(),
    );
}

/// The high-water mark of lease time.
///
/// # Errors
///
/// The store's, or a record that can't be decoded.
pub async fn lease_clock_mark(store: &dyn Store) -> Result<Option<LeaseTime>> {
    Ok(number(store, &MetaKey::LeaseClockMark)
        .await?
        .map(LeaseTime::from_millis))
}

/// Adds the high-water mark of lease time.
pub fn put_lease_clock_mark(batch: &mut WriteBatch, mark: LeaseTime) {
    batch.put(
        META,
        MetaKey::LeaseClockMark.encode(),
        Number(mark.as_millis()).encode(),
    );
}

/// How far wall time was ahead of lease time when retention last trusted both, in
/// milliseconds.
///
/// # Errors
///
/// The store's, or a record that can't be decoded.
pub async fn retention_clock(store: &dyn Store) -> Result<Option<i64>> {
    let ahead = number(store, &MetaKey::RetentionClock).await?;
    Ok(ahead.map(u64::cast_signed))
}

/// Adds how far wall time is ahead of lease time.
pub fn put_retention_clock(batch: &mut WriteBatch, ahead_ms: i64) {
    batch.put(
        META,
        MetaKey::RetentionClock.encode(),
        Number(ahead_ms.cast_unsigned()).encode(),
    );
}

/// The floor of a shard's due index.
///
/// # Errors
///
/// The store's, or a record that can't be decoded.
pub async fn due_floor(store: &dyn Store, shard: ShardId) -> Result<LeaseTime> {
    let floor = number(store, &MetaKey::DueFloor(shard)).await?;
    Ok(floor.map_or(LeaseTime::ZERO, LeaseTime::from_millis))
}

/// Adds the floor of a shard's due index.
pub fn put_due_floor(batch: &mut WriteBatch, shard: ShardId, floor: LeaseTime) {
    batch.put(
        META,
        MetaKey::DueFloor(shard).encode(),
        Number(floor.as_millis()).encode(),
    );
}
