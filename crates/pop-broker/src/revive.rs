//! What becomes of a delivery whose time is up: another one, or the dead-letter topic.

use std::sync::{Arc, Weak};

use async_trait::async_trait;
use pop_cache::{RetrySink, Revival, RevivalKind, SinkError};
use pop_model::{
    Checkpoint, DeadLetterOrigin, DeliveryIdentity, GroupRecord, LeaseTime, LogQueue, Message,
    Mutant, Offset, RetryEntry, RetryKey, StoredKey, StoredValue, SubscriptionEpoch,
    SubscriptionQueue, TopicId,
};
use pop_store::{
    Durable, Outcome, WriteBatch,
    table::{MessageLog, PendingAppend, RETRY, retry},
};

use crate::{BrokerError, catalog::Topic, consumption::Consumption, core::Core};

/// A retry entry that is being written. Dropped, it never was.
#[derive(Debug)]
pub(crate) struct RetryArrival {
    consumption: Arc<Consumption>,
    sequence: Offset,
    is_in_doubt: bool,
}

impl RetryArrival {
    pub(crate) fn new(consumption: &Arc<Consumption>) -> Self {
        Self {
            consumption: Arc::clone(consumption),
            sequence: consumption.retry.lock().arrive(),
            is_in_doubt: false,
        }
    }

    /// The key of the entry.
    pub(crate) fn key(&self) -> RetryKey {
        self.consumption.retry_key(self.sequence)
    }

    /// It is committed: a waiting receive may have it.
    pub(crate) fn arrived(self) {
        let consumption = Arc::clone(&self.consumption);
        drop(self);
        consumption.wake();
    }

    /// It is not, or nobody knows: then readers stop below it until the store was opened
    /// anew.
    pub(crate) fn unsettled(mut self, outcome: Outcome) {
        self.is_in_doubt = outcome == Outcome::InDoubt;
    }
}

impl Drop for RetryArrival {
    fn drop(&mut self) {
        if !self.is_in_doubt {
            self.consumption.retry.lock().resolve(self.sequence);
        }
    }
}

/// What a decision sets aside until it is committed.
#[derive(Debug)]
pub(crate) enum Set {
    Nothing,
    Retry(RetryArrival),
    DeadLetter(PendingAppend, TopicId),
}

/// The broker's answer to expired deliveries.
#[derive(Debug)]
pub(crate) struct Redelivery {
    // Weak: the core owns the loops that own this.
    core: Weak<Core>,
}

impl Redelivery {
    pub(crate) fn new(core: Weak<Core>) -> Self {
        Self { core }
    }

    fn consumption(&self, queue: SubscriptionQueue) -> Option<Arc<Consumption>> {
        self.core.upgrade()?.consumptions.of(queue)
    }
}

/// A due delivery, with what its retry entry says of it if it is one.
struct Due<'a> {
    checkpoint: &'a Checkpoint,
    source: LogQueue,
    offset: Offset,
    epoch: SubscriptionEpoch,
    first_popped_at: LeaseTime,
    /// Writes that end the entry it came from.
    ends: WriteBatch,
}

/// A due delivery, and whose it is.
struct Located<'a> {
    found: Due<'a>,
    group: Arc<GroupRecord>,
    topic: Arc<Topic>,
    consumption: Arc<Consumption>,
}

impl<'a> Due<'a> {
    /// A delivery of the message's own queue.
    fn of(checkpoint: &'a Checkpoint) -> Self {
        let identity = checkpoint.identity;
        Self {
            checkpoint,
            source: identity.queue.log_queue(),
            offset: identity.offset,
            epoch: identity.epoch,
            first_popped_at: checkpoint.first_popped_at,
            ends: WriteBatch::new(),
        }
    }
}

#[async_trait]
impl RetrySink for Redelivery {
    type Token = Set;

    async fn revive(&self, due: &Checkpoint) -> Result<Revival<Set>, SinkError> {
        let core = self.core.upgrade().ok_or("the broker is closed")?;
        core.revive(due).await
    }

    async fn dead_letter(&self, due: &Checkpoint) -> Result<Revival<Set>, SinkError> {
        let core = self.core.upgrade().ok_or("the broker is closed")?;
        core.given_up(due).await.map_err(bare)
    }

    fn revive_now(&self, due: &Checkpoint) -> Option<Result<Revival<Set>, SinkError>> {
        self.core.upgrade()?.revive_now(due).map(Ok)
    }

    fn settled(&self, due: &Checkpoint, token: Durable<Set>) {
        let core = self.core.upgrade();
        let counters = core.as_ref().map(|core| &core.options.counters);
        match token.into_work() {
            Set::Nothing => {}
            Set::Retry(arrival) => {
                counters.inspect(|counters| counters.revived.add(1));
                arrival.arrived();
            }
            Set::DeadLetter(append, topic) => {
                counters.inspect(|counters| counters.dead_lettered.add(1));
                let offset = append.committed();
                tracing::warn!(
                    queue = %due.identity.queue,
                    offset = due.identity.offset.get(),
                    attempts = due.delivery_attempt,
                    dead_letter_offset = offset.get(),
                    "a message is in the dead-letter topic"
                );
                if let Some(core) = &core {
                    core.consumptions.wake(topic);
                }
            }
        }
    }

