//! Retention ends messages for good, and none that somebody refers to (P1, BR-H07).

use std::{collections::BTreeSet, sync::Arc};

use bytes::Bytes;
use pop_model::{
    BodyChunkKey, Checkpoint, GroupId, LeaseKey, LogBounds, LogKey, LogQueue, Message, MessageBody,
    Offset, Progress, QuarantineRecord, QueueId, Retained, RetainedKey, RetryEntry, RetryKey,
    StoredKey, StoredValue, SubscriptionEpoch, SubscriptionQueue, SubscriptionRecord, TopicId,
    WallTime,
};
use pop_store::{
    Durability, ErrorKind, MemStore, Scan, Store, StoreExt, WriteBatch,
    table::{
        BODY, KEYSPACES, LEASE, LOG, MessageLog, RETAINED, RETRY, StoreLog, Subscriber, Swept,
        lease, progress, quarantine, retry,
    },
    testkit::{Call, Effect, Fault, FaultStore, Faults},
};

use crate::samples::{self, at};

const QUEUE: LogQueue = LogQueue {
    topic: TopicId::new(9),
    queue: QueueId::new(1),
};
const LEASING: GroupId = GroupId::new(3);
const RETRYING: GroupId = GroupId::new(4);
const EPOCH: SubscriptionEpoch = SubscriptionEpoch::new(2);
const CUT: u64 = 10;
const MESSAGES: u64 = 14;

/// No retry entry is being written.
pub(crate) fn nothing_arrives(_: SubscriptionQueue) -> Offset {
    at(u64::MAX)
}

fn subscription(group: GroupId) -> SubscriptionQueue {
    SubscriptionQueue {
        group,
        topic: QUEUE.topic,
        queue: QUEUE.queue,
    }
}

fn subscriber(group: GroupId) -> Subscriber {
    let record = SubscriptionRecord {
        start: at(0),
        epoch: EPOCH,
    };
    Subscriber {
        queue: subscription(group),
        record,
        ordered: false,
    }
}

fn subscribers() -> Vec<Subscriber> {
    [LEASING, RETRYING].map(subscriber).into()
}

fn body(offset: u64) -> Bytes {
    // Some in chunks, some so large that few copies fit a batch, some small.
    let len = match offset % 3 {
        0 => 300 << 10,
        1 => 250 << 10,
        _ => 9,
    };
    vec![u8::try_from(offset).unwrap(); len].into()
}

fn message(offset: u64) -> Message {
    samples::message(format!("m{offset}"), body(offset))
}

fn checkpoint(offset: u64, epoch: SubscriptionEpoch) -> Checkpoint {
    samples::checkpoint(subscription(LEASING), offset, epoch)
}

fn retry_key(group: GroupId, sequence: u64) -> RetryKey {
    RetryKey {
        group,
        topic: QUEUE.topic,
        sequence,
    }
}

fn entry(offset: u64) -> RetryEntry {
    samples::entry(QUEUE, offset, EPOCH)
}

/// Offsets that the leasing group has leases on, and the retrying one entries of.
const LEASED: [u64; 6] = [0, 1, 2, 3, 7, 11];
const RETRIED: [u64; 4] = [3, 4, 6, 12];

/// The messages, and the references to some of them.
async fn filled(store: &dyn Store, log: &StoreLog) {
    for offset in 0..MESSAGES {
        let appended = log.append(QUEUE, message(offset), Durability::Buffered);
        assert_eq!(appended.await.unwrap(), at(offset));
    }
    let mut batch = WriteBatch::new();
    for offset in LEASED {
        lease::store(&mut batch, &checkpoint(offset, EPOCH));
    }
    // A reset made this one void: nothing is kept for it.
    lease::store(&mut batch, &checkpoint(5, SubscriptionEpoch::new(1)));
    for (offset, sequence) in RETRIED.into_iter().zip(1..) {
        retry::put(&mut batch, retry_key(RETRYING, sequence), &entry(offset));
    }
    store.write(batch, Durability::Synced).await.unwrap();
}

