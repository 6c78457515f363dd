//! A cache on a store in memory, clocks that stand still, and a sink that does what a test
//! wrote down. Tokio's clock is paused in these tests.

use std::{collections::BTreeMap, pin::Pin, sync::Arc, time::Duration};

use parking_lot::Mutex;
use pop_cache::{
    CacheOptions, CachedQueue, Foundation, LeaseCache, LeaseQueue, RetrySink, Revival, RevivalKind,
    SinkError, Subscribe, Terms,
};
use pop_model::{
    Checkpoint, Clock, DeliveryIdentity, GroupId, Incarnation, LeaseTime, LogBounds, ManualClock,
    Offset, QueueId, RetryEntry, RetryKey, StartPosition, StoredKey, StoredValue,
    SubscriptionQueue, TopicId, WallTime,
};
use pop_store::{
    Durable, MemStore, Outcome, Result, Scan, Store, WriteBatch,
    table::{DueSchedule, KEYSPACES, LEASE, RETRY, progress, retry},
    testkit::{FaultStore, Faults},
};
use tokio::task::JoinHandle;

pub(crate) const QUEUE: SubscriptionQueue = SubscriptionQueue {
    group: GroupId::new(1),
    topic: TopicId::new(2),
    queue: QueueId::new(0),
};
pub(crate) const START: LeaseTime = LeaseTime::from_millis(1_000_000);
pub(crate) const INVISIBLE: Duration = Duration::from_secs(5);
const MESSAGES: u64 = 10_000;

/// What the sink does about an offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Retry,
    /// There is no message: nothing comes in its place.
    Gone,
    /// An error: exceptional completion, and the ancestor's "false".
    Fail,
    /// Panics before there is a future.
    ThrowAtTheCall,
    /// Panics in the future.
    Panic,
    /// Never answers.
    Hang,
    /// Answers after its time is over.
    Late,
}

#[derive(Debug, Default)]
pub(crate) struct Sink {
    answers: Mutex<BTreeMap<Offset, Answer>>,
    pub(crate) asked: Mutex<Vec<Offset>>,
    pub(crate) settled: Mutex<Vec<Offset>>,
    pub(crate) unsettled: Mutex<Vec<(Offset, Outcome)>>,
    pub(crate) quarantined: Mutex<Vec<Offset>>,
}

type Reviving<'a> = Pin<Box<dyn Future<Output = Result<Revival<()>, SinkError>> + Send + 'a>>;

impl Sink {
    fn answer(&self, offset: Offset) -> Answer {
        let answers = self.answers.lock();
        answers.get(&offset).copied().unwrap_or(Answer::Retry)
    }
}

fn retried(due: &Checkpoint) -> Revival<()> {
    let entry = RetryEntry {
        source: QUEUE.log_queue(),
        offset: due.identity.offset,
        epoch: due.identity.epoch,
        delivery_attempt: due.delivery_attempt + 1,
        first_popped_at: due.first_popped_at,
    };
    let key = RetryKey {
        group: QUEUE.group,
        topic: QUEUE.topic,
        sequence: due.identity.offset.get(),
    };
    let mut writes = WriteBatch::new();
    retry::put(&mut writes, key, &entry);
    Revival {
        kind: RevivalKind::Retried,
        writes,
        token: (),
    }
}

impl RetrySink for Sink {
    type Token = ();

    // Written out, so that it can panic before it returns a future.
    fn revive<'life0, 'life1, 'async_trait>(
        &'life0 self,
        due: &'life1 Checkpoint,
    ) -> Reviving<'async_trait>
    where
        'life0: 'async_trait,
        'life1: 'async_trait,
    {
        let offset = due.identity.offset;
        self.asked.lock().push(offset);
        let answer = self.answer(offset);
        assert_ne!(answer, Answer::ThrowAtTheCall, "thrown at the call");
        Box::pin(async move {
            tokio::task::yield_now().await;
            match answer {
                Answer::Retry | Answer::ThrowAtTheCall => {}
                Answer::Gone => {
                    return Ok(Revival {
                        kind: RevivalKind::Gone,
                        writes: WriteBatch::new(),
                        token: (),
                    });
                }
                Answer::Fail => return Err("the log is on fire".into()),
                Answer::Panic => panic!("in the future"),
                Answer::Hang => std::future::pending().await,
                Answer::Late => tokio::time::sleep(Duration::from_secs(60)).await,
            }
            Ok(retried(due))
        })
    }

    fn settled(&self, due: &Checkpoint, _token: Durable<()>) {
        self.settled.lock().push(due.identity.offset);
    }

    fn unsettled(&self, due: &Checkpoint, _token: (), outcome: Outcome) {
        self.unsettled.lock().push((due.identity.offset, outcome));
    }

    fn quarantined(&self, due: &Checkpoint) {
        self.quarantined.lock().push(due.identity.offset);
    }
}

