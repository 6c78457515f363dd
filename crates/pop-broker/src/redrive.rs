//! Putting quarantined records back to work, or giving them up for good.
//!
//! A record leaves quarantine in one batch with what it becomes, and stays where that
//! can't be: the answer then says why.

use std::sync::Arc;

use pop_model::{
    Checkpoint, GroupRecord, LeaseKey, LogKey, LogQueue, Message, Offset, QuarantineRecord,
    RetryEntry, RetryKey, StoredKey, StoredValue, SubscriptionQueue,
};
use pop_store::{
    Durability, ErrorKind, StoreExt, WriteBatch,
    table::{
        DueTicket, LEASE, LOG, MessageLog, RETRY, lease, quarantine, retry,
        tombstone::{require_group, require_topic},
    },
};

use crate::{
    Broker, BrokerError, Topic, consumption::Consumption, core::Core, revive::RetryArrival,
};

/// Why a record stays in quarantine, or the end of the whole attempt.
enum Refusal {
    Stays(String),
    Failed(BrokerError),
}

impl<E: Into<BrokerError>> From<E> for Refusal {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

fn stays(reason: impl ToString) -> Refusal {
    Refusal::Stays(reason.to_string())
}

/// A record and its row, by the place.
struct Put {
    place: u64,
    row: bytes::Bytes,
    record: QuarantineRecord,
}

impl Broker {
    /// Puts a quarantined record back to where it came from, if it can be worked on now: a
    /// lease is looked at again at once, a retry entry and a message are ready for another
    /// delivery to the group that met them. Durable when it returns.
    ///
    /// # Errors
    ///
    /// [`BrokerError::QuarantineNotFound`]; [`BrokerError::NotRedriven`] says why the record
    /// stays; or the store's.
    pub async fn redrive(&self, place: u64) -> Result<(), BrokerError> {
        self.run(move |core| async move {
            let put = core.put_away_at(place).await?;
            let keyspace = put.record.keyspace.clone();
            let outcome = match keyspace.as_str() {
                it if it == LEASE.name() => core.redrive_lease(&put).await,
                it if it == RETRY.name() => core.redrive_entry(&put).await,
                it if it == LOG.name() => core.redrive_message(&put).await,
                _ => Err(stays("rows of this keyspace are only kept")),
            };
            match outcome {
                Ok(()) => {
                    core.options.counters.redriven.add(1);
                    tracing::info!(
                        place,
                        keyspace,
                        "a record left quarantine and is worked on again"
                    );
                    Ok(())
                }
                Err(Refusal::Stays(reason)) => Err(BrokerError::NotRedriven { place, reason }),
                Err(Refusal::Failed(error)) => Err(error),
            }
        })
        .await
    }

    /// Gives a quarantined record up for good, and returns it. Durable when it returns.
    ///
    /// # Errors
    ///
    /// [`BrokerError::QuarantineNotFound`], or the store's.
    pub async fn drop_quarantined(&self, place: u64) -> Result<QuarantineRecord, BrokerError> {
        self.run(move |core| async move {
            let put = core.put_away_at(place).await?;
            let mut batch = WriteBatch::new();
            quarantine::remove(&mut batch, place, put.row);
            if let Some(entry) = entry_of(&put.record) {
                // It was kept for the lease, and nobody else will end it.
                batch.delete(RETRY, entry.encode());
            }
            core.store.write(batch, Durability::Synced).await?;
            core.options.counters.quarantine_dropped.add(1);
            let record = put.record;
            tracing::warn!(place, keyspace = record.keyspace, key = %record.key.escape_ascii(), reason = record.reason, "an operator dropped a record from quarantine");
            Ok(record)
        })
        .await
    }
}

/// The retry entry that a quarantined lease is on.
fn entry_of(record: &QuarantineRecord) -> Option<RetryKey> {
    if record.keyspace != LEASE.name() {
        return None;
    }
    let key = LeaseKey::decode(record.key.clone()).ok()?;
    key.queue.is_retry().then_some(RetryKey {
        group: key.queue.group,
        topic: key.queue.topic,
        sequence: key.offset.get(),
    })
}

impl Core {
    async fn put_away_at(&self, place: u64) -> Result<Put, BrokerError> {
        let found = quarantine::get(self.store.as_ref(), place).await?;
        let (row, record) = found.ok_or(BrokerError::QuarantineNotFound(place))?;
        Ok(Put { place, row, record })
    }

    /// The group and topic of a record, if both are there.
    fn parties(&self, queue: SubscriptionQueue) -> Result<(Arc<GroupRecord>, Arc<Topic>), Refusal> {
        let gone = || stays("its group or topic is deleted: it can only be dropped");
        let group = self.catalog.group_by_id(queue.group).ok_or_else(gone)?;
        let topic = self.catalog.topic_by_id(queue.topic).ok_or_else(gone)?;
        Ok((group, topic))
    }

    /// The batch that takes a record out, on condition that its group and topic are there.
    fn taking(put: &Put, group: &GroupRecord, topic: &Topic) -> WriteBatch {
        let mut batch = WriteBatch::new();
        quarantine::remove(&mut batch, put.place, put.row.clone());
        require_group(&mut batch, group);
        require_topic(&mut batch, topic.record());
        batch
    }