async fn retain_and_sweep(log: &StoreLog) -> pop_store::Result<Vec<Swept>> {
    log.retain(QUEUE, at(CUT)).await?;
    let mut sweep = log.sweep(QUEUE, subscribers()).await?;
    let mut steps = Vec::new();
    while let Some(swept) = sweep.step(&nothing_arrives).await? {
        steps.push(swept);
    }
    sweep.collect(&nothing_arrives).await?;
    Ok(steps)
}

async fn keys<K: StoredKey + Send>(store: &dyn Store, keyspace: pop_store::Keyspace) -> Vec<K> {
    let mut keys = Vec::new();
    let read = store.for_each_page(keyspace, Scan::all(), |entries| {
        keys.extend(entries.into_iter().map(|it| K::decode(it.key).unwrap()));
        Ok::<_, pop_store::Error>(true)
    });
    read.await.unwrap();
    keys
}

async fn logged(store: &dyn Store) -> Vec<u64> {
    let keys = keys::<LogKey>(store, LOG).await.into_iter();
    keys.map(|key| key.offset.get()).collect()
}

async fn retained(store: &dyn Store) -> Vec<u64> {
    let keys = keys::<RetainedKey>(store, RETAINED).await.into_iter();
    keys.map(|key| key.offset.get()).collect()
}

/// How many bodies have chunk rows.
async fn body_count(store: &dyn Store) -> usize {
    let keys = keys::<BodyChunkKey>(store, BODY).await.into_iter();
    keys.map(|key| key.body).collect::<BTreeSet<_>>().len()
}

fn referred() -> BTreeSet<u64> {
    LEASED.into_iter().chain(RETRIED).collect()
}

async fn holds(log: &StoreLog, offset: u64) -> bool {
    let Some(entry) = log.referenced(QUEUE, at(offset)).await.unwrap() else {
        return false;
    };
    let message = entry.message.unwrap();
    assert_eq!(message.message_id, format!("m{offset}"));
    assert_eq!(log.body(&message).await.unwrap(), body(offset));
    true
}

/// What holds at any moment, whatever failed.
async fn check_always(store: &dyn Store, log: &StoreLog) {
    for offset in referred().into_iter().chain(CUT..MESSAGES) {
        // Mutant: the row leaves the log in a batch before the one that keeps it.
        assert!(holds(log, offset).await, "P1: message {offset} is lost");
    }
    let start = log.bounds(QUEUE).await.unwrap().start;
    assert!([at(0), at(CUT)].contains(&start), "the start is {start}");
    let mut chunked = 0;
    for offset in 0..MESSAGES {
        if let Some(entry) = log.referenced(QUEUE, at(offset)).await.unwrap() {
            let body = entry.message.unwrap().body;
            chunked += usize::from(matches!(body, MessageBody::Chunked { .. }));
        }
    }
    // Mutant: a row goes without its chunks.
    assert_eq!(body_count(store).await, chunked, "bodies without a message");
}

/// What holds once a sweep came to its end.
async fn check_end(store: &dyn Store, log: &StoreLog) {
    check_always(store, log).await;
    let bounds = LogBounds {
        start: at(CUT),
        end: at(MESSAGES),
    };
    assert_eq!(log.bounds(QUEUE).await.unwrap(), bounds);
    assert_eq!(logged(store).await, (CUT..MESSAGES).collect::<Vec<_>>());
    let below: Vec<_> = referred().into_iter().filter(|it| *it < CUT).collect();
    assert_eq!(retained(store).await, below);
}

async fn world() -> (MemStore, StoreLog) {
    let store = MemStore::new(&KEYSPACES);
    let log = StoreLog::open(Arc::new(store.clone())).await.unwrap();
    filled(&store, &log).await;
    (store, log)
}

#[tokio::test]
async fn retention_ends_what_lies_below_and_keeps_what_somebody_refers_to() {
    let (store, log) = world().await;
    let steps = retain_and_sweep(&log).await.unwrap();
    check_end(&store, &log).await;
    let removed: Vec<_> = steps.iter().flat_map(|step| step.removed.clone()).collect();
    let kept: Vec<_> = steps.iter().flat_map(|step| step.kept.clone()).collect();
    assert_eq!(removed, [5, 8, 9].map(at));
    assert_eq!(kept, [0, 1, 2, 3, 4, 6, 7].map(at));
    // Consumers don't read below the start, also what is still there for others.
    let all: Vec<_> = (0..MESSAGES).map(at).collect();
    let read = log.read(QUEUE, &all).await.unwrap();
    let read: Vec<_> = read.iter().map(|entry| entry.offset).collect();
    assert_eq!(read, (CUT..MESSAGES).map(at).collect::<Vec<_>>());
    // Mutant: the start is not stored; a restart would hand out a retained queue anew.
    let log = StoreLog::open(Arc::new(store.clone())).await.unwrap();
    check_end(&store, &log).await;
}

