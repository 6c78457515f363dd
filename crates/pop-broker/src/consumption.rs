//! A group's consumption of a topic: its queues, its retry queue, and who waits for it.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

use parking_lot::{Mutex, RwLock};
use pop_cache::{QueueOffsets, RetryEntries};
use pop_model::{
    GroupId, GroupRecord, LogBounds, LogQueue, Offset, Progress, StartPosition, SubscriptionQueue,
    SubscriptionRecord, TopicId,
};
use pop_store::{
    Durability, ErrorKind, Store, WriteBatch,
    table::{MessageLog, StoreLog, meta, progress, retry},
};
use tokio::sync::{Notify, OnceCell, Semaphore};

use crate::{BrokerError, catalog::Topic};

/// One queue as a group consumes it.
#[derive(Debug)]
pub(crate) struct Subscription {
    pub(crate) queue: SubscriptionQueue,
    pub(crate) record: SubscriptionRecord,
    pub(crate) offsets: Mutex<QueueOffsets>,
    /// Whose turn it is to settle offsets. Pages of marks are read-modify-write, so the
    /// writes of one queue go one after another; those of other queues don't wait.
    pub(crate) settle_turn: Semaphore,
}

impl Subscription {
    pub(crate) fn log_queue(&self) -> LogQueue {
        self.queue.log_queue()
    }

    pub(crate) fn progress(&self, committed: Offset) -> Progress {
        Progress {
            committed,
            epoch: self.record.epoch,
        }
    }
}

/// What a group and a topic have between them.
#[derive(Debug)]
pub(crate) struct Consumption {
    pub(crate) group: Arc<GroupRecord>,
    pub(crate) topic: Arc<Topic>,
    pub(crate) queues: Vec<Arc<Subscription>>,
    pub(crate) retry: Mutex<RetryEntries>,
    /// Woken once for each thing that became ready.
    pub(crate) ready: Notify,
    turn: AtomicU32,
}

impl Consumption {
    /// A number that goes up with each receive: where to look first.
    pub(crate) fn next_turn(&self) -> u32 {
        // Only spreads load; order between concurrent receives does not matter.
        self.turn.fetch_add(1, Ordering::Relaxed)
    }

    /// The queues, beginning with a rotating one.
    pub(crate) fn queues_from(&self, turn: u32) -> impl Iterator<Item = &Arc<Subscription>> {
        let count = self.queues.len();
        let first = usize::try_from(turn)
            .unwrap_or(0)
            .checked_rem(count)
            .unwrap_or(0);
        self.queues.iter().cycle().skip(first).take(count)
    }
}

type Cell = Arc<OnceCell<Arc<Consumption>>>;

/// Every consumption that was used since the start.
#[derive(Debug)]
pub(crate) struct Consumptions {
    store: Arc<dyn Store>,
    log: StoreLog,
    cells: Mutex<HashMap<(GroupId, TopicId), Cell>>,
    by_topic: RwLock<HashMap<TopicId, Vec<Arc<Consumption>>>>,
}

impl Consumptions {
    pub(crate) fn new(store: Arc<dyn Store>, log: StoreLog) -> Self {
        Self {
            store,
            log,
            cells: Mutex::default(),
            by_topic: RwLock::default(),
        }
    }

    /// The consumption of a topic by a group. Its first use makes the group subscribed:
    /// that is durable before anything is handed out.
    pub(crate) async fn get(
        &self,
        group: &Arc<GroupRecord>,
        topic: &Arc<Topic>,
    ) -> Result<Arc<Consumption>, BrokerError> {
        let cell = {
            let mut cells = self.cells.lock();
            Arc::clone(cells.entry((group.id, topic.record().id)).or_default())
        };
        // One load at a time; whoever waits for it takes over if it is cancelled or fails.
        let consumption = cell.get_or_try_init(|| self.load(group, topic)).await?;
        Ok(Arc::clone(consumption))
    }

    /// Something became ready in a topic: one waiting receive of each group looks.
    pub(crate) fn wake(&self, topic: TopicId) {
        for consumption in self.by_topic.read().get(&topic).into_iter().flatten() {
            consumption.ready.notify_one();
        }
    }

    async fn load(
        &self,
        group: &Arc<GroupRecord>,
        topic: &Arc<Topic>,
    ) -> Result<Arc<Consumption>, BrokerError> {
        let mut queues = Vec::new();
        for log_queue in topic.queues() {
            let queue = SubscriptionQueue {
                group: group.id,
                topic: log_queue.topic,
                queue: log_queue.queue,
            };
            queues.push(Arc::new(self.subscribe(group, queue).await?));
        }
        let (bounds, sequences) =
            retry::load(self.store.as_ref(), group.id, topic.record().id).await?;
        let consumption = Arc::new(Consumption {
            group: Arc::clone(group),
            topic: Arc::clone(topic),
            queues,
            retry: Mutex::new(RetryEntries::restore(sequences, bounds.floor)),
            ready: Notify::new(),
            turn: AtomicU32::new(0),
        });
        let mut by_topic = self.by_topic.write();
        by_topic
            .entry(topic.record().id)
            .or_default()
            .push(Arc::clone(&consumption));
        Ok(consumption)
    }

    /// Loads a queue's state, and makes the group subscribed to it if it is not yet.
    async fn subscribe(
        &self,
        group: &GroupRecord,
        queue: SubscriptionQueue,
    ) -> Result<Subscription, BrokerError> {
        let store = self.store.as_ref();
        let bounds = self.log.bounds(queue.log_queue()).await?;
        let record = match meta::subscription(store, queue).await? {
            Some(record) => record,
            None => self.start(group, queue, bounds).await?,
        };
        let (progress, pages) = progress::load(store, queue).await?;
        let committed = progress.map_or(record.start, |progress| progress.committed);
        let committed = clamp(queue, committed, bounds);
        Ok(Subscription {
            queue,
            record,
            offsets: Mutex::new(QueueOffsets::restore(committed, pages)),
            settle_turn: Semaphore::new(1),
        })
    }

    async fn start(
        &self,
        group: &GroupRecord,
        queue: SubscriptionQueue,
        bounds: LogBounds,
    ) -> Result<SubscriptionRecord, BrokerError> {
        let record = SubscriptionRecord {
            start: match group.start {
                StartPosition::Earliest => bounds.start,
                StartPosition::Latest => bounds.end,
            },
            ..SubscriptionRecord::default()
        };
        let mut batch = WriteBatch::new();
        meta::put_new_subscription(&mut batch, queue, &record);
        match self.store.write(batch, Durability::Synced).await {
            Ok(()) => Ok(record),
            // A load that was given up before it heard of its own write.
            Err(error) if error.kind() == ErrorKind::Conflict => {
                let stored = meta::subscription(self.store.as_ref(), queue).await?;
                stored.ok_or(BrokerError::Store(error))
            }
            Err(error) => Err(error.into()),
        }
    }
}

/// A committed offset that the log no longer, or not yet, reaches is brought inside it.
fn clamp(queue: SubscriptionQueue, committed: Offset, bounds: LogBounds) -> Offset {
    if committed > bounds.end {
        tracing::error!(
            %queue,
            committed = committed.get(),
            log_end = bounds.end.get(),
            "the committed offset is above the end of the log; consumption goes on at the end"
        );
    }
    committed.min(bounds.end).max(bounds.start)
}
