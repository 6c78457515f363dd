//! A cache on a store that fails when it is told to, and time that is moved by hand.

use std::{sync::Arc, time::Duration};

use pop_cache::{
    CacheError, CacheOptions, CachedQueue, Foundation, Granted, LeaseCache, Subscribe, Terms,
};
use pop_model::{
    Checkpoint, Clock, DeliveryIdentity, GroupId, Incarnation, LeaseTime, LogBounds, ManualClock,
    MarkPage, Offset, QueueId, StartPosition, SubscriptionQueue, TopicId, WallTime,
};
use pop_store::{
    Durability, MemStore, Store,
    table::{DueSchedule, KEYSPACES, META, lease, progress, quarantine},
    testkit::{Call, Fault, FaultStore, Faults},
};
use tokio::{sync::oneshot, task::JoinHandle};

use crate::sink::{Sink, retry_row};

pub(crate) const HIDDEN: Duration = Duration::from_secs(5);

pub(crate) fn queue(topic: u64) -> SubscriptionQueue {
    SubscriptionQueue {
        group: GroupId::new(1),
        topic: TopicId::new(topic),
        queue: QueueId::new(0),
    }
}

pub(crate) struct World {
    pub(crate) store: FaultStore<MemStore>,
    pub(crate) faults: Faults,
    pub(crate) sink: Arc<Sink>,
    pub(crate) clock: ManualClock,
    pub(crate) options: CacheOptions,
    pub(crate) cache: LeaseCache<Sink>,
    pub(crate) log_end: u64,
    pub(crate) ordered: bool,
    run: u64,
    running: Option<Running>,
}

struct Running {
    stop: oneshot::Sender<()>,
    task: JoinHandle<pop_store::Result<()>>,
}

pub(crate) fn options(change: impl FnOnce(&mut CacheOptions)) -> CacheOptions {
    let mut options = CacheOptions::default();
    change(&mut options);
    options
}

impl World {
    pub(crate) fn new() -> Self {
        Self::with(CacheOptions::default())
    }

    pub(crate) fn ordered() -> Self {
        Self {
            ordered: true,
            ..Self::new()
        }
    }

    /// A log of 10,000 messages that nobody has consumed.
    pub(crate) fn with(options: CacheOptions) -> Self {
        let faults = Faults::none();
        let store = FaultStore::crashable(MemStore::new(&KEYSPACES), faults.clone());
        let sink = Arc::new(Sink::default());
        let clock = ManualClock::new(LeaseTime::from_millis(1_000_000), WallTime::default());
        let cache = cache(&store, &sink, &clock, &options, 1);
        Self {
            store,
            faults,
            sink,
            clock,
            options,
            cache,
            log_end: 10_000,
            ordered: false,
            run: 1,
            running: None,
        }
    }

    /// Cuts the power, of which `keep` unsynced writes survive, and starts anew.
    pub(crate) fn crash(&mut self, keep: usize) {
        if let Some(running) = self.running.take() {
            running.task.abort();
        }
        let survived = self.store.crash(keep);
        self.store = FaultStore::crashable(survived, self.faults.clone());
        self.run += 1;
        self.sink = Arc::new(self.sink.reopened());
        let (sink, clock, options) = (&self.sink, &self.clock, &self.options);
        self.cache = cache(&self.store, sink, clock, options, self.run);
    }

    /// Starts what goes on by itself.
    pub(crate) fn start(&mut self) {
        let (stop, stopped) = oneshot::channel();
        let cache = self.cache.clone();
        let task = tokio::spawn(async move {
            let stopped = async {
                let _ = stopped.await;
            };
            cache.run(stopped).await
        });
        self.running = Some(Running { stop, task });
    }

    /// Stops it, and waits for the end.
    pub(crate) async fn stop(&mut self) -> pop_store::Result<()> {
        let running = self.running.take().expect("it was started");
        let _ = running.stop.send(());
        running.task.await.expect("it does not panic")
    }

    /// What it ended with, by itself.
    pub(crate) async fn ended(&mut self) -> pop_store::Result<()> {
        let running = self.running.take().expect("it was started");
        running.task.await.expect("it does not panic")
    }

    /// Ends it in the middle of whatever it does.
    pub(crate) async fn drop_run(&mut self) {
        let running = self.running.take().expect("it was started");
        running.task.abort();
        let _ = running.task.await;
    }

    /// Time passes, in small steps.
    pub(crate) async fn pass(&self, time: Duration) {
        let step = Duration::from_millis(100);
        let mut passed = Duration::ZERO;
        while passed < time {
            self.clock.advance(step);
            tokio::time::sleep(step).await;
            passed += step;
        }
    }

