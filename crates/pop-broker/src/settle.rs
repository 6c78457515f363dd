//! What a consumer does with a delivery: acknowledge it, or change how long it is hidden.

use std::{sync::Arc, time::Duration};

use pop_cache::CachedQueue;
use pop_model::{
    DeliveryIdentity, GroupName, Mutant, ReceiptHandle, RetryEntry, StoredKey, StoredValue,
    TopicName, limits,
};
use pop_store::table::RETRY;

use crate::{BrokerError, consumption::Consumption, core::Core};

impl Core {
    /// Ends a delivery: its message is done for the group.
    pub(crate) async fn ack(
        &self,
        group: &GroupName,
        topic: &TopicName,
        handle: &str,
    ) -> Result<(), BrokerError> {
        let (identity, cached) = self.delivery(group, topic, handle).await?;
        let durability = self.options.ack_durability;
        self.cache.ack(&cached, &identity, durability).await?;
        self.options.counters.acked.add(1);
        Ok(())
    }

    /// Hides a delivery for `invisible_for` from now on. The handle stays good: it names
    /// the delivery, not its deadline.
    pub(crate) async fn change_invisible(
        &self,
        group: &GroupName,
        topic: &TopicName,
        handle: &str,
        invisible_for: Duration,
        suspend: bool,
    ) -> Result<ReceiptHandle, BrokerError> {
        if invisible_for > Duration::from_millis(limits::INVISIBLE_MS_MAX) {
            return Err(BrokerError::InvisibleDuration(format!("{invisible_for:?}")));
        }
        let (identity, cached) = self.delivery(group, topic, handle).await?;
        let durability = self.options.ack_durability;
        self.cache
            .change(&cached, &identity, invisible_for, suspend, durability)
            .await?;
        Ok(self.handles.seal(&identity))
    }

    /// Moves the message of a delivery to the dead-letter topic: its consumer gave it up.
    pub(crate) async fn give_up(
        &self,
        group: &GroupName,
        topic: &TopicName,
        handle: &str,
    ) -> Result<(), BrokerError> {
        let (identity, cached) = self.delivery(group, topic, handle).await?;
        let durability = self.options.ack_durability;
        self.cache
            .dead_letter(&cached, &identity, durability)
            .await?;
        Ok(())
    }

    /// The delivery that a handle names, if it is one of this group and topic, and the
    /// queue that it is of.
    async fn delivery(
        &self,
        group: &GroupName,
        topic: &TopicName,
        handle: &str,
    ) -> Result<(DeliveryIdentity, Arc<CachedQueue>), BrokerError> {
        let identity = self.handles.open(handle)?;
        let (group, topic) = self.known(group, topic)?;
        if identity.queue.group != group.id || identity.queue.topic != topic.record().id {
            return Err(BrokerError::HandleOfAnother);
        }
        let cached = match self.cache.loaded(identity.queue) {
            Some(cached) => cached,
            None => {
                let consumption = self.consumptions.get(&group, &topic).await?;
                self.cached(&consumption, identity.queue).await?
            }
        };
        if identity.queue.is_retry() {
            self.check_source(&group, &topic, &identity).await?;
        }
        Ok((identity, cached))
    }

    /// A delivery of a retry entry is void once the queue that its message lies in was
    /// reset.
    async fn check_source(
        &self,
        group: &Arc<pop_model::GroupRecord>,
        topic: &Arc<crate::Topic>,
        identity: &DeliveryIdentity,
    ) -> Result<(), BrokerError> {
        let consumption = self.consumptions.get(group, topic).await?;
        // After a start the epochs are known once the queues are loaded.
        self.subscribe_all(&consumption).await?;
        if !consumption.was_reset() {
            return Ok(());
        }
        let key = consumption.retry_key(identity.offset).encode();
        // The entry goes with the end of its delivery.
        let Some(row) = self.store.get(RETRY, &key).await? else {
            return Err(BrokerError::DeliveryOver);
        };
        match RetryEntry::decode(row) {
            Ok(entry) if self.is_void(&consumption, &entry).await? => {
                Err(BrokerError::DeliveryOver)
            }
            _ => Ok(()),
        }
    }

    /// Whether a retry entry is of an epoch that is over.
    pub(crate) async fn is_void(
        &self,
        consumption: &Consumption,
        entry: &RetryEntry,
    ) -> Result<bool, BrokerError> {
        if Mutant::ResetKeepsTheEpoch.is_on() {
            return Ok(false);
        }
        let queue = consumption.queue(entry.source.queue);
        let cached = self.cached(consumption, queue).await?;
        Ok(cached.look(pop_cache::LeaseQueue::epoch) != entry.epoch)
    }
}
