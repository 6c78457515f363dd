//! Ending messages by their age, and saying what ended.

mod clock;

use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use pop_model::{
    LogQueue, MarkPage, Mutant, Offset, SubscriptionQueue, SubscriptionRecord, WallTime,
};
use pop_store::{
    Durability, ErrorKind, Store, WriteBatch,
    table::{MessageLog, Subscriber, Swept, meta, parked, progress},
};
use tokio::sync::Notify;

pub use clock::ClockJump;

use crate::{Broker, BrokerError, Topic, core::Core};
use clock::AgeClock;

/// How often queues are looked at.
const EVERY: Duration = Duration::from_secs(60);
/// How many messages of a queue end in one go, before references are looked for.
const AT_ONCE: usize = 64 << 10;

/// A queue as a group consumes it.
type Subscription = (SubscriptionQueue, SubscriptionRecord);

/// How messages end by their age.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RetentionStatus {
    /// How long messages are kept; `None`: for ever.
    pub keep: Option<Duration>,
    /// The jump of wall time that stops it, until somebody confirms the time.
    pub stopped_by: Option<ClockJump>,
}

/// The state of retention on one opened store.
#[derive(Debug)]
pub(crate) struct Retention {
    clock: Mutex<AgeClock>,
    now: Notify,
}

impl Retention {
    pub(crate) async fn open(store: &dyn Store) -> pop_store::Result<Self> {
        let trusted = meta::retention_clock(store).await?;
        Ok(Self {
            clock: Mutex::new(AgeClock::restore(trusted)),
            now: Notify::new(),
        })
    }
}

impl Broker {
    /// How messages end by their age.
    ///
    /// # Errors
    ///
    /// While the store is not open.
    pub fn retention(&self) -> Result<RetentionStatus, BrokerError> {
        let core = self.core()?;
        let stopped_by = core.retention.clock.lock().jump();
        Ok(RetentionStatus {
            keep: core.options.retention,
            stopped_by,
        })
    }

    /// Says that wall time is right, after it jumped: messages end by their age again.
    ///
    /// # Errors
    ///
    /// The store's.
    pub async fn confirm_clock(&self) -> Result<(), BrokerError> {
        self.run(move |core| async move {
            let (wall, lease) = (core.clock.wall(), core.clock.lease());
            core.retention.clock.lock().confirm(wall, lease);
            core.store_trusted_clock(Durability::Synced).await?;
            tracing::warn!(
                wall_unix_ms = wall.as_unix_millis(),
                "an operator confirmed the time; retention goes on"
            );
            core.retention.now.notify_one();
            Ok(())
        })
        .await
    }
}

impl Core {
    /// Ends messages that are older than they are kept, until the store closes.
    pub(crate) async fn retain_by_age(&self) -> pop_store::Result<()> {
        let Some(keep) = self.options.retention else {
            self.closing.cancelled().await;
            return Ok(());
        };
        loop {
            tokio::select! {
                biased;
                () = self.closing.cancelled() => return Ok(()),
                () = self.retention.now.notified() => {}
                () = tokio::time::sleep(EVERY) => {}
            }
            let passed = tokio::select! {
                biased;
                () = self.closing.cancelled() => return Ok(()),
                passed = self.retention_pass(keep) => passed,
            };
            if let Err(error) = passed {
                if needs_reopen(&error) {
                    return Err(error);
                }
                tracing::warn!(%error, "a pass of retention failed; it is tried again");
            }
        }
    }