    /// A lease comes back as a row that is due: whoever works off rows decides anew.
    async fn redrive_lease(&self, put: &Put) -> Result<(), Refusal> {
        let key = LeaseKey::decode(put.record.key.clone()).map_err(stays)?;
        let lease = Checkpoint::decode(put.record.value.clone()).map_err(stays)?;
        let (group, topic) = self.parties(key.queue)?;
        let consumption = self.consumptions.get(&group, &topic).await?;
        if key.queue.is_retry() {
            let entry = consumption.retry_key(key.offset).encode();
            if self.store.get(RETRY, &entry).await?.is_none() {
                return Err(stays("its retry entry is gone: it can only be dropped"));
            }
        } else {
            let epoch = self.epoch(&consumption, key.queue).await?;
            if epoch != lease.identity.epoch {
                return Err(stays(
                    "the offset was reset since, which made it void: it can only be dropped",
                ));
            }
            self.check_readable(key.queue.log_queue(), key.offset)
                .await?;
        }
        check_unordered(&group)?;
        let now = self.clock.lease();
        let ticket = self.schedule.announce(key.queue.shard(), now);
        let again = Checkpoint {
            visible_at: ticket.deadline(),
            revive_failures: 0,
            ..lease
        };
        let mut batch = Self::taking(put, &group, &topic);
        batch.require_absent(LEASE, again.lease_key());
        lease::store(&mut batch, &again);
        self.land(ticket, batch).await?;
        self.cache.stored_began(&again.identity);
        Ok(())
    }

    async fn land(&self, ticket: DueTicket, batch: WriteBatch) -> Result<(), Refusal> {
        match self.store.settle(ticket, batch, Durability::Synced).await {
            Ok(ticket) => {
                ticket.work().landed();
                Ok(())
            }
            Err(unsettled) => {
                // In doubt it stays announced until the store was opened anew.
                if unsettled.error.kind() != ErrorKind::InDoubt {
                    unsettled.work.landed();
                }
                Err(conflicted(unsettled.error))
            }
        }
    }

    /// A retry entry becomes the last one of its queue.
    async fn redrive_entry(&self, put: &Put) -> Result<(), Refusal> {
        let key = RetryKey::decode(put.record.key.clone()).map_err(stays)?;
        let entry = RetryEntry::decode(put.record.value.clone()).map_err(stays)?;
        let queue = SubscriptionQueue {
            group: key.group,
            topic: key.topic,
            queue: entry.source.queue,
        };
        let (group, topic) = self.parties(queue)?;
        let consumption = self.consumptions.get(&group, &topic).await?;
        if self.is_void(&consumption, &entry).await? {
            return Err(stays(
                "the offset was reset since, which made it void: it can only be dropped",
            ));
        }
        self.check_readable(entry.source, entry.offset).await?;
        let batch = Self::taking(put, &group, &topic);
        self.arrive(&consumption, batch, &entry).await
    }

    /// A message is ready for a first delivery to the group that could not read it.
    async fn redrive_message(&self, put: &Put) -> Result<(), Refusal> {
        let key = LogKey::decode(put.record.key.clone()).map_err(stays)?;
        let group = put.record.group;
        let group = group.ok_or_else(|| stays("it does not say for which group it is here"))?;
        let queue = SubscriptionQueue {
            group,
            topic: key.queue.topic,
            queue: key.queue.queue,
        };
        let (group, topic) = self.parties(queue)?;
        check_unordered(&group)?;
        let consumption = self.consumptions.get(&group, &topic).await?;
        self.check_readable(key.queue, key.offset).await?;
        let entry = RetryEntry {
            source: key.queue,
            offset: key.offset,
            epoch: self.epoch(&consumption, queue).await?,
            delivery_attempt: 1,
            first_popped_at: self.clock.lease(),
        };
        let batch = Self::taking(put, &group, &topic);
        self.arrive(&consumption, batch, &entry).await
    }

    async fn arrive(
        &self,
        consumption: &Arc<Consumption>,
        mut batch: WriteBatch,
        entry: &RetryEntry,
    ) -> Result<(), Refusal> {
        let arrival = RetryArrival::new(consumption);
        retry::put(&mut batch, arrival.key(), entry);
        match self.store.settle(arrival, batch, Durability::Synced).await {
            Ok(arrived) => {
                arrived.into_work().arrived();
                Ok(())
            }
            Err(unsettled) => {
                unsettled.work.unsettled(unsettled.error.outcome());
                Err(conflicted(unsettled.error))
            }
        }
    }

    async fn epoch(
        &self,
        consumption: &Consumption,
        queue: SubscriptionQueue,
    ) -> Result<pop_model::SubscriptionEpoch, BrokerError> {
        let cached = self.cached(consumption, queue).await?;
        Ok(cached.look(pop_cache::LeaseQueue::epoch))
    }

    /// Whether a message is there and whole: delivered as it is, it would be back at once.
    async fn check_readable(&self, queue: LogQueue, offset: Offset) -> Result<(), Refusal> {
        let found = self.log.referenced(queue, offset).await?;
        let found = found.ok_or_else(|| stays("its message has ended: it can only be dropped"))?;
        let message: Message = found.message.map_err(stays)?;
        match self.log.body(&message).await {
            Ok(_) => Ok(()),
            Err(error) if error.kind() == ErrorKind::Corrupt => Err(stays(error)),
            Err(error) => Err(error.into()),
        }
    }
}

/// A group that consumes in order has gone on; what comes later is out of order.
fn check_unordered(group: &GroupRecord) -> Result<(), Refusal> {
    if group.fifo {
        return Err(stays(
            "its group consumes in order and has passed it: it can only be dropped",
        ));
    }
    Ok(())
}

fn conflicted(error: pop_store::Error) -> Refusal {
    match error.kind() {
        ErrorKind::Conflict => stays("it changed meanwhile, or its message has another delivery"),
        _ => error.into(),
    }
}