#[tokio::test]
async fn between_the_cut_and_the_sweep_only_references_read_below_the_start() {
    let (store, log) = world().await;
    log.retain(QUEUE, at(CUT)).await.unwrap();
    check_always(&store, &log).await;
    // Mutant: a read does not look at the start; a consumer gets what has ended.
    let read = log.read(QUEUE, &[at(1), at(2), at(CUT)]).await.unwrap();
    assert_eq!(read.len(), 1);
    // The sweep goes on after a restart.
    let log = StoreLog::open(Arc::new(store.clone())).await.unwrap();
    retain_and_sweep(&log).await.unwrap();
    check_end(&store, &log).await;
}

/// Runs retention once for each call of a kind, with the fault in it, and then to its end.
async fn check_every(call: Call, fault: Fault) {
    for nth in 1.. {
        let faults = Faults::none();
        let content = MemStore::new(&KEYSPACES);
        let log = StoreLog::open(Arc::new(content.clone())).await.unwrap();
        filled(&content, &log).await;
        let store = FaultStore::crashable(content, faults.clone());
        let log = StoreLog::open(Arc::new(store.clone())).await.unwrap();
        faults.arm(call, nth, fault);
        let outcome = retain_and_sweep(&log).await;
        let was_hit = !faults.injected().is_empty();
        assert_eq!(outcome.is_err(), was_hit, "a fault is told: {outcome:?}");
        faults.disarm();
        let content = match store.take_crashed() {
            Some(content) => content,
            None => store.inner().crash(usize::MAX),
        };
        let log = StoreLog::open(Arc::new(content.clone())).await.unwrap();
        check_always(&content, &log).await;
        retain_and_sweep(&log).await.unwrap();
        check_end(&content, &log).await;
        if !was_hit {
            assert!(nth > 2, "retention makes {call:?} calls");
            return;
        }
    }
}

#[tokio::test]
async fn a_fault_in_any_write_of_retention_loses_nothing() {
    for fault in [
        Fault::Refuse,
        Fault::InDoubt(Effect::Happened),
        Fault::InDoubt(Effect::DidNotHappen),
    ] {
        check_every(Call::Write, fault).await;
    }
}

#[tokio::test]
async fn a_power_cut_at_any_write_of_retention_loses_nothing() {
    for (effect, keep) in [
        (Effect::Happened, 0),
        (Effect::Happened, 1),
        (Effect::Happened, usize::MAX),
        (Effect::DidNotHappen, 0),
        (Effect::DidNotHappen, usize::MAX),
    ] {
        check_every(Call::Write, Fault::Crash { effect, keep }).await;
    }
}

#[tokio::test]
async fn a_fault_in_any_read_of_retention_loses_nothing() {
    for call in [Call::Get, Call::MultiGet, Call::Scan] {
        check_every(call, Fault::Refuse).await;
    }
}

fn settle_lease(batch: &mut WriteBatch, offset: u64) {
    let lease = checkpoint(offset, EPOCH);
    lease::remove(batch, lease.encode(), &lease);
}

fn settle_entry(batch: &mut WriteBatch, sequence: u64) {
    batch.delete(RETRY, retry_key(RETRYING, sequence).encode());
}

/// A log whose next write hangs until the test lets it go.
async fn hanging_sweep() -> (MemStore, Faults, StoreLog) {
    let (content, log) = world().await;
    log.retain(QUEUE, at(CUT)).await.unwrap();
    let faults = Faults::none();
    let store = FaultStore::new(content.clone(), faults.clone());
    let log = StoreLog::open(Arc::new(store)).await.unwrap();
    faults.arm(Call::Write, 1, Fault::Hang(Effect::DidNotHappen));
    (content, faults, log)
}

