//! A deleted topic or group leaves nothing behind, and takes nothing along that is not its
//! own (BR-H03, BR-H04, BR-H05).

use std::{collections::BTreeSet, sync::Arc};

use bytes::Bytes;
use pop_model::{
    BodyChunkKey, DueKey, GroupId, GroupName, GroupRecord, LeaseKey, LogKey, LogQueue, MarkPage,
    MarkPageKey, Message, MessageBody, MessageKind, MetaKey, Namespace, Progress, ProgressKey,
    QueueId, Retained, RetainedKey, RetryKey, RetryPolicy, StartPosition, StoredKey, StoredValue,
    SubscriptionEpoch, SubscriptionQueue, SubscriptionRecord, TopicId, TopicName, TopicRecord,
    WallTime,
};
use pop_store::{
    Durability, Entry, ErrorKind, Keyspace, MemStore, Result, Scan, Store, StoreExt, WriteBatch,
    table::{
        BODY, DUE, KEYSPACES, LEASE, LOG, META, MessageLog, PROGRESS, RETAINED, RETRY, StoreLog,
        Subscriber,
        erase::{erase_group, erase_topic},
        lease, meta, progress, retry, tombstone,
    },
    testkit::{Call, Effect, Fault, FaultStore, Faults},
};

use crate::{
    retention::nothing_arrives,
    samples::{at, checkpoint, entry, message},
};

const EPOCH: SubscriptionEpoch = SubscriptionEpoch::new(1);
const QUEUES: u32 = 2;
const LARGE: usize = 300 << 10;

fn topic(id: u64) -> TopicRecord {
    TopicRecord {
        id: TopicId::new(id),
        name: TopicName::user(&Namespace::default(), &format!("t{id}")).unwrap(),
        queues: QUEUES,
        kinds: vec![MessageKind::Normal],
        created_at: WallTime::default(),
    }
}

fn group(id: u64) -> GroupRecord {
    GroupRecord {
        id: GroupId::new(id),
        name: GroupName::user(&Namespace::default(), &format!("g{id}")).unwrap(),
        policy: RetryPolicy::default(),
        start: StartPosition::Earliest,
        fifo: false,
        created_at: WallTime::default(),
    }
}

fn queues() -> Vec<SubscriptionQueue> {
    let mut queues = Vec::new();
    for group in [1, 2].map(GroupId::new) {
        for topic in [11, 12].map(TopicId::new) {
            queues.extend((0..QUEUES).map(|queue| SubscriptionQueue {
                group,
                topic,
                queue: QueueId::new(queue),
            }));
        }
    }
    queues
}

/// Two topics that two groups consume, with rows of every kind.
async fn world() -> MemStore {
    let store = MemStore::new(&KEYSPACES);
    let log = StoreLog::open(Arc::new(store.clone())).await.unwrap();
    let mut batch = WriteBatch::new();
    for id in [11, 12] {
        meta::put_new_topic(&mut batch, &topic(id));
    }
    for id in [1, 2] {
        meta::put_new_group(&mut batch, &group(id));
    }
    let record = SubscriptionRecord {
        start: at(0),
        epoch: EPOCH,
    };
    for queue in queues() {
        meta::put_new_subscription(&mut batch, queue, &record);
        let committed = at(1);
        let epoch = EPOCH;
        progress::put(&mut batch, queue, &Progress { committed, epoch });
        progress::put_page(&mut batch, queue, 0, &MarkPage::default());
        for offset in [0, 1, 5] {
            lease::store(&mut batch, &checkpoint(queue, offset, EPOCH));
        }
        // A lease on a retry entry, and an entry.
        let (group, topic) = (queue.group, queue.topic);
        let retries = SubscriptionQueue {
            queue: QueueId::new(u32::MAX),
            ..queue
        };
        let sequence = u64::from(queue.queue.get());
        lease::store(&mut batch, &checkpoint(retries, sequence, EPOCH));
        let key = RetryKey {
            group,
            topic,
            sequence,
        };
        retry::put(&mut batch, key, &entry(queue.log_queue(), 3, EPOCH));
    }
    store.write(batch, Durability::Buffered).await.unwrap();
    for id in [11, 12] {
        for queue in log_queues(id) {
            for offset in 0..6 {
                let len = if offset % 2 == 1 { LARGE } else { 5 };
                let message = message(format!("{id}/{offset}"), vec![1; len].into());
                let appended = log.append(queue, message, Durability::Buffered).await;
                appended.unwrap();
            }
            // What the leases on 0 and 1 and the entry of 3 refer to is kept.
            log.retain(queue, at(4)).await.unwrap();
            let subscriptions = queues().into_iter().filter(|it| it.log_queue() == queue);
            let subscriptions = subscriptions.map(|queue| Subscriber {
                queue,
                record,
                ordered: false,
            });
            let subscriptions = subscriptions.collect();
            let mut sweep = log.sweep(queue, subscriptions).await.unwrap();
            while sweep.step(&nothing_arrives).await.unwrap().is_some() {}
        }
    }
    store
}

