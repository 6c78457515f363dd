//! A store, clocks that stand still, and a sink that does what a test wrote down.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use async_trait::async_trait;
use parking_lot::Mutex;
use pop_cache::{RetrySink, Revival, RevivalKind, SinkError};
use pop_model::{
    Checkpoint, Clock, DeliveryIdentity, Generation, GroupId, Incarnation, LeaseTime, ManualClock,
    Offset, QueueId, RetryEntry, RetryKey, RetryKind, ShardId, StoredValue, SubscriptionEpoch,
    SubscriptionQueue, TopicId, WallTime,
};
use pop_revive::{PassReport, Reviver, ReviverOptions};
use pop_store::{
    Durability, Durable, MemStore, Outcome, Scan, Store, WriteBatch,
    table::{DUE, DueSchedule, KEYSPACES, LEASE, RETRY, lease, retry},
    testkit::{FaultStore, Faults},
};

pub(crate) const QUEUE: SubscriptionQueue = SubscriptionQueue {
    group: GroupId::new(1),
    topic: TopicId::new(2),
    queue: QueueId::new(0),
};
pub(crate) const START: LeaseTime = LeaseTime::from_millis(1_000_000);

/// What the sink does about an offset.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Answer {
    Retry,
    Gone,
    Fail,
    PanicAtOnce,
    PanicLater,
    Hang,
    /// Appended to a log of its own, which takes as long; nothing is left to write.
    Append(Duration),
}

#[derive(Debug, Default)]
pub(crate) struct Sink {
    answers: Mutex<BTreeMap<Offset, Answer>>,
    pub(crate) asked: Mutex<Vec<Offset>>,
    pub(crate) settled: Mutex<Vec<Offset>>,
    pub(crate) unsettled: Mutex<Vec<(Offset, Outcome)>>,
    /// The log of its own: durable at once, whatever becomes of the store.
    pub(crate) own_log: Arc<Mutex<Vec<u64>>>,
}

#[async_trait]
impl RetrySink for Sink {
    type Token = ();

    async fn revive(&self, due: &Checkpoint) -> Result<Revival<()>, SinkError> {
        let offset = due.identity.offset;
        self.asked.lock().push(offset);
        let answer = self
            .answers
            .lock()
            .get(&offset)
            .copied()
            .unwrap_or(Answer::Retry);
        let mut writes = WriteBatch::new();
        let kind = match answer {
            Answer::Retry => {
                let entry = RetryEntry {
                    source: QUEUE.log_queue(),
                    offset,
                    epoch: due.identity.epoch,
                    delivery_attempt: due.delivery_attempt + 1,
                    first_popped_at: due.first_popped_at,
                };
                let key = RetryKey {
                    group: QUEUE.group,
                    topic: QUEUE.topic,
                    sequence: offset.get(),
                };
                retry::put(&mut writes, key, &entry);
                RevivalKind::Retried
            }
            Answer::Gone => RevivalKind::Gone,
            Answer::Fail => return Err("the log is on fire".into()),
            Answer::PanicAtOnce => panic!("at once"),
            Answer::PanicLater => {
                tokio::task::yield_now().await;
                panic!("later");
            }
            Answer::Hang => std::future::pending().await,
            Answer::Append(takes) => {
                tokio::time::sleep(takes).await;
                self.own_log.lock().push(offset.get());
                RevivalKind::Retried
            }
        };
        Ok(Revival {
            kind,
            writes,
            token: (),
        })
    }

    fn settled(&self, due: &Checkpoint, _token: Durable<()>) {
        self.settled.lock().push(due.identity.offset);
    }

    fn unsettled(&self, due: &Checkpoint, _token: (), outcome: Outcome) {
        self.unsettled.lock().push((due.identity.offset, outcome));
    }
}

pub(crate) struct World {
    pub(crate) store: Arc<FaultStore<MemStore>>,
    pub(crate) faults: Faults,
    pub(crate) sink: Arc<Sink>,
    pub(crate) clock: ManualClock,
    pub(crate) schedule: DueSchedule,
    pub(crate) reviver: Reviver<Sink>,
}