#[tokio::test(start_paused = true)]
async fn a_reference_that_moves_under_the_sweep_keeps_its_message() {
    let (content, faults, log) = hanging_sweep().await;
    let sweeping = tokio::spawn(async move { retain_and_sweep(&log).await });
    faults.until_hung(1).await;
    // The lease on 2 expires and becomes an entry; the entry of 4 is delivered and expires.
    let mut batch = WriteBatch::new();
    lease::remove(
        &mut batch,
        checkpoint(2, EPOCH).encode(),
        &checkpoint(2, EPOCH),
    );
    retry::put(&mut batch, retry_key(LEASING, 1), &entry(2));
    settle_entry(&mut batch, 2);
    retry::put(&mut batch, retry_key(RETRYING, 9), &entry(4));
    content.write(batch, Durability::Buffered).await.unwrap();
    faults.release();
    sweeping.await.unwrap().unwrap();
    let log = StoreLog::open(Arc::new(content.clone())).await.unwrap();
    // Mutant: what was kept for a lease is let go of when that is an entry.
    check_end(&content, &log).await;
}

#[tokio::test(start_paused = true)]
async fn an_entry_that_moves_while_the_sweep_reads_keeps_its_message() {
    let (content, faults, log) = hanging_sweep().await;
    faults.disarm();
    faults.arm(Call::MultiGet, 2, Fault::Hang(Effect::DidNotHappen));
    let sweeping = tokio::spawn(async move { retain_and_sweep(&log).await });
    faults.until_hung(1).await;
    let mut batch = WriteBatch::new();
    settle_entry(&mut batch, 2);
    retry::put(&mut batch, retry_key(RETRYING, 9), &entry(4));
    content.write(batch, Durability::Buffered).await.unwrap();
    faults.release();
    sweeping.await.unwrap().unwrap();
    let log = StoreLog::open(Arc::new(content.clone())).await.unwrap();
    // Mutant: an entry that is gone counts as settled.
    check_end(&content, &log).await;
}

#[tokio::test(start_paused = true)]
async fn a_reference_that_is_settled_under_the_sweep_leaves_nothing_behind() {
    let (content, faults, log) = hanging_sweep().await;
    let sweeping = tokio::spawn(async move { retain_and_sweep(&log).await });
    faults.until_hung(1).await;
    let mut batch = WriteBatch::new();
    settle_lease(&mut batch, 2);
    content.write(batch, Durability::Buffered).await.unwrap();
    faults.release();
    sweeping.await.unwrap().unwrap();
    assert_eq!(retained(&content).await, [0, 1, 3, 4, 6, 7]);
}

#[tokio::test]
async fn a_kept_message_ends_with_the_last_reference_to_it() {
    let (store, log) = world().await;
    retain_and_sweep(&log).await.unwrap();
    let bodies = body_count(&store).await;
    // Both groups refer to 3, whose body is in chunks.
    let mut batch = WriteBatch::new();
    settle_entry(&mut batch, 1);
    store.write(batch, Durability::Buffered).await.unwrap();
    retain_and_sweep(&log).await.unwrap();
    // Mutant: the first to let go takes the message along.
    assert!(holds(&log, 3).await);
    let mut batch = WriteBatch::new();
    settle_lease(&mut batch, 3);
    store.write(batch, Durability::Buffered).await.unwrap();
    retain_and_sweep(&log).await.unwrap();
    // Mutants: nothing is ever let go of; the chunks stay.
    assert!(!holds(&log, 3).await);
    assert_eq!(body_count(&store).await, bodies - 1);
    assert_eq!(retained(&store).await, [0, 1, 2, 4, 6, 7]);
}