    fn unsettled(&self, _due: &Checkpoint, token: Set, outcome: Outcome) {
        match token {
            Set::Nothing => {}
            Set::Retry(arrival) => arrival.unsettled(outcome),
            Set::DeadLetter(append, _) => append.unsettled(outcome),
        }
    }

    fn ready(&self, queue: SubscriptionQueue) {
        if let Some(consumption) = self.consumption(queue) {
            consumption.wake();
        }
    }

    fn quarantined(&self, _due: &Checkpoint) {
        if let Some(core) = self.core.upgrade() {
            core.options.counters.quarantined.add(1);
        }
    }

    fn stored(&self, _stored: &DeliveryIdentity) {
        if let Some(core) = self.core.upgrade() {
            core.options.counters.stored.add(1);
        }
    }

    fn stored_ended(&self, ended: &DeliveryIdentity) {
        if let Some(core) = self.core.upgrade() {
            core.cache.stored_ended(ended);
        }
    }
}

impl Core {
    /// What is decided without a read and without a log line: a delivery in a queue that is
    /// in memory, of a message that is there and has attempts left.
    fn revive_now(&self, due: &Checkpoint) -> Option<Revival<Set>> {
        let queue = due.identity.queue;
        if queue.is_retry() {
            return None;
        }
        let group = self.catalog.group_by_id(queue.group)?;
        self.catalog.topic_by_id(queue.topic)?;
        let consumption = self.consumptions.of(queue)?;
        let epoch = self.cache.loaded(queue)?.look(pop_cache::LeaseQueue::epoch);
        let start = self.log.open_bounds(queue.log_queue())?.start;
        let is_plain = epoch == due.identity.epoch
            && self.attempts(due) < attempts_max(&group)
            && due.identity.offset >= start;
        is_plain.then(|| self.again(&consumption, &group, Due::of(due)))
    }

    async fn revive(self: &Arc<Self>, due: &Checkpoint) -> Result<Revival<Set>, SinkError> {
        let Located {
            found,
            group,
            topic,
            consumption,
        } = match self.locate(due).await? {
            Ok(located) => located,
            Err(gone) => return Ok(gone),
        };
        if self.attempts(due) >= attempts_max(&group) {
            let deliveries = due.delivery_attempt;
            let reason = format!("delivered {deliveries} times without an acknowledgement");
            return self.dead_letter(found, &group, &topic, reason).await;
        }
        if !self.is_in_log(found.source, found.offset).await? {
            return Ok(gone(due, "its message is no longer in the log", found.ends));
        }
        Ok(self.again(&consumption, &group, found))
    }

    /// How many attempts are used up with a delivery.
    fn attempts(&self, due: &Checkpoint) -> u32 {
        let is_uncounted = due.suspend || self.releases.contains(&due.identity);
        due.delivery_attempt.saturating_sub(u32::from(is_uncounted))
    }

    /// Another delivery: where it lies in a group that consumes in order, as an entry of the
    /// retry queue else.
    fn again(
        &self,
        consumption: &Arc<Consumption>,
        group: &GroupRecord,
        due: Due<'_>,
    ) -> Revival<Set> {
        let attempt = self.attempts(due.checkpoint).saturating_add(1);
        if group.fifo {
            return Revival {
                kind: RevivalKind::Again(attempt),
                writes: WriteBatch::new(),
                token: Set::Nothing,
            };
        }
        let arrival = RetryArrival::new(consumption);
        let entry = RetryEntry {
            source: due.source,
            offset: due.offset,
            epoch: due.epoch,
            delivery_attempt: attempt,
            first_popped_at: due.first_popped_at,
        };
        let mut writes = due.ends;
        retry::put(&mut writes, arrival.key(), &entry);
        Revival {
            kind: RevivalKind::Retried,
            writes,
            token: Set::Retry(arrival),
        }
    }

    /// What becomes of a delivery that its consumer gave up.
    async fn given_up(self: &Arc<Self>, due: &Checkpoint) -> Result<Revival<Set>, SinkError> {
        let located = match self.locate(due).await? {
            Ok(located) => located,
            Err(gone) => return Ok(gone),
        };
        let deliveries = due.delivery_attempt;
        let reason = format!("given up by its consumer at delivery {deliveries}");
        let Located {
            found,
            group,
            topic,
            ..
        } = located;
        self.dead_letter(found, &group, &topic, reason).await
    }