    /// Looks at each queue once. One that can't be looked at holds up no other.
    async fn retention_pass(&self, keep: Duration) -> pop_store::Result<()> {
        let cutoff = self.cutoff(keep).await?;
        let mut subscriptions: BTreeMap<LogQueue, Vec<Subscription>> = BTreeMap::new();
        for subscription in meta::subscriptions(self.store.as_ref()).await? {
            let of_queue = subscriptions.entry(subscription.0.log_queue());
            of_queue.or_default().push(subscription);
        }
        for topic in self.catalog.topics() {
            for queue in topic.queues() {
                let groups = subscriptions.remove(&queue).unwrap_or_default();
                match self.retain_queue(&topic, queue, cutoff, groups).await {
                    Ok(()) => {}
                    Err(error) if needs_reopen(&error) => return Err(error),
                    // It was deleted meanwhile.
                    Err(_) if self.catalog.topic_by_id(queue.topic).is_none() => {}
                    Err(error) => {
                        tracing::warn!(topic = %topic.record().name, queue = queue.queue.get(), %error, "retention could not look at a queue; it is tried again");
                    }
                }
            }
        }
        Ok(())
    }

    /// What was stored before this moment ends; `None` while wall time is not trusted.
    async fn cutoff(&self, keep: Duration) -> pop_store::Result<Option<WallTime>> {
        let (wall, lease) = (self.clock.wall(), self.clock.lease());
        let (is_trusted, jump) = {
            let mut clock = self.retention.clock.lock();
            let was_stopped = clock.jump().is_some();
            let is_trusted = clock.look(wall, lease);
            (is_trusted, clock.jump().filter(|_| !was_stopped))
        };
        if let Some(jump) = jump {
            tracing::error!(
                ahead_ms = jump.ahead_ms,
                "wall time jumped, so no message ends by its age: set the clock right, confirm the time (pop-broker retention confirm), or wait until it was stable for 24 h"
            );
        }
        if !is_trusted {
            return Ok(None);
        }
        self.store_trusted_clock(Durability::Buffered).await?;
        let keep = i64::try_from(keep.as_millis()).unwrap_or(i64::MAX);
        let cutoff = wall.as_unix_millis().saturating_sub(keep);
        Ok(Some(WallTime::from_unix_millis(cutoff)))
    }

    async fn store_trusted_clock(&self, durability: Durability) -> pop_store::Result<()> {
        let trusted = self.retention.clock.lock().trusted();
        let mut batch = WriteBatch::new();
        if let Some(ahead) = trusted {
            meta::put_retention_clock(&mut batch, ahead);
        }
        self.store.write(batch, durability).await
    }

    async fn retain_queue(
        &self,
        topic: &Arc<Topic>,
        queue: LogQueue,
        cutoff: Option<WallTime>,
        mut groups: Vec<Subscription>,
    ) -> pop_store::Result<()> {
        loop {
            let before = self.log.bounds(queue).await?.start;
            let cut = match cutoff {
                Some(cutoff) => self.log.end_of_older(queue, cutoff, AT_ONCE).await?,
                None => before,
            };
            let start = self.log.retain(queue, cut).await?.start;
            if start > before && !Mutant::RetentionMissesNewGroups.is_on() {
                // A group that came since the pass began may have received what ends now; one
                // that comes from here on begins at the start.
                let mut all = meta::subscriptions(self.store.as_ref()).await?;
                all.retain(|(of, _)| of.log_queue() == queue);
                groups = all;
            }
            // Also where nothing ends now: a crash may have left something below the start.
            if start > Offset::ZERO {
                self.sweep_queue(topic, queue, start, &groups).await?;
            }
            if start == before {
                return Ok(());
            }
        }
    }

    async fn sweep_queue(
        &self,
        topic: &Arc<Topic>,
        queue: LogQueue,
        start: Offset,
        groups: &[Subscription],
    ) -> pop_store::Result<()> {
        // What is out in memory refers to its message, too; a row says so.
        self.cache.store_leases(queue, start).await?;
        let mut consumers = Vec::with_capacity(groups.len());
        for (group, record) in groups {
            let of = self.catalog.group_by_id(group.group);
            let ordered = of.is_some_and(|group| group.fifo);
            let store = self.store.as_ref();
            consumers.push(Consumer::load(store, *group, record.start, ordered).await?);
        }
        let subscribers = self.subscribers(topic, groups).await;
        let mut sweep = self.log.sweep(queue, subscribers).await?;
        let retry_end = |queue| self.consumptions.retry_end(queue);
        let mut removed = 0;
        while let Some(swept) = sweep.step(&retry_end).await? {
            removed += swept.removed.len();
            for consumer in &mut consumers {
                consumer.count(self.store.as_ref(), &swept).await?;
            }
        }
        let ended = sweep.collect(&retry_end).await?;
        if removed > 0 || ended > 0 {
            let name = &topic.record().name;
            tracing::info!(topic = %name, queue = queue.queue.get(), removed, ended, start = start.get(), "messages ended by their age, or were kept until now for somebody");
        }
        self.options.counters.expired.add(removed);
        self.report(topic, &consumers);
        Ok(())
    }