fn log_queues(topic: u64) -> impl Iterator<Item = LogQueue> {
    (0..QUEUES).map(move |queue| LogQueue {
        topic: TopicId::new(topic),
        queue: QueueId::new(queue),
    })
}

type Rows = BTreeSet<(Keyspace, Bytes, Bytes)>;

async fn rows(store: &dyn Store) -> Rows {
    let mut rows = Rows::new();
    for keyspace in KEYSPACES {
        let read = store.for_each_page(keyspace, Scan::all(), |entries| {
            rows.extend(entries.into_iter().map(|it| (keyspace, it.key, it.value)));
            Ok::<_, pop_store::Error>(true)
        });
        read.await.unwrap();
    }
    rows
}

/// Whose a row is, by its key.
#[derive(Default)]
struct Owner {
    group: Option<GroupId>,
    topic: Option<TopicId>,
}

impl Owner {
    fn of(keyspace: Keyspace, key: &Bytes, rows: &Rows) -> Self {
        let queue = |queue: SubscriptionQueue| Self {
            group: Some(queue.group),
            topic: Some(queue.topic),
        };
        let topic = |topic| Self {
            topic: Some(topic),
            group: None,
        };
        let group = |group| Self {
            group: Some(group),
            topic: None,
        };
        let bytes = key.clone();
        match keyspace {
            LOG => topic(LogKey::decode(bytes).unwrap().queue.topic),
            RETAINED => topic(RetainedKey::decode(bytes).unwrap().queue.topic),
            BODY => body_owner(BodyChunkKey::decode(bytes).unwrap(), rows),
            LEASE => queue(LeaseKey::decode(bytes).unwrap().queue),
            DUE => queue(DueKey::decode(bytes).unwrap().queue),
            PROGRESS => match ProgressKey::decode(bytes.clone()) {
                Ok(key) => queue(key.queue),
                Err(_) => queue(MarkPageKey::decode(bytes).unwrap().queue),
            },
            RETRY => {
                let key = RetryKey::decode(bytes).unwrap();
                Self {
                    group: Some(key.group),
                    topic: Some(key.topic),
                }
            }
            META => match MetaKey::decode(bytes).unwrap() {
                MetaKey::Subscription(it) => queue(it),
                MetaKey::LogStart(it) | MetaKey::LogEnd(it) => topic(it.topic),
                MetaKey::Topic(it) | MetaKey::DeletedTopic(it) => topic(it),
                MetaKey::Group(it) | MetaKey::DeletedGroup(it) => group(it),
                MetaKey::TopicByName(name) if name == self::topic(11).name => {
                    topic(TopicId::new(11))
                }
                MetaKey::GroupByName(name) if name == self::group(1).name => group(GroupId::new(1)),
                _ => Self::default(),
            },
            _ => Self::default(),
        }
    }
}

fn body_owner(key: BodyChunkKey, rows: &Rows) -> Owner {
    let is_its = |row: &Bytes| {
        let body = Message::decode(row.clone()).unwrap().body;
        matches!(body, MessageBody::Chunked { id, .. } if id == key.body)
    };
    for (keyspace, at, value) in rows {
        let row = match *keyspace {
            LOG => value.clone(),
            RETAINED => Retained::decode(value.clone()).unwrap().row,
            _ => continue,
        };
        if is_its(&row) {
            return Owner::of(*keyspace, at, rows);
        }
    }
    panic!("a body without a message");
}