    pub(crate) fn bounds(&self) -> LogBounds {
        LogBounds {
            start: Offset::ZERO,
            end: Offset::new(self.log_end),
        }
    }

    pub(crate) async fn cached(&self, queue: SubscriptionQueue) -> Arc<CachedQueue> {
        let subscribe = Subscribe {
            queue,
            bounds: self.bounds(),
            found_end: Offset::new(self.log_end),
            start: StartPosition::Earliest,
            ordered: self.ordered,
        };
        let cached = self.cache.subscribe(subscribe).await;
        cached.expect("the store answers")
    }

    pub(crate) async fn try_pop(
        &self,
        queue: SubscriptionQueue,
        count: usize,
    ) -> Result<Vec<Granted>, CacheError> {
        let cached = self.cached(queue).await;
        let mut reserved = if self.ordered {
            self.admit(&cached).await;
            self.cache.reserve_group(&cached, count, None)?
        } else {
            self.cache.reserve(&cached, count, self.bounds())?
        };
        let offsets = reserved.offsets().to_vec();
        let terms = Terms {
            now: self.clock.lease(),
            invisible_for: HIDDEN,
            attempt: 1,
            attempt_id: None,
            auto_renew: false,
        };
        reserved.lease(&offsets, &terms).await
    }

    /// Reads the first ten messages of an ordered queue: all are of one message group.
    async fn admit(&self, cached: &Arc<CachedQueue>) {
        let left = 10_usize.saturating_sub(cached.look(|leases| leases.held()));
        let reserved = self.cache.reserve(cached, left, self.bounds());
        let reserved = reserved.expect("there is room");
        let groups: Vec<_> = reserved.offsets().iter().map(|it| (*it, 7)).collect();
        let admitted = reserved.admit(groups).await;
        admitted.expect("the store answers");
    }

    /// Hands out `count` messages for five seconds.
    pub(crate) async fn pop(&self, count: usize) -> Vec<DeliveryIdentity> {
        let granted = self.try_pop(queue(1), count).await;
        let granted = granted.expect("there is room");
        granted.into_iter().map(|it| it.identity).collect()
    }

    pub(crate) async fn ack(
        &self,
        identity: &DeliveryIdentity,
        durability: Durability,
    ) -> Result<(), CacheError> {
        let cached = self.cached(identity.queue).await;
        self.cache.ack(&cached, identity, durability).await
    }

    /// The stored deliveries.
    pub(crate) async fn rows(&self) -> Vec<Checkpoint> {
        let rows = lease::load(&self.store, queue(1), usize::MAX).await;
        rows.expect("the store answers")
    }

    pub(crate) async fn row_offsets(&self) -> Vec<u64> {
        let rows = self.rows().await;
        rows.iter().map(|row| row.identity.offset.get()).collect()
    }

    pub(crate) async fn quarantined(&self) -> usize {
        let records = quarantine::list(&self.store, 0, 1_000).await;
        records.expect("the store answers").len()
    }

    pub(crate) async fn is_retried(&self, offset: u64) -> bool {
        let row = self.store.get(META, &retry_row(offset)).await;
        row.expect("the store answers").is_some()
    }

    /// The committed offset, and whether an offset is settled for a restart.
    pub(crate) async fn committed(&self) -> u64 {
        let (progress, _) = self.progress().await;
        progress
    }

    pub(crate) async fn is_settled(&self, offset: u64) -> bool {
        let (committed, pages) = self.progress().await;
        let (number, place) = MarkPage::locate(Offset::new(offset));
        let is_marked = |(page, marks): &(u64, MarkPage)| *page == number && marks.get(place);
        offset < committed || pages.iter().any(is_marked)
    }

    async fn progress(&self) -> (u64, Vec<(u64, MarkPage)>) {
        let loaded = progress::load(&self.store, queue(1)).await;
        let (progress, pages) = loaded.expect("the store answers");
        (
            progress.map_or(0, |progress| progress.committed.get()),
            pages,
        )
    }

    /// The next write, or the one after `skip` others, goes wrong.
    pub(crate) fn fail_write(&self, skip: u64, fault: Fault) {
        self.faults.arm(Call::Write, skip + 1, fault);
    }
}

fn cache(
    store: &FaultStore<MemStore>,
    sink: &Arc<Sink>,
    clock: &ManualClock,
    options: &CacheOptions,
    run: u64,
) -> LeaseCache<Sink> {
    let on = Foundation {
        store: Arc::new(store.clone()),
        clock: Arc::new(clock.clone()),
        due: DueSchedule::restore(|_| LeaseTime::ZERO),
        quarantine: Arc::default(),
        sink: Arc::clone(sink),
        incarnation: Incarnation::new(run),
        previous: run.checked_sub(1).map(Incarnation::new),
    };
    LeaseCache::new(on, options.clone())
}
