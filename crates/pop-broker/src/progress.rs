//! How far a group has come in a topic, and setting it back or forward.

use std::sync::Arc;

use pop_model::{
    GroupName, GroupRecord, LogBounds, Offset, QueueId, SubscriptionQueue, TopicName, WallTime,
};
use pop_store::table::MessageLog;

use crate::{Broker, BrokerError, Topic, consumption::Consumption, core::Core};

/// How far a group has come in one queue of a topic, or in its retry queue for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueueProgress {
    /// Which queue.
    pub queue: QueueId,
    /// What the queue holds.
    pub bounds: LogBounds,
    /// Below it everything is settled, as the store has it.
    pub committed: Offset,
    /// Deliveries that are out and not acknowledged, those that are stored included.
    pub in_flight: u64,
    /// Messages that are not settled: out, or still to be handed out.
    pub lag: u64,
}

/// Where a group is to go on in a topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResetTo {
    /// At the first message that is still there.
    Earliest,
    /// Behind the last one.
    Latest,
    /// At the first message that was stored at or after this moment.
    Time(WallTime),
    /// At this offset of this queue; its other queues stay as they are. Brought inside what
    /// the queue holds.
    Offset(QueueId, Offset),
}

impl Broker {
    /// How far a group has come in a topic: each queue, and last the retry queue.
    ///
    /// # Errors
    ///
    /// An unknown group or topic, or the store's.
    pub async fn progress(
        &self,
        group: &GroupName,
        topic: &TopicName,
    ) -> Result<Vec<QueueProgress>, BrokerError> {
        let (group, topic) = (group.clone(), topic.clone());
        self.run(move |core| async move {
            let consumption = core.consumption(&group, &topic).await?;
            let mut progress = Vec::new();
            for queue in consumption.all_queues() {
                progress.push(core.queue_progress(&consumption, queue).await?);
            }
            Ok(progress)
        })
        .await
    }

    /// Sets where a group goes on in a topic. Durable when it returns, queue by queue: an
    /// error may leave some of them where they were, and can be tried again.
    ///
    /// What is out of these queues is void from then on: its handles are refused, and what
    /// is to be delivered again of it is not.
    ///
    /// # Errors
    ///
    /// An unknown group, topic or queue, or the store's.
    pub async fn reset_offset(
        &self,
        group: &GroupName,
        topic: &TopicName,
        to: ResetTo,
    ) -> Result<(), BrokerError> {
        let (group, topic) = (group.clone(), topic.clone());
        self.run(move |core| async move {
            let consumption = core.consumption(&group, &topic).await?;
            if let ResetTo::Offset(queue, _) = to
                && queue.get() >= consumption.topic.record().queues
            {
                return Err(BrokerError::QueueNotFound { topic, queue });
            }
            for queue in consumption.queues_from(0) {
                core.reset_queue(&consumption, queue, to).await?;
            }
            Ok(())
        })
        .await
    }
}

impl Core {
    /// A group and a topic, both of which must be there.
    pub(crate) fn known(
        &self,
        group: &GroupName,
        topic: &TopicName,
    ) -> Result<(Arc<GroupRecord>, Arc<Topic>), BrokerError> {
        let known_group = self.catalog.group(group);
        let known_topic = self.catalog.topic(topic);
        Ok((
            known_group.ok_or_else(|| BrokerError::GroupNotFound(group.clone()))?,
            known_topic.ok_or_else(|| BrokerError::TopicNotFound(topic.clone()))?,
        ))
    }

    /// The consumption of a topic by a group, both of which must be there.
    pub(crate) async fn consumption(
        &self,
        group: &GroupName,
        topic: &TopicName,
    ) -> Result<Arc<Consumption>, BrokerError> {
        let (group, topic) = self.known(group, topic)?;
        self.consumptions.get(&group, &topic).await
    }

    async fn queue_progress(
        &self,
        consumption: &Consumption,
        queue: SubscriptionQueue,
    ) -> Result<QueueProgress, BrokerError> {
        let cached = self.cached(consumption, queue).await?;
        let bounds = if queue.is_retry() {
            consumption.retry.lock().bounds()
        } else {
            self.log.bounds(queue.log_queue()).await?
        };
        let (committed, open) =
            cached.look(|leases| (leases.committed(), leases.open_below(bounds.end)));
        Ok(QueueProgress {
            queue: queue.queue,
            bounds,
            committed,
            in_flight: cached.in_flight(),
            lag: open,
        })
    }

    async fn reset_queue(
        &self,
        consumption: &Consumption,
        queue: SubscriptionQueue,
        to: ResetTo,
    ) -> Result<(), BrokerError> {
        let bounds = self.log.bounds(queue.log_queue()).await?;
        let target = match to {
            ResetTo::Earliest => bounds.start,
            ResetTo::Latest => bounds.end,
            ResetTo::Offset(of, _) if of != queue.queue => return Ok(()),
            ResetTo::Offset(_, offset) => offset.clamp(bounds.start, bounds.end),
            ResetTo::Time(moment) => self.log.offset_at(queue.log_queue(), moment).await?,
        };
        loop {
            let cached = self.cached(consumption, queue).await?;
            match self.cache.reset(&cached, target).await {
                Err(pop_cache::CacheError::Evicted(_)) => {}
                outcome => {
                    outcome?;
                    break;
                }
            }
        }
        let cached = self.cached(consumption, queue).await?;
        consumption.note_epoch(cached.look(pop_cache::LeaseQueue::epoch));
        tracing::info!(%queue, ?to, offset = target.get(), "the offset was reset");
        consumption.wake();
        Ok(())
    }
}