#[tokio::test]
async fn what_is_in_quarantine_keeps_its_message() {
    let (store, log) = world().await;
    let mut batch = WriteBatch::new();
    let record = |keyspace: pop_store::Keyspace, key, value, group| QuarantineRecord {
        reason: "a test".into(),
        keyspace: keyspace.name().into(),
        key,
        value,
        at: WallTime::default(),
        group,
    };
    let lease = checkpoint(2, EPOCH);
    let away = record(LEASE, lease.lease_key(), lease.encode(), None);
    quarantine::put_away(&mut batch, 1, LEASE, away);
    let away = record(
        RETRY,
        retry_key(RETRYING, 2).encode(),
        entry(4).encode(),
        None,
    );
    quarantine::put_away(&mut batch, 2, RETRY, away);
    let unread = LogKey {
        queue: QUEUE,
        offset: at(8),
    };
    let copy = record(LOG, unread.encode(), Bytes::new(), Some(LEASING));
    quarantine::put_copy(&mut batch, 3, copy);
    store.write(batch, Durability::Buffered).await.unwrap();
    retain_and_sweep(&log).await.unwrap();
    // Mutant: only what can be delivered counts; put back to work, it would find nothing.
    assert_eq!(retained(&store).await, [0, 1, 2, 3, 4, 6, 7, 8]);
    for place in 1..4 {
        let (row, _) = quarantine::get(&store, place).await.unwrap().unwrap();
        let mut batch = WriteBatch::new();
        quarantine::remove(&mut batch, place, row);
        store.write(batch, Durability::Buffered).await.unwrap();
    }
    retain_and_sweep(&log).await.unwrap();
    assert_eq!(retained(&store).await, [0, 1, 3, 6, 7]);
}

/// A message that could not be read and can be again becomes a retry entry of its group.
#[tokio::test]
async fn what_leaves_quarantine_keeps_its_message_as_long_as_it_is_worked_on() {
    let (store, log) = world().await;
    let unread = LogKey {
        queue: QUEUE,
        offset: at(8),
    };
    let record = QuarantineRecord {
        reason: "a test".into(),
        keyspace: LOG.name().into(),
        key: unread.encode(),
        value: Bytes::new(),
        at: WallTime::default(),
        group: Some(LEASING),
    };
    let mut batch = WriteBatch::new();
    quarantine::put_copy(&mut batch, 1, record);
    store.write(batch, Durability::Buffered).await.unwrap();
    retain_and_sweep(&log).await.unwrap();
    let (row, _) = quarantine::get(&store, 1).await.unwrap().unwrap();
    let mut batch = WriteBatch::new();
    quarantine::remove(&mut batch, 1, row);
    retry::put(&mut batch, retry_key(LEASING, 9), &entry(8));
    store.write(batch, Durability::Buffered).await.unwrap();
    retain_and_sweep(&log).await.unwrap();
    // Mutant: KeptForTheRecordAlone.
    assert_eq!(retained(&store).await, [0, 1, 2, 3, 4, 6, 7, 8]);
    let mut batch = WriteBatch::new();
    batch.delete(RETRY, retry_key(LEASING, 9).encode());
    store.write(batch, Durability::Buffered).await.unwrap();
    retain_and_sweep(&log).await.unwrap();
    assert_eq!(retained(&store).await, [0, 1, 2, 3, 4, 6, 7]);
}

/// The retry queue has gone on behind the entry of a delivery that is stored: the entry is
/// there until that delivery ends.
#[tokio::test]
async fn an_entry_that_its_queue_has_passed_keeps_its_message() {
    let (store, log) = world().await;
    let retry_queue = SubscriptionQueue {
        queue: QueueId::RETRY,
        ..subscription(RETRYING)
    };
    let delivery = samples::checkpoint(retry_queue, 2, SubscriptionEpoch::default());
    let away = samples::checkpoint(retry_queue, 3, SubscriptionEpoch::default());
    let mut batch = WriteBatch::new();
    lease::store(&mut batch, &delivery);
    lease::store(&mut batch, &away);
    let passed = Progress {
        committed: at(5),
        epoch: SubscriptionEpoch::default(),
    };
    progress::put(&mut batch, retry_queue, &passed);
    store.write(batch, Durability::Buffered).await.unwrap();
    let mut batch = WriteBatch::new();
    let record = QuarantineRecord {
        reason: "a test".into(),
        keyspace: LEASE.name().into(),
        key: away.lease_key(),
        value: away.encode(),
        at: WallTime::default(),
        group: None,
    };
    quarantine::put_away(&mut batch, 1, LEASE, record);
    store.write(batch, Durability::Buffered).await.unwrap();
    retain_and_sweep(&log).await.unwrap();
    // Mutant: PassedEntriesForgotten. Then 4 and 6 end although one is out and the other one
    // in quarantine.
    assert_eq!(retained(&store).await, [0, 1, 2, 3, 4, 6, 7]);
}