    /// Where a due delivery belongs; or how it ends, if that is no more.
    async fn locate<'a>(
        self: &Arc<Self>,
        due: &'a Checkpoint,
    ) -> Result<Result<Located<'a>, Revival<Set>>, SinkError> {
        let queue = due.identity.queue;
        let group = self.catalog.group_by_id(queue.group);
        let topic = self.catalog.topic_by_id(queue.topic);
        let (Some(group), Some(topic)) = (group, topic) else {
            let why = "its group or topic is deleted";
            return Ok(Err(gone(due, why, WriteBatch::new())));
        };
        let consumption = self.consumptions.get(&group, &topic).await?;
        let Some(found) = self.found(&consumption, due).await? else {
            return Ok(Err(gone(due, "its retry entry is gone", WriteBatch::new())));
        };
        let source = consumption.queue(found.source.queue);
        let epoch = self
            .cached(&consumption, source)
            .await?
            .look(pop_cache::LeaseQueue::epoch);
        if epoch != found.epoch && !Mutant::ResetKeepsTheEpoch.is_on() {
            return Ok(Err(gone(due, "its queue was reset", found.ends)));
        }
        Ok(Ok(Located {
            found,
            group,
            topic,
            consumption,
        }))
    }

    /// Whether a message that was delivered is there still. Only retention takes one away,
    /// so what lies above the start of its log needs no look: a storm of expired leases
    /// reads nothing.
    async fn is_in_log(&self, queue: LogQueue, offset: Offset) -> Result<bool, SinkError> {
        if offset >= self.log.bounds(queue).await?.start {
            return Ok(true);
        }
        Ok(self.log.referenced(queue, offset).await?.is_some())
    }

    /// Where the message of a due delivery lies: a delivery of the retry queue says so in
    /// its entry, which ends with it.
    async fn found<'a>(
        &self,
        consumption: &Consumption,
        due: &'a Checkpoint,
    ) -> Result<Option<Due<'a>>, SinkError> {
        let identity = due.identity;
        if !identity.queue.is_retry() {
            return Ok(Some(Due::of(due)));
        }
        let key = consumption.retry_key(identity.offset);
        let Some(row) = self.store.get(RETRY, &key.encode()).await? else {
            return Ok(None);
        };
        let entry = RetryEntry::decode(row)?;
        let mut ends = WriteBatch::new();
        ends.delete(RETRY, key.encode());
        Ok(Some(Due {
            checkpoint: due,
            source: entry.source,
            offset: entry.offset,
            epoch: entry.epoch,
            first_popped_at: entry.first_popped_at,
            ends,
        }))
    }

    /// A copy of the message for the group's dead-letter topic: it has a life and a
    /// retention of its own.
    async fn dead_letter(
        &self,
        due: Due<'_>,
        group: &GroupRecord,
        topic: &Topic,
        reason: String,
    ) -> Result<Revival<Set>, SinkError> {
        let attempts = due.checkpoint.delivery_attempt;
        let found = self.log.referenced(due.source, due.offset).await?;
        let Some(found) = found else {
            let why = "its message is no longer in the log";
            return Ok(gone(due.checkpoint, why, due.ends));
        };
        let message = found.message?;
        let body = self.log.body(&message).await?;
        let dead_letters = self.catalog.dead_letter_topic(group).await?;
        let target = dead_letters
            .queues()
            .next()
            .ok_or("the dead-letter topic has no queue")?;
        let staged = self.log.stage_body(body).await?;
        let mut writes = due.ends;
        staged.adopt(&mut writes);
        let letter = Message {
            origin: Some(DeadLetterOrigin {
                topic: topic.record().name.to_string(),
                message_id: message.message_id.clone(),
                reason,
                delivery_attempts: attempts,
            }),
            stored_at: self.clock.wall(),
            body: staged.body,
            ..message
        };
        let append = self.log.begin_append(target).await?;
        append.put(&mut writes, &letter);
        Ok(Revival {
            kind: RevivalKind::DeadLettered,
            writes,
            token: Set::DeadLetter(append, target.topic),
        })
    }
}

/// The store's own error, where that is what failed: the cache knows it by its type.
fn bare(error: SinkError) -> SinkError {
    match error.downcast::<BrokerError>() {
        Ok(error) => match *error {
            BrokerError::Store(error) => error.into(),
            other => other.into(),
        },
        Err(other) => other,
    }
}

fn attempts_max(group: &GroupRecord) -> u32 {
    group.policy.delivery_attempts_max() + u32::from(Mutant::OneAttemptTooMany.is_on())
}

fn gone(due: &Checkpoint, why: &'static str, writes: WriteBatch) -> Revival<Set> {
    tracing::warn!(queue = %due.identity.queue, offset = due.identity.offset.get(), why, "an expired delivery is dropped");
    Revival {
        kind: RevivalKind::Gone,
        writes,
        token: Set::Nothing,
    }
}
