//! Reads the rows and says where each message of each group is, so that a test can hold
//! P1 to P4 against the store itself and not against what the broker says of it.
//!
//! A lease that is only in memory has no row: its message is where it was before.

use std::collections::BTreeMap;

use pop_model::{
    Checkpoint, GroupRecord, LeaseKey, LogKey, MarkPage, Message, Offset, QuarantineRecord,
    QueueId, RetryEntry, RetryKey, StoredKey, StoredValue, SubscriptionQueue, TopicName,
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
    /// Ready for this attempt, or out for it in memory.
    Retry { attempt: u32 },
    /// An entry that is settled and was left behind.
    Litter,
    /// In the group's dead-letter topic.
    DeadLettered,
    /// Put away.
    Quarantined,
}

/// The places of each message of each subscribed group, by group and message id.
pub(crate) type Audit = BTreeMap<(String, String), Vec<Place>>;

/// What a queue's group has settled, as the store has it.
struct Settled {
    committed: Offset,
    pages: BTreeMap<u64, MarkPage>,
}

impl Settled {
    async fn of(store: &MemStore, queue: SubscriptionQueue, start: Offset) -> Self {
        let (stored, pages) = progress::load(store, queue).await.unwrap();
        Self {
            committed: stored.map_or(start, |progress| progress.committed),
            pages: pages.into_iter().collect(),
        }
    }

    fn has(&self, offset: Offset) -> bool {
        let (page, place) = MarkPage::locate(offset);
        let is_marked = self.pages.get(&page).is_some_and(|marks| marks.get(place));
        offset < self.committed || is_marked
    }
}

/// A message that waits for another delivery, and where it waits.
struct Waiting {
    key: RetryKey,
    entry: RetryEntry,
    place: Place,
}

/// Reads everything.
pub(crate) async fn audit(store: &MemStore) -> Audit {
    let groups = meta::groups(store).await.unwrap();
    let quarantined = quarantine::list(store, 0, usize::MAX).await.unwrap();
    let log = messages(store).await;
    let retries = retries(store, &quarantined).await;
    let mut audit = Audit::new();
    let subscriptions = meta::subscriptions(store).await.unwrap();
    let own = subscriptions
        .into_iter()
        .filter(|(queue, _)| !queue.is_retry());
    for (queue, record) in own {
        let group = groups.iter().find(|group| group.id == queue.group).unwrap();
        let dead = dead_letters(store, group, &log).await;
        let settled = Settled::of(store, queue, record.start).await;
        let own = log.iter().filter(|(key, _)| key.queue == queue.log_queue());
        for (key, message) in own.filter(|(key, _)| key.offset >= record.start) {
            let mut places = Vec::new();
            if settled.has(key.offset) {
                places.extend(lease(store, queue, key.offset).await);
            } else {
                // The row of an ordered delivery leaves its offset open.
                let place = lease(store, queue, key.offset).await;
                places.push(place.unwrap_or(Place::Ready));
            }
            let of_it = retries.iter().filter(|waiting| {
                waiting.key.group == queue.group
                    && waiting.entry.source == key.queue
                    && waiting.entry.offset == key.offset
            });
            places.extend(of_it.map(|waiting| waiting.place.clone()));
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

/// The ids of the messages in the dead-letter topic of a group.
async fn dead_letters(
    store: &MemStore,
    group: &GroupRecord,
    log: &[(LogKey, Message)],
) -> Vec<String> {
    let name = TopicName::dead_letter(&group.name);
    let Some(topic) = meta::topic_by_name(store, &name).await.unwrap() else {
        return Vec::new();
    };
    let letters = log.iter().filter(|(key, _)| key.queue.topic == topic.id);
    letters
        .filter_map(|(_, letter)| Some(letter.origin.as_ref()?.message_id.clone()))
        .collect()
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

async fn retries(store: &MemStore, quarantined: &[(u64, QuarantineRecord)]) -> Vec<Waiting> {
    let mut retries = Vec::new();
    for row in all(store, RETRY).await {
        let key = RetryKey::decode(row.key).unwrap();
        let Ok(entry) = RetryEntry::decode(row.value) else {
            continue;
        };
        let queue = SubscriptionQueue {
            group: key.group,
            topic: key.topic,
            queue: QueueId::RETRY,
        };
        let sequence = Offset::new(key.sequence);
        let attempt = entry.delivery_attempt;
        let settled = Settled::of(store, queue, Offset::ZERO).await;
        let place = if !settled.has(sequence) {
            Place::Retry { attempt }
        } else if let Some(leased) = lease(store, queue, sequence).await {
            leased
        } else if quarantined
            .iter()
            .any(|(_, record)| is_about(record, queue, sequence))
        {
            Place::Quarantined
        } else {
            Place::Litter
        };
        retries.push(Waiting { key, entry, place });
    }
    retries
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
