//! A group's consumption of a topic: its queues, its retry queue, and who waits for it.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
};

use parking_lot::{Mutex, RwLock};
use pop_model::{
    GroupId, GroupRecord, LogBounds, Offset, QueueId, RetryKey, StartPosition, SubscriptionEpoch,
    SubscriptionQueue, TopicId,
};
use pop_store::{Store, table::retry};
use tokio::sync::{Notify, OnceCell};
use tokio_util::sync::CancellationToken;

use crate::{BrokerError, catalog::Topic};

/// The end of a retry queue: sequences are given out here, and nothing is read at or above
/// one whose write has no outcome.
#[derive(Debug)]
pub(crate) struct RetryTail {
    // The end when this run began, before an entry arrived.
    found_end: Offset,
    next: Offset,
    arriving: BTreeSet<Offset>,
}

impl RetryTail {
    fn new(next: Offset) -> Self {
        Self {
            found_end: next,
            next,
            arriving: BTreeSet::new(),
        }
    }

    pub(crate) fn found_end(&self) -> Offset {
        self.found_end
    }

    /// The sequence of an entry whose write begins now.
    pub(crate) fn arrive(&mut self) -> Offset {
        let sequence = self.next;
        self.next = sequence.next();
        self.arriving.insert(sequence);
        sequence
    }

    /// The write has an outcome: the entry is there, or never will be.
    pub(crate) fn resolve(&mut self, sequence: Offset) {
        self.arriving.remove(&sequence);
    }

    pub(crate) fn bounds(&self) -> LogBounds {
        LogBounds {
            start: Offset::ZERO,
            end: self.arriving.first().copied().unwrap_or(self.next),
        }
    }
}

/// What a group and a topic have between them.
#[derive(Debug)]
pub(crate) struct Consumption {
    pub(crate) group: Arc<GroupRecord>,
    pub(crate) topic: Arc<Topic>,
    pub(crate) retry: Mutex<RetryTail>,
    /// Woken once for each thing that became ready.
    pub(crate) ready: Notify,
    /// Set once the group is subscribed to every queue.
    pub(crate) subscribed: OnceCell<()>,
    /// Cancelled once the group or the topic is deleted.
    pub(crate) ended: CancellationToken,
    turn: AtomicU32,
    // The offset of one of its queues was reset once, so that epochs matter.
    was_reset: AtomicBool,
}

impl Consumption {
    pub(crate) fn was_reset(&self) -> bool {
        self.was_reset.load(Ordering::Relaxed)
    }

    pub(crate) fn note_epoch(&self, epoch: SubscriptionEpoch) {
        if epoch != SubscriptionEpoch::default() {
            self.was_reset.store(true, Ordering::Relaxed);
        }
    }

    /// A number that goes up with each receive: where to look first.
    pub(crate) fn next_turn(&self) -> u32 {
        // Only spreads load; order between concurrent receives does not matter.
        self.turn.fetch_add(1, Ordering::Relaxed)
    }

    /// The queues, beginning with a rotating one.
    pub(crate) fn queues_from(&self, turn: u32) -> impl Iterator<Item = SubscriptionQueue> {
        let count = self.topic.record().queues;
        let first = turn.checked_rem(count).unwrap_or(0);
        let queues = (first..count).chain(0..first);
        queues.map(|queue| self.queue(QueueId::new(queue)))
    }

    /// Every queue, the retry queue last.
    pub(crate) fn all_queues(&self) -> impl Iterator<Item = SubscriptionQueue> {
        self.queues_from(0).chain([self.retry_queue()])
    }

    /// One queue of the topic as the group consumes it.
    pub(crate) fn queue(&self, queue: QueueId) -> SubscriptionQueue {
        SubscriptionQueue {
            group: self.group.id,
            topic: self.topic.record().id,
            queue,
        }
    }

    /// The retry queue.
    pub(crate) fn retry_queue(&self) -> SubscriptionQueue {
        self.queue(QueueId::RETRY)
    }

    /// The key of an entry of the retry queue.
    pub(crate) fn retry_key(&self, sequence: Offset) -> RetryKey {
        RetryKey {
            group: self.group.id,
            topic: if pop_model::Mutant::RetryQueueIgnoresTheTopic.is_on() {
                TopicId::new(0)
            } else {
                self.topic.record().id
            },
            sequence: sequence.get(),
        }
    }

    pub(crate) fn wake(&self) {
        if !pop_model::Mutant::WakeUpLost.is_on() {
            self.ready.notify_one();
        }
    }
}