pub(crate) struct World {
    pub(crate) store: Arc<FaultStore<MemStore>>,
    pub(crate) faults: Faults,
    pub(crate) sink: Arc<Sink>,
    pub(crate) clock: ManualClock,
    pub(crate) cache: LeaseCache<Sink>,
    pub(crate) cached: Arc<CachedQueue>,
    pub(crate) running: JoinHandle<Result<()>>,
}

impl World {
    pub(crate) async fn new() -> Self {
        Self::with(|_| {}).await
    }

    pub(crate) async fn with(change: impl FnOnce(&mut CacheOptions)) -> Self {
        let faults = Faults::none();
        let store = FaultStore::new(MemStore::new(&KEYSPACES), faults.clone());
        Self::on(Arc::new(store), faults, change).await
    }

    async fn on(
        store: Arc<FaultStore<MemStore>>,
        faults: Faults,
        change: impl FnOnce(&mut CacheOptions),
    ) -> Self {
        let sink = Arc::new(Sink::default());
        let clock = ManualClock::new(START, WallTime::from_unix_millis(0));
        let mut options = CacheOptions::default();
        options.idle_max = Duration::from_millis(20);
        change(&mut options);
        let cache = LeaseCache::new(
            Foundation {
                store: Arc::clone(&store) as Arc<dyn Store>,
                clock: Arc::new(clock.clone()),
                due: DueSchedule::restore(|_| LeaseTime::ZERO),
                quarantine: Arc::default(),
                sink: Arc::clone(&sink),
                incarnation: Incarnation::new(7),
                previous: None,
            },
            options,
        );
        let subscribe = Subscribe {
            queue: QUEUE,
            bounds: bounds(),
            found_end: bounds().end,
            start: StartPosition::Earliest,
            ordered: false,
        };
        let cached = cache.subscribe(subscribe).await.unwrap();
        let runs = cache.clone();
        let running = tokio::spawn(async move { runs.run(std::future::pending()).await });
        Self {
            store,
            faults,
            sink,
            clock,
            cache,
            cached,
            running,
        }
    }

    pub(crate) fn answer(&self, offset: u64, answer: Answer) {
        let mut answers = self.sink.answers.lock();
        answers.insert(Offset::new(offset), answer);
    }

    /// Leases the next `count` offsets, under one name, for the third time.
    pub(crate) async fn lease(&self, count: usize) -> Vec<DeliveryIdentity> {
        let mut reserved = self.cache.reserve(&self.cached, count, bounds()).unwrap();
        let offsets = reserved.offsets().to_vec();
        let terms = Terms {
            now: self.clock.lease(),
            invisible_for: INVISIBLE,
            attempt: 3,
            attempt_id: Some("mine"),
            auto_renew: true,
        };
        let granted = reserved.lease(&offsets, &terms).await.unwrap();
        assert_eq!(granted.len(), count);
        granted.into_iter().map(|it| it.identity).collect()
    }

    /// Moves the clock, and gives the sweep and the flush time to follow.
    pub(crate) async fn advance(&self, by: Duration) {
        self.clock.advance(by);
        self.rest().await;
    }

    pub(crate) async fn rest(&self) {
        tokio::time::sleep(Duration::from_millis(120)).await;
    }

    /// The committed offset, as it is stored.
    pub(crate) async fn committed(&self) -> Offset {
        let (stored, _) = progress::load(self.store.inner(), QUEUE).await.unwrap();
        stored.map_or(Offset::ZERO, |progress| progress.committed)
    }

    /// The lease rows that are stored.
    pub(crate) async fn rows(&self) -> Vec<Checkpoint> {
        let entries = self.store.inner().scan(LEASE, Scan::all()).await.unwrap();
        let rows = entries.into_iter();
        rows.map(|row| Checkpoint::decode(row.value).unwrap())
            .collect()
    }

    /// The offsets that have a retry entry.
    pub(crate) async fn retried(&self) -> Vec<u64> {
        let entries = self.store.inner().scan(RETRY, Scan::all()).await.unwrap();
        let keys = entries.into_iter();
        keys.map(|entry| RetryKey::decode(entry.key).unwrap().sequence)
            .collect()
    }

    /// How many leases are in memory, and how many of them are staged.
    pub(crate) fn in_memory(&self) -> (usize, usize) {
        let counts = self.cached.look(LeaseQueue::counts);
        (counts.in_memory(), counts.staged)
    }
}

fn bounds() -> LogBounds {
    LogBounds {
        start: Offset::ZERO,
        end: Offset::new(MESSAGES),
    }
}
