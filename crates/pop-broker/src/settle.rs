//! What a consumer does with a delivery: acknowledge it, or change how long it is hidden.
//!
//! Each is a compare-and-write on the lease row: the handle's identity must be the row's,
//! and the row must be unchanged when the write is committed. So a stale handle can never
//! touch a newer delivery, whatever runs at the same time.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use pop_model::{
    Checkpoint, DeliveryIdentity, GroupName, ReceiptHandle, RetryEntry, RetryKey, StoredValue,
    TopicName, limits,
};
use pop_store::{
    ErrorKind, Outcome, WriteBatch,
    table::{LEASE, lease, retry},
};

use crate::{BrokerError, core::Core, revive::RetryArrival};

/// How often a compare-and-write is tried again when the row changes under it. Each
/// change is a renewal or a back-off, so more than a few mean that something is wrong.
const TRIES_MAX: usize = 16;

impl Core {
    /// Ends a delivery: its message is done for the group.
    pub(crate) async fn ack(
        &self,
        group: &GroupName,
        topic: &TopicName,
        handle: &str,
    ) -> Result<(), BrokerError> {
        let identity = self.delivery(group, topic, handle)?;
        for _ in 0..TRIES_MAX {
            let (row, checkpoint) = self.lease(&identity).await?;
            let mut batch = WriteBatch::new();
            lease::remove(&mut batch, row, &checkpoint);
            match self.store.write(batch, self.options.ack_durability).await {
                Ok(()) => {
                    self.options.counters.acked.add(1);
                    return Ok(());
                }
                Err(error) if error.kind() == ErrorKind::Conflict => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(BrokerError::Busy("the delivery changed again and again"))
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
        let identity = self.delivery(group, topic, handle)?;
        for _ in 0..TRIES_MAX {
            let (row, before) = self.lease(&identity).await?;
            let now = self.clock.lease();
            let ticket = self
                .schedule
                .announce(identity.queue.shard(), now.saturating_add(invisible_for));
            let after = Checkpoint {
                popped_at: now,
                invisible_for,
                visible_at: ticket.deadline(),
                suspend: suspend || before.suspend,
                ..before.clone()
            };
            let mut batch = WriteBatch::new();
            if after.visible_at >= before.visible_at {
                lease::postpone(&mut batch, row, &after);
            } else {
                lease::replace(&mut batch, row, &after);
            }
            let outcome = self.store.write(batch, self.options.ack_durability).await;
            if outcome.as_ref().err().map(pop_store::Error::outcome) != Some(Outcome::InDoubt) {
                ticket.landed();
            }
            match outcome {
                Ok(()) => return Ok(self.handles.seal(&identity)),
                Err(error) if error.kind() == ErrorKind::Conflict => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(BrokerError::Busy("the delivery changed again and again"))
    }

    /// Makes deliveries that reached nobody ready again, without counting an attempt.
    pub(crate) async fn release(self: &Arc<Self>, identities: Vec<DeliveryIdentity>) {
        for identity in identities {
            match self.release_one(&identity).await {
                Ok(()) | Err(BrokerError::DeliveryOver) => {}
                // Its deadline brings it back all the same.
                Err(error) => {
                    tracing::warn!(queue = %identity.queue, offset = identity.offset.get(), %error, "a delivery that reached nobody could not be released")
                }
            }
        }
    }

    async fn release_one(self: &Arc<Self>, identity: &DeliveryIdentity) -> Result<(), BrokerError> {
        let group = self
            .catalog
            .group_by_id(identity.queue.group)
            .ok_or(BrokerError::DeliveryOver)?;
        let topic = self
            .catalog
            .topic_by_id(identity.queue.topic)
            .ok_or(BrokerError::DeliveryOver)?;
        let consumption = self.consumptions.get(&group, &topic).await?;
        let (row, checkpoint) = self.lease(identity).await?;
        let mut batch = WriteBatch::new();
        lease::remove(&mut batch, row, &checkpoint);
        let arrival = RetryArrival::new(&consumption);
        let entry = RetryEntry {
            source: identity.queue.log_queue(),
            offset: identity.offset,
            epoch: identity.epoch,
            delivery_attempt: checkpoint.delivery_attempt,
            generation: identity.generation.next(),
            first_popped_at: checkpoint.first_popped_at,
            message_group_hash: checkpoint.message_group_hash,
        };
        let key = RetryKey {
            group: group.id,
            topic: topic.record().id,
            sequence: arrival.sequence(),
        };
        retry::put(&mut batch, key, &entry);
        match self
            .store
            .write(batch, pop_store::Durability::Buffered)
            .await
        {
            Ok(()) => arrival.arrived(),
            Err(error) => {
                arrival.unsettled(error.outcome());
                return Err(error.into());
            }
        }
        Ok(())
    }

    /// The delivery that a handle names, if it is one of this group and topic.
    fn delivery(
        &self,
        group: &GroupName,
        topic: &TopicName,
        handle: &str,
    ) -> Result<DeliveryIdentity, BrokerError> {
        let identity = self.handles.open(handle)?;
        let group = self
            .catalog
            .group(group)
            .ok_or_else(|| BrokerError::GroupNotFound(group.clone()))?;
        let topic = self
            .catalog
            .topic(topic)
            .ok_or_else(|| BrokerError::TopicNotFound(topic.clone()))?;
        if identity.queue.group == group.id && identity.queue.topic == topic.record().id {
            Ok(identity)
        } else {
            Err(BrokerError::HandleOfAnother)
        }
    }

    /// The lease row of exactly this delivery.
    async fn lease(&self, identity: &DeliveryIdentity) -> Result<(Bytes, Checkpoint), BrokerError> {
        let row = self.store.get(LEASE, &identity.lease_key()).await?;
        let row = row.ok_or(BrokerError::DeliveryOver)?;
        match Checkpoint::decode(row.clone()) {
            Ok(checkpoint) if checkpoint.identity == *identity => Ok((row, checkpoint)),
            // Another delivery of the same message.
            Ok(_) => Err(BrokerError::DeliveryOver),
            Err(error) => {
                let detail = format!(
                    "lease row of {}, offset {}: {error}",
                    identity.queue, identity.offset
                );
                Err(
                    pop_store::Error::new(ErrorKind::Corrupt, self.store.name(), "decode")
                        .with_detail(detail)
                        .into(),
                )
            }
        }
    }
}