async fn delete_topic(store: &dyn Store) {
    let mut batch = WriteBatch::new();
    tombstone::delete_topic(&mut batch, &topic(11));
    store.write(batch, Durability::Synced).await.unwrap();
}

async fn delete_group(store: &dyn Store) {
    let mut batch = WriteBatch::new();
    tombstone::delete_group(&mut batch, &group(1));
    store.write(batch, Durability::Synced).await.unwrap();
}

/// Sweeps what has a tombstone, as a start of the program does.
async fn sweep(store: &dyn Store) -> Result<u64> {
    let mut deliveries = 0;
    for topic in tombstone::deleted_topics(store).await? {
        deliveries += erase_topic(store, &topic).await?.deliveries;
    }
    for group in tombstone::deleted_groups(store).await? {
        deliveries += erase_group(store, &group).await?.deliveries;
    }
    Ok(deliveries)
}

fn without(before: &Rows, is_gone: impl Fn(Owner) -> bool) -> Rows {
    let rows = before.iter().cloned();
    rows.filter(|(keyspace, key, _)| !is_gone(Owner::of(*keyspace, key, before)))
        .collect()
}

/// The rows that are to be left when topic 11 is gone.
fn without_topic(before: &Rows) -> Rows {
    without(before, |owner| owner.topic == Some(TopicId::new(11)))
}

/// Those that are to be left when group 1 is gone: it holds nothing any more.
fn without_group(before: &Rows) -> Rows {
    let left = without(before, |owner| owner.group == Some(GroupId::new(1)));
    let let_go = |(keyspace, key, value): (Keyspace, Bytes, Bytes)| {
        if keyspace != RETAINED {
            return (keyspace, key, value);
        }
        let mut kept = Retained::decode(value).unwrap();
        kept.holders
            .retain(|holder| holder.group != GroupId::new(1));
        (keyspace, key, kept.encode())
    };
    left.into_iter().map(let_go).collect()
}

#[tokio::test]
async fn a_deleted_topic_leaves_nothing_and_takes_nothing_along() {
    let store = world().await;
    let before = rows(&store).await;
    delete_topic(&store).await;
    // Mutant: the record goes and the name stays; the name could never be used again.
    let name = &topic(11).name;
    assert!(meta::topic_by_name(&store, name).await.unwrap().is_none());
    assert_eq!(meta::topics(&store).await.unwrap(), [topic(12)]);
    let deliveries = sweep(&store).await.unwrap();
    // Mutants: any one of the steps left out; a range that is too wide.
    assert_eq!(rows(&store).await, without_topic(&before));
    assert_eq!(deliveries, 2 * 2 * (3 + 1));
}

#[tokio::test]
async fn a_deleted_group_leaves_nothing_and_takes_nothing_along() {
    let store = world().await;
    let before = rows(&store).await;
    delete_group(&store).await;
    let name = &group(1).name;
    assert!(meta::group_by_name(&store, name).await.unwrap().is_none());
    assert_eq!(meta::groups(&store).await.unwrap(), [group(2)]);
    sweep(&store).await.unwrap();
    // Mutants: any one of the steps left out; a range that is too wide.
    assert_eq!(rows(&store).await, without_group(&before));
}

#[tokio::test]
async fn the_last_group_takes_along_what_was_kept_for_it() {
    let store = world().await;
    for id in [1, 2] {
        let mut batch = WriteBatch::new();
        tombstone::delete_group(&mut batch, &group(id));
        store.write(batch, Durability::Synced).await.unwrap();
    }
    sweep(&store).await.unwrap();
    let left = rows(&store).await;
    assert!(left.iter().all(|(keyspace, ..)| *keyspace != RETAINED));
    // Two messages with chunks were kept in each of four queues; those of 5 are in the log.
    let bodies = left.iter().filter(|(keyspace, ..)| *keyspace == BODY);
    let body = |(_, key, _): &(_, Bytes, _)| BodyChunkKey::decode(key.clone()).unwrap().body;
    assert_eq!(bodies.map(body).collect::<BTreeSet<_>>().len(), 4);
}