    async fn subscribers(&self, topic: &Arc<Topic>, groups: &[Subscription]) -> Vec<Subscriber> {
        let mut subscribers = Vec::with_capacity(groups.len());
        for (queue, record) in groups {
            // Of a group that is deleted nothing is kept.
            let Some(group) = self.catalog.group_by_id(queue.group) else {
                continue;
            };
            // Its retry queue is walked once, and not at each step, if it is known where that
            // ends. If that can't be known it is walked, and nothing worse.
            if let Err(error) = self.consumptions.get(&group, topic).await {
                tracing::debug!(%queue, %error, "retention looks at a retry queue whose end is not known");
            }
            subscribers.push(Subscriber {
                queue: *queue,
                record: *record,
                ordered: group.fifo,
            });
        }
        subscribers
    }

    /// Tells of every group that loses something.
    fn report(&self, topic: &Topic, consumers: &[Consumer]) {
        for consumer in consumers.iter().filter(|consumer| consumer.open > 0) {
            self.options.counters.expired_unacked.add(consumer.open);
            let group = self.catalog.group_by_id(consumer.queue.group);
            let group = group.map_or_else(String::new, |group| group.name.to_string());
            tracing::warn!(topic = %topic.record().name, queue = consumer.queue.queue.get(), group, count = consumer.open, "messages ended that a group had not acknowledged");
        }
    }
}

fn needs_reopen(error: &pop_store::Error) -> bool {
    matches!(error.kind(), ErrorKind::Poisoned | ErrorKind::InDoubt)
}

/// How far a group has come in a queue, and how many messages it loses.
struct Consumer {
    queue: SubscriptionQueue,
    committed: Offset,
    pages: BTreeMap<u64, MarkPage>,
    ordered: bool,
    /// What it has parked, once that was wanted: its marks are set, and it is open all the
    /// same.
    parked: Option<HashSet<Offset>>,
    open: usize,
}

impl Consumer {
    async fn load(
        store: &dyn Store,
        queue: SubscriptionQueue,
        start: Offset,
        ordered: bool,
    ) -> pop_store::Result<Self> {
        let (stored, pages) = progress::load(store, queue).await?;
        Ok(Self {
            queue,
            committed: stored.map_or(start, |progress| progress.committed),
            pages: pages.into_iter().collect(),
            ordered,
            parked: None,
            open: 0,
        })
    }

    async fn count(&mut self, store: &dyn Store, swept: &Swept) -> pop_store::Result<()> {
        if self.ordered && self.parked.is_none() && !swept.removed.is_empty() {
            let mut offsets = HashSet::new();
            parked::for_each(store, self.queue, |(_, offset)| {
                offsets.insert(offset);
            })
            .await?;
            self.parked = Some(offsets);
        }
        let is_parked =
            |offset: &Offset| self.parked.as_ref().is_some_and(|it| it.contains(offset));
        let is_open = |offset: &&Offset| {
            let (page, place) = MarkPage::locate(**offset);
            let is_marked = self.pages.get(&page).is_some_and(|page| page.get(place));
            (**offset >= self.committed && !is_marked) || is_parked(offset)
        };
        self.open += swept.removed.iter().filter(is_open).count();
        Ok(())
    }
}
