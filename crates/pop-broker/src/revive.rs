//! What becomes of a delivery whose time is up: another one, or the dead-letter topic.

use std::sync::{Arc, Weak};

use async_trait::async_trait;
use pop_model::{
    Checkpoint, DeadLetterOrigin, GroupRecord, Message, RetryEntry, RetryKey, TopicId,
};
use pop_revive::{RetrySink, Revival, RevivalKind, SinkError};
use pop_store::{
    Durable, Outcome, WriteBatch,
    table::{MessageLog, PendingAppend, retry},
};

use crate::{catalog::Topic, consumption::Consumption, core::Core};

/// A retry entry that is being written. Dropped, it never was.
#[derive(Debug)]
pub(crate) struct RetryArrival {
    consumption: Arc<Consumption>,
    sequence: u64,
    resolved: bool,
}

impl RetryArrival {
    pub(crate) fn new(consumption: &Arc<Consumption>) -> Self {
        Self {
            consumption: Arc::clone(consumption),
            sequence: consumption.retry.lock().arrive(),
            resolved: false,
        }
    }

    pub(crate) fn sequence(&self) -> u64 {
        self.sequence
    }

    /// It is committed: a waiting receive may have it.
    pub(crate) fn arrived(mut self) {
        self.resolved = true;
        self.consumption.retry.lock().arrived(self.sequence);
        self.consumption.ready.notify_one();
    }

    /// It is not, or nobody knows: then it stays set aside until the store was opened anew.
    pub(crate) fn unsettled(mut self, outcome: Outcome) {
        self.resolved = outcome == Outcome::InDoubt;
    }
}

impl Drop for RetryArrival {
    fn drop(&mut self) {
        if !self.resolved {
            self.consumption.retry.lock().withdrawn(self.sequence);
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
    // Weak: the core owns the loop that owns this.
    core: Weak<Core>,
}

impl Redelivery {
    pub(crate) fn new(core: &Arc<Core>) -> Self {
        Self {
            core: Arc::downgrade(core),
        }
    }
}

#[async_trait]
impl RetrySink for Redelivery {
    type Token = Set;

    async fn revive(&self, due: &Checkpoint) -> Result<Revival<Set>, SinkError> {
        let core = self.core.upgrade().ok_or("the broker is closed")?;
        let queue = due.identity.queue;
        let group = core.catalog.group_by_id(queue.group);
        let topic = core.catalog.topic_by_id(queue.topic);
        let (Some(group), Some(topic)) = (group, topic) else {
            return Ok(gone(due, "its group or topic is deleted"));
        };
        let attempts = if due.suspend {
            due.delivery_attempt.saturating_sub(1)
        } else {
            due.delivery_attempt
        };
        if attempts >= group.policy.delivery_attempts_max() {
            return core.dead_letter(due, &group, &topic).await;
        }
        let mut found = core
            .log
            .read(queue.log_queue(), &[due.identity.offset])
            .await?
            .into_iter();
        if found.next().is_none() {
            return Ok(gone(due, "its message is no longer in the log"));
        }
        let consumption = core.consumptions.get(&group, &topic).await?;
        let arrival = RetryArrival::new(&consumption);
        let entry = RetryEntry {
            source: queue.log_queue(),
            offset: due.identity.offset,
            epoch: due.identity.epoch,
            delivery_attempt: attempts.saturating_add(1),
            generation: due.identity.generation.next(),
            first_popped_at: due.first_popped_at,
            message_group_hash: due.message_group_hash,
        };
        let key = RetryKey {
            group: group.id,
            topic: topic.record().id,
            sequence: arrival.sequence(),
        };
        let mut writes = WriteBatch::new();
        retry::put(&mut writes, key, &entry);
        Ok(Revival {
            kind: RevivalKind::Retried,
            writes,
            token: Set::Retry(arrival),
        })
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
                    "a message used up its attempts and is in the dead-letter topic"
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
}

impl Core {
    /// A copy of the message for the group's dead-letter topic: it has a life and a
    /// retention of its own.
    async fn dead_letter(
        &self,
        due: &Checkpoint,
        group: &GroupRecord,
        topic: &Topic,
    ) -> Result<Revival<Set>, SinkError> {
        let queue = due.identity.queue.log_queue();
        let found = self
            .log
            .read(queue, &[due.identity.offset])
            .await?
            .into_iter()
            .next();
        let Some(found) = found else {
            return Ok(gone(due, "its message is no longer in the log"));
        };
        let message = found.message?;
        let body = self.log.body(&message).await?;
        let dead_letters = self.catalog.dead_letter_topic(&group.name).await?;
        let target = dead_letters
            .queues()
            .next()
            .ok_or("the dead-letter topic has no queue")?;
        let staged = self.log.stage_body(body).await?;
        let mut writes = WriteBatch::new();
        staged.adopt(&mut writes);
        let letter = Message {
            origin: Some(DeadLetterOrigin {
                topic: topic.record().name.to_string(),
                message_id: message.message_id.clone(),
                reason: format!(
                    "delivered {} times without an acknowledgement",
                    due.delivery_attempt
                ),
                delivery_attempts: due.delivery_attempt,
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

fn gone(due: &Checkpoint, why: &'static str) -> Revival<Set> {
    tracing::warn!(queue = %due.identity.queue, offset = due.identity.offset.get(), why, "an expired delivery is dropped");
    Revival {
        kind: RevivalKind::Gone,
        writes: WriteBatch::new(),
        token: Set::Nothing,
    }
}