#[tokio::test]
async fn what_a_reset_made_void_keeps_nothing() {
    let (store, log) = world().await;
    retain_and_sweep(&log).await.unwrap();
    let mut after = subscriber(LEASING);
    after.record.epoch = SubscriptionEpoch::new(3);
    let mut sweep = log
        .sweep(QUEUE, vec![after, subscriber(RETRYING)])
        .await
        .unwrap();
    assert_eq!(sweep.collect(&nothing_arrives).await.unwrap(), 4);
    assert_eq!(retained(&store).await, [3, 4, 6]);
}

#[tokio::test]
async fn a_group_that_consumes_in_order_keeps_nothing_and_leaves_nothing() {
    let (store, log) = world().await;
    log.retain(QUEUE, at(CUT)).await.unwrap();
    let mut ordered = subscriber(LEASING);
    ordered.ordered = true;
    let mut sweep = log
        .sweep(QUEUE, vec![ordered, subscriber(RETRYING)])
        .await
        .unwrap();
    while sweep.step(&nothing_arrives).await.unwrap().is_some() {}
    assert_eq!(retained(&store).await, [3, 4, 6]);
    // Mutant: the rows stay; the queue would never be given up by memory again.
    let rows = keys::<LeaseKey>(&store, LEASE).await;
    let left: Vec<_> = rows.iter().map(|key| key.offset.get()).collect();
    assert_eq!(left, [11]);
}

#[tokio::test]
async fn an_append_on_its_way_holds_the_start_below_it() {
    let (_, log) = world().await;
    let pending = log.begin_append(QUEUE).await.unwrap();
    let bounds = log.retain(QUEUE, at(u64::MAX)).await.unwrap();
    // Mutant: the start goes to what is asked, or to the next offset.
    assert_eq!((bounds.start, bounds.end), (at(MESSAGES), at(MESSAGES)));
    pending.committed();
    let bounds = log.retain(QUEUE, at(0)).await.unwrap();
    assert_eq!(bounds.start, at(MESSAGES), "a start never goes down");
}

#[tokio::test]
async fn an_emptied_queue_goes_on_where_it_was() {
    let (store, log) = world().await;
    log.retain(QUEUE, at(MESSAGES)).await.unwrap();
    let mut sweep = log.sweep(QUEUE, Vec::new()).await.unwrap();
    while sweep.step(&nothing_arrives).await.unwrap().is_some() {}
    assert_eq!(logged(&store).await, []);
    assert_eq!(body_count(&store).await, 0);
    let log = StoreLog::open(Arc::new(store)).await.unwrap();
    let next = log.append(QUEUE, message(5), Durability::Buffered).await;
    // Mutant: a queue without rows ends at zero.
    assert_eq!(next.unwrap(), at(MESSAGES));
}

#[tokio::test]
async fn a_long_queue_is_swept_in_many_batches() {
    let store = MemStore::new(&KEYSPACES);
    let log = StoreLog::open(Arc::new(store.clone())).await.unwrap();
    let count = 3_000;
    for _ in 0..count {
        let appended = log.append(QUEUE, message(5), Durability::Buffered);
        appended.await.unwrap();
    }
    // More copies than fit one batch.
    for first in (0..count).step_by(100) {
        let mut batch = WriteBatch::new();
        for offset in first..(first + 100).min(count) {
            lease::store(&mut batch, &checkpoint(offset, EPOCH));
        }
        store.write(batch, Durability::Buffered).await.unwrap();
    }
    log.retain(QUEUE, at(count)).await.unwrap();
    let mut sweep = log.sweep(QUEUE, subscribers()).await.unwrap();
    let mut kept = 0;
    // Mutant: a step takes all that it read, and its batch is refused as too large.
    while let Some(swept) = sweep.step(&nothing_arrives).await.unwrap() {
        kept += u64::try_from(swept.kept.len()).unwrap();
    }
    assert_eq!(kept, count);
    assert_eq!(
        retained(&store).await.len(),
        usize::try_from(count).unwrap()
    );
    assert_eq!(logged(&store).await, []);
}