type Cell = Arc<OnceCell<Arc<Consumption>>>;

/// Every consumption that was used since the start.
#[derive(Debug)]
pub(crate) struct Consumptions {
    store: Arc<dyn Store>,
    cells: Mutex<HashMap<(GroupId, TopicId), Cell>>,
    by_topic: RwLock<HashMap<TopicId, Vec<Arc<Consumption>>>>,
    over: Mutex<Over>,
}

/// What is deleted: whoever still holds it must not bring it back.
#[derive(Debug, Default)]
struct Over {
    topics: HashSet<TopicId>,
    groups: HashSet<GroupId>,
}

impl Consumptions {
    pub(crate) fn new(store: Arc<dyn Store>) -> Self {
        Self {
            store,
            cells: Mutex::default(),
            by_topic: RwLock::default(),
            over: Mutex::default(),
        }
    }

    /// The consumption of a topic by a group.
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
        // Looked at after the load, which a deletion may not have seen.
        match self.over(group, topic) {
            None => Ok(Arc::clone(consumption)),
            Some(error) => {
                self.end(|key| key == (group.id, topic.record().id));
                Err(error)
            }
        }
    }

    fn over(&self, group: &GroupRecord, topic: &Topic) -> Option<BrokerError> {
        let over = self.over.lock();
        if over.groups.contains(&group.id) {
            Some(BrokerError::GroupNotFound(group.name.clone()))
        } else if over.topics.contains(&topic.record().id) {
            Some(BrokerError::TopicNotFound(topic.record().name.clone()))
        } else {
            None
        }
    }

    /// Ends every consumption of a topic.
    pub(crate) fn end_topic(&self, id: TopicId) {
        self.over.lock().topics.insert(id);
        self.end(|(_, topic)| topic == id);
    }

    /// Ends every consumption of a group.
    pub(crate) fn end_group(&self, id: GroupId) {
        self.over.lock().groups.insert(id);
        self.end(|(group, _)| group == id);
    }

    fn end(&self, is_over: impl Fn((GroupId, TopicId)) -> bool) {
        self.cells.lock().retain(|key, cell| {
            let is_over = is_over(*key);
            if is_over && let Some(consumption) = cell.get() {
                consumption.ended.cancel();
            }
            !is_over
        });
        let mut by_topic = self.by_topic.write();
        for (topic, consumptions) in by_topic.iter_mut() {
            consumptions.retain(|it| !is_over((it.group.id, *topic)));
        }
        by_topic.retain(|_, consumptions| !consumptions.is_empty());
    }

    /// The consumption that a queue belongs to, if it is in use.
    pub(crate) fn of(&self, queue: SubscriptionQueue) -> Option<Arc<Consumption>> {
        let cells = self.cells.lock();
        cells.get(&(queue.group, queue.topic))?.get().cloned()
    }

    /// Below which sequence of a retry queue no entry arrives any more. Of one that is not in
    /// use nobody can say.
    pub(crate) fn retry_end(&self, queue: SubscriptionQueue) -> Offset {
        let consumption = self.of(queue);
        consumption.map_or(Offset::ZERO, |it| it.retry.lock().bounds().end)
    }

    /// Something became ready in a topic: one waiting receive of each group looks.
    pub(crate) fn wake(&self, topic: TopicId) {
        for consumption in self.by_topic.read().get(&topic).into_iter().flatten() {
            consumption.wake();
        }
    }

    async fn load(
        &self,
        group: &Arc<GroupRecord>,
        topic: &Arc<Topic>,
    ) -> Result<Arc<Consumption>, BrokerError> {
        let retry_queue = SubscriptionQueue {
            group: group.id,
            topic: topic.record().id,
            queue: QueueId::RETRY,
        };
        let end = retry::end(self.store.as_ref(), retry_queue).await?;
        let consumption = Arc::new(Consumption {
            group: Arc::clone(group),
            topic: Arc::clone(topic),
            retry: Mutex::new(RetryTail::new(end)),
            ready: Notify::new(),
            subscribed: OnceCell::new(),
            ended: CancellationToken::new(),
            turn: AtomicU32::new(0),
            was_reset: AtomicBool::new(false),
        });
        let mut by_topic = self.by_topic.write();
        by_topic
            .entry(topic.record().id)
            .or_default()
            .push(Arc::clone(&consumption));
        Ok(consumption)
    }
}

/// Where a group starts in a retry queue: at its beginning, whatever it does elsewhere.
pub(crate) const RETRY_START: StartPosition = StartPosition::Earliest;