#[tokio::test]
async fn a_topic_is_deleted_once() {
    let store = world().await;
    delete_topic(&store).await;
    let mut batch = WriteBatch::new();
    tombstone::delete_topic(&mut batch, &topic(11));
    // Mutant: the record is not required; a late delete hits the next topic of the name.
    let error = store.write(batch, Durability::Synced).await;
    assert_eq!(error.unwrap_err().kind(), ErrorKind::Conflict);
}

#[tokio::test]
async fn what_requires_the_record_is_refused_after_a_deletion() {
    let store = world().await;
    delete_topic(&store).await;
    delete_group(&store).await;
    for (topic_id, group_id, may) in [(12, 2, true), (11, 2, false), (12, 1, false)] {
        let mut batch = WriteBatch::new();
        tombstone::require_topic(&mut batch, &topic(topic_id));
        tombstone::require_group(&mut batch, &group(group_id));
        let written = store.write(batch, Durability::Buffered).await;
        assert_eq!(written.is_ok(), may, "topic {topic_id}, group {group_id}");
    }
}

/// Sweeps with a fault in each write in turn, and then to the end.
async fn check_every(fault: Fault, delete: impl AsyncFn(&dyn Store), left: fn(&Rows) -> Rows) {
    for nth in 1.. {
        let content = world().await;
        let expected = left(&rows(&content).await);
        delete(&content).await;
        let faults = Faults::none();
        let store = FaultStore::crashable(content, faults.clone());
        faults.arm(Call::Write, nth, fault);
        let outcome = sweep(&store).await;
        let was_hit = !faults.injected().is_empty();
        assert_eq!(outcome.is_err(), was_hit, "a fault is told: {outcome:?}");
        let content = match store.take_crashed() {
            Some(content) => content,
            None => store.inner().crash(usize::MAX),
        };
        sweep(&content).await.unwrap();
        // Mutant: the tombstone goes before the last step; the rest stays for ever.
        assert_eq!(rows(&content).await, expected, "write {nth}");
        if !was_hit {
            assert!(nth > 10, "a sweep is many writes: {nth}");
            return;
        }
    }
}

const FAULTS: [Fault; 5] = [
    Fault::Refuse,
    Fault::InDoubt(Effect::Happened),
    Fault::InDoubt(Effect::DidNotHappen),
    Fault::Crash {
        effect: Effect::DidNotHappen,
        keep: 0,
    },
    Fault::Crash {
        effect: Effect::Happened,
        keep: 3,
    },
];

#[tokio::test]
async fn the_sweep_of_a_topic_goes_on_after_any_fault() {
    for fault in FAULTS {
        check_every(
            fault,
            async |store| delete_topic(store).await,
            without_topic,
        )
        .await;
    }
}

#[tokio::test]
async fn the_sweep_of_a_group_goes_on_after_any_fault() {
    for fault in FAULTS {
        check_every(
            fault,
            async |store| delete_group(store).await,
            without_group,
        )
        .await;
    }
}

#[tokio::test]
async fn rows_that_cannot_be_read_hold_up_no_sweep() {
    let store = world().await;
    let before = rows(&store).await;
    let broken = |key: Bytes| Entry {
        key,
        value: Bytes::from_static(b"not a row"),
    };
    let queue = queues()[0];
    let mut batch = WriteBatch::new();
    for (keyspace, row) in [
        (
            LEASE,
            broken(
                LeaseKey {
                    queue,
                    offset: at(5),
                }
                .encode(),
            ),
        ),
        (
            LOG,
            broken(
                LogKey {
                    queue: queue.log_queue(),
                    offset: at(4),
                }
                .encode(),
            ),
        ),
    ] {
        batch.put(keyspace, row.key, row.value);
    }
    store.write(batch, Durability::Buffered).await.unwrap();
    delete_topic(&store).await;
    sweep(&store).await.unwrap();
    let mut left = rows(&store).await;
    // The hint of a lease that nobody can read stays until it is due.
    left.retain(|(keyspace, ..)| *keyspace != DUE);
    let mut expected = without_topic(&before);
    expected.retain(|(keyspace, ..)| *keyspace != DUE);
    assert_eq!(left, expected);
}