#[tokio::test]
async fn an_entry_that_arrives_behind_a_later_one_is_found() {
    // P1: expired deliveries become entries in any order. Mutant: nothing below an entry that
    // was seen is looked for again.
    let (store, log) = world().await;
    let expire = async |offset, sequence| {
        let mut batch = WriteBatch::new();
        lease::delete(&mut batch, subscription(LEASING), at(offset));
        retry::put(&mut batch, retry_key(LEASING, sequence), &entry(offset));
        store.write(batch, Durability::Buffered).await.unwrap();
    };
    log.retain(QUEUE, at(CUT)).await.unwrap();
    let mut sweep = log.sweep(QUEUE, subscribers()).await.unwrap();
    expire(1, 2).await;
    while sweep.step(&|_| at(1)).await.unwrap().is_some() {}
    expire(0, 1).await;
    assert_eq!(sweep.collect(&|_| at(3)).await.unwrap(), 0);
    assert_eq!(retained(&store).await, [0, 1, 2, 3, 4, 6, 7]);
}

#[tokio::test]
async fn a_message_that_all_the_world_refers_to_is_kept_too() {
    let (store, log) = world().await;
    let groups: Vec<_> = (100..1_600).map(GroupId::new).collect();
    for groups in groups.chunks(400) {
        let mut batch = WriteBatch::new();
        for group in groups {
            retry::put(&mut batch, retry_key(*group, 1), &entry(8));
        }
        store.write(batch, Durability::Buffered).await.unwrap();
    }
    let subscribers = groups.iter().map(|group| subscriber(*group));
    log.retain(QUEUE, at(CUT)).await.unwrap();
    let mut sweep = log.sweep(QUEUE, subscribers.collect()).await.unwrap();
    // Mutant: each holder takes a key of its own; the batch never fits.
    while sweep.step(&nothing_arrives).await.unwrap().is_some() {}
    let key = RetainedKey {
        queue: QUEUE,
        offset: at(8),
    };
    let row = store.get(RETAINED, &key.encode()).await.unwrap().unwrap();
    assert_eq!(Retained::decode(row).unwrap().holders.len(), groups.len());
}

#[tokio::test]
async fn rows_that_cannot_be_read_hold_up_no_sweep() {
    let (store, log) = world().await;
    let broken = Bytes::from_static(b"not a row");
    let mut batch = WriteBatch::new();
    let message = LogKey {
        queue: QUEUE,
        offset: at(8),
    };
    batch.put(LOG, message.encode(), broken.clone());
    batch.put(LEASE, checkpoint(9, EPOCH).lease_key(), broken.clone());
    batch.put(RETRY, retry_key(RETRYING, 7).encode(), broken);
    store.write(batch, Durability::Buffered).await.unwrap();
    let steps = retain_and_sweep(&log).await.unwrap();
    assert_eq!(steps.iter().map(|step| step.unreadable).sum::<usize>(), 1);
    check_always(&store, &log).await;
    // A lease row that can't be read keeps its message until it is in quarantine.
    // Mutant: such a row is no reference.
    assert_eq!(retained(&store).await, [0, 1, 2, 3, 4, 6, 7, 9]);
}

#[tokio::test]
async fn nothing_is_appended_to_a_topic_that_was_closed() {
    let (_, log) = world().await;
    let pending = log.begin_append(QUEUE).await.unwrap();
    let closing = tokio::spawn({
        let log = log.clone();
        async move { log.close_topic(QUEUE.topic).await }
    });
    tokio::task::yield_now().await;
    // Mutant: a close does not wait; the row of this append comes after the sweep.
    assert!(!closing.is_finished());
    let refused = log.append(QUEUE, message(5), Durability::Buffered).await;
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::Conflict);
    pending.committed();
    closing.await.unwrap().unwrap();
    // Mutant: a closed queue is opened again by whoever still holds its topic.
    let refused = log.append(QUEUE, message(5), Durability::Buffered).await;
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::Conflict);
}

#[tokio::test]
async fn a_close_does_not_wait_for_what_nobody_knows() {
    let (_, log) = world().await;
    log.begin_append(QUEUE).await.unwrap().in_doubt();
    // Mutant: it waits for an outcome that comes only after the store was opened anew.
    let closed = log.close_topic(QUEUE.topic).await;
    assert_eq!(closed.unwrap_err().kind(), ErrorKind::InDoubt);
}