impl World {
    pub(crate) fn new() -> Self {
        Self::with(ReviverOptions::default())
    }

    pub(crate) fn with(options: ReviverOptions) -> Self {
        let faults = Faults::none();
        let clock = ManualClock::new(START, WallTime::from_unix_millis(0));
        let store = MemStore::new(&KEYSPACES);
        Self::on(store, faults, Sink::default(), clock, options)
    }

    /// Cuts the power, of which `keep` unsynced writes survive, and starts anew. The sink
    /// finds its own log as it is.
    pub(crate) fn crash(self, keep: usize) -> Self {
        let store = self.store.crash(keep);
        let sink = Sink {
            own_log: Arc::clone(&self.sink.own_log),
            ..Sink::default()
        };
        let options = ReviverOptions::default();
        Self::on(store, self.faults, sink, self.clock, options)
    }

    fn on(
        store: MemStore,
        faults: Faults,
        sink: Sink,
        clock: ManualClock,
        options: ReviverOptions,
    ) -> Self {
        let store = Arc::new(FaultStore::crashable(store, faults.clone()));
        let sink = Arc::new(sink);
        let schedule = DueSchedule::restore(|_| LeaseTime::ZERO);
        let reviver = Reviver::new(
            Arc::clone(&store) as Arc<dyn Store>,
            Arc::clone(&sink),
            Arc::new(clock.clone()),
            schedule.clone(),
            Arc::default(),
            options,
        );
        Self {
            store,
            faults,
            sink,
            clock,
            schedule,
            reviver,
        }
    }

    /// Leases offset `offset` for `invisible_for` from now.
    pub(crate) async fn lease(&self, offset: u64, invisible_for: Duration) -> Checkpoint {
        let deadline = self.clock.lease().saturating_add(invisible_for);
        let ticket = self.schedule.announce(QUEUE.shard(), deadline);
        let checkpoint = Checkpoint {
            identity: DeliveryIdentity {
                queue: QUEUE,
                epoch: SubscriptionEpoch::new(3),
                offset: Offset::new(offset),
                incarnation: Incarnation::new(0x5EED),
                generation: Generation::new(4),
            },
            popped_at: self.clock.lease(),
            invisible_for,
            visible_at: ticket.deadline(),
            delivery_attempt: 5,
            revive_failures: 0,
            attempt_id: Some("attempt".into()),
            suspend: true,
            auto_renew: true,
            retry_kind: RetryKind::RetryV2,
            message_group_hash: Some(6),
            first_popped_at: LeaseTime::from_millis(7),
        };
        let mut batch = WriteBatch::new();
        lease::store(&mut batch, &checkpoint);
        self.store.write(batch, Durability::Synced).await.unwrap();
        ticket.landed();
        checkpoint
    }

    pub(crate) fn answer(&self, offset: u64, answer: Answer) {
        self.sink.answers.lock().insert(Offset::new(offset), answer);
    }

    pub(crate) async fn pass(&self) -> PassReport {
        self.reviver.pass(QUEUE.shard()).await.unwrap()
    }

    pub(crate) fn is_due(&self) -> bool {
        let due: Vec<ShardId> = self.schedule.due_shards(self.clock.lease());
        due.contains(&QUEUE.shard())
    }

    /// The lease rows that are stored.
    pub(crate) async fn rows(&self) -> Vec<Checkpoint> {
        let entries = self.store.scan(LEASE, Scan::all()).await.unwrap();
        entries
            .into_iter()
            .map(|entry| Checkpoint::decode(entry.value).unwrap())
            .collect()
    }

    /// The offsets that have a retry entry.
    pub(crate) async fn retried(&self) -> Vec<u64> {
        let entries = self.store.scan(RETRY, Scan::all()).await.unwrap();
        entries
            .into_iter()
            .map(|entry| RetryEntry::decode(entry.value).unwrap().offset.get())
            .collect()
    }

    pub(crate) async fn hint_count(&self) -> usize {
        self.store.scan(DUE, Scan::all()).await.unwrap().len()
    }
}
