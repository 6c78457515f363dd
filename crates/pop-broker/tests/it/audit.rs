//! Reads the rows and says where each message of each group is, so that a test can hold
//! P1 to P4 against the store itself and not against what the broker says of it.

use std::collections::BTreeMap;

use pop_model::{
    Checkpoint, LeaseKey, LogKey, MarkPage, Message, Offset, QuarantineRecord, RetryEntry,
    RetryKey, StoredKey, StoredValue, SubscriptionQueue, TopicName,
};
use pop_store::{
    Entry, Keyspace, MemStore, Scan, Store, StoreExt,
    table::{LEASE, LOG, RETRY, meta, progress, quarantine},
};

/// Where a message of a group is. A message that is nowhere is done.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Place {
    /// Not handed out yet, as far as the store knows.
    Ready,
    /// Out, with this attempt and deadline.
    Leased { attempt: u32, deadline_ms: u64 },
    /// Ready for this attempt.
    Retry { attempt: u32 },
    /// In the group's dead-letter topic.
    DeadLettered,
    /// Put away.
    Quarantined,
}

/// The places of each message of each subscribed group, by group and message id.
pub(crate) type Audit = BTreeMap<(String, String), Vec<Place>>;

/// Reads everything.
pub(crate) async fn audit(store: &MemStore) -> Audit {
    let topics = meta::topics(store).await.unwrap();
    let groups = meta::groups(store).await.unwrap();
    let quarantined = quarantine::list(store, 0, usize::MAX).await.unwrap();
    let log = messages(store).await;
    let retries = retries(store).await;
    let mut audit = Audit::new();
    for (queue, record) in meta::subscriptions(store).await.unwrap() {
        let group = groups.iter().find(|group| group.id == queue.group).unwrap();
        let letters = TopicName::dead_letter(&group.name);
        let letters = topics.iter().find(|topic| topic.name == letters);
        let dead: Vec<&str> = log
            .iter()
            .filter(|(key, _)| letters.is_some_and(|topic| topic.id == key.queue.topic))
            .filter_map(|(_, letter)| Some(letter.origin.as_ref()?.message_id.as_str()))
            .collect();
        let (stored, pages) = progress::load(store, queue).await.unwrap();
        let committed = stored.map_or(record.start, |progress| progress.committed);
        let pages: BTreeMap<u64, MarkPage> = pages.into_iter().collect();
        let own = log.iter().filter(|(key, _)| key.queue == queue.log_queue());
        for (key, message) in own.filter(|(key, _)| key.offset >= record.start) {
            let mut places = Vec::new();
            let (page, bit) = MarkPage::locate(key.offset);
            let is_marked = pages.get(&page).is_some_and(|marks| marks.get(bit));
            if key.offset >= committed && !is_marked {
                places.push(Place::Ready);
            }
            places.extend(lease(store, queue, key.offset).await);
            let of_it = retries.iter().filter(|(of, entry)| {
                of.group == queue.group && entry.source == key.queue && entry.offset == key.offset
            });
            places.extend(of_it.map(|(_, entry)| Place::Retry {
                attempt: entry.delivery_attempt,
            }));
            let letters = dead.iter().filter(|dead| **dead == message.message_id);
            places.extend(letters.map(|_| Place::DeadLettered));
            let put_away = quarantined
                .iter()
                .filter(|(_, record)| is_about(record, queue, key.offset));
            places.extend(put_away.map(|_| Place::Quarantined));
            let name = group.name.name().to_owned();
            audit.insert((name, message.message_id.clone()), places);
        }
    }
    audit
}

async fn lease(store: &MemStore, queue: SubscriptionQueue, offset: Offset) -> Option<Place> {
    let row = store.get(LEASE, &LeaseKey { queue, offset }.encode()).await;
    let checkpoint = Checkpoint::decode(row.unwrap()?).ok()?;
    Some(Place::Leased {
        attempt: checkpoint.delivery_attempt,
        deadline_ms: checkpoint.visible_at.as_millis(),
    })
}

/// The messages of all logs, as far as they can be decoded.
pub(crate) async fn messages(store: &MemStore) -> Vec<(LogKey, Message)> {
    let rows = all(store, LOG).await.into_iter();
    let message = |row: Entry| {
        let key = LogKey::decode(row.key).unwrap();
        Some((key, Message::decode(row.value).ok()?))
    };
    rows.filter_map(message).collect()
}

async fn retries(store: &MemStore) -> Vec<(RetryKey, RetryEntry)> {
    let rows = all(store, RETRY).await.into_iter();
    let entry = |row: Entry| {
        let key = RetryKey::decode(row.key).unwrap();
        Some((key, RetryEntry::decode(row.value).ok()?))
    };
    rows.filter_map(entry).collect()
}

fn is_about(record: &QuarantineRecord, queue: SubscriptionQueue, offset: Offset) -> bool {
    let log_key = LogKey {
        queue: queue.log_queue(),
        offset,
    };
    let lease_key = LeaseKey { queue, offset };
    record.key == log_key.encode() || record.key == lease_key.encode()
}

/// Every row of a keyspace.
pub(crate) async fn all(store: &MemStore, keyspace: Keyspace) -> Vec<Entry> {
    let mut rows = Vec::new();
    store
        .for_each_page(keyspace, Scan::all(), |page| {
            rows.extend(page);
            Ok::<_, pop_store::Error>(true)
        })
        .await
        .unwrap();
    rows
}

/// Each message is in exactly one place, or in none if its name is in `done`. A message in
/// no place is lost (P1); one in two places would be delivered twice at once (P3).
#[track_caller]
pub(crate) fn assert_each_in_one_place(audit: &Audit, done: &[&str]) {
    for ((group, id), places) in audit {
        let expected = usize::from(!done.contains(&id.as_str()));
        assert_eq!(places.len(), expected, "{id} of {group} is in {places:?}");
    }
}
