//! A sink that does what a test wrote down.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use parking_lot::Mutex;
use pop_cache::{RetrySink, Revival, RevivalKind, SinkError};
use pop_model::{Checkpoint, SubscriptionQueue};
use pop_store::{Durable, Outcome, WriteBatch, table::META};
use tokio::sync::Notify;

/// What the sink does about an offset.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Answer {
    Gone,
    /// With a row that says so.
    Retry,
    Again,
    Fail,
    PanicAtOnce,
    PanicLater,
    Hang,
    Slow(Duration),
    /// Appended to a log of its own, which takes as long; nothing is left to write.
    Append(Duration),
    /// With a condition that never holds.
    Impossible,
    /// With as many rows of its own.
    Rows(usize),
}

/// What the sink was told, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    Asked(u64),
    Settled(u64),
    Unsettled(u64, Outcome),
    Quarantined(u64),
}

#[derive(Debug, Default)]
pub(crate) struct Sink {
    pub(crate) answers: Mutex<BTreeMap<u64, Answer>>,
    /// It decides at once what it need not wait for.
    pub(crate) at_once: AtomicBool,
    pub(crate) told: Mutex<Vec<Told>>,
    /// The log of its own: durable at once, whatever becomes of the store.
    pub(crate) own_log: Arc<Mutex<Vec<u64>>>,
    pub(crate) ready: Mutex<BTreeSet<SubscriptionQueue>>,
    pub(crate) woken: Notify,
}

impl Sink {
    /// The sink of the next run, which finds its own log as it is.
    pub(crate) fn reopened(&self) -> Self {
        Self {
            own_log: Arc::clone(&self.own_log),
            ..Self::default()
        }
    }

    /// The offsets that were appended to its own log, in order.
    pub(crate) fn appended(&self) -> Vec<u64> {
        self.own_log.lock().clone()
    }

    pub(crate) fn answer(&self, offset: u64, answer: Answer) {
        self.answers.lock().insert(offset, answer);
    }

    fn answer_to(&self, offset: u64) -> Answer {
        let answer = self.answers.lock().get(&offset).copied();
        answer.unwrap_or(Answer::Gone)
    }

    /// What needs no waiting. Where `answer` waited, its delivery is gone after that.
    fn decide(&self, due: &Checkpoint, answer: Answer) -> Result<Revival<()>, SinkError> {
        let offset = due.identity.offset.get();
        self.told.lock().push(Told::Asked(offset));
        let mut writes = WriteBatch::new();
        let kind = match answer {
            Answer::Gone | Answer::PanicLater | Answer::Hang | Answer::Slow(_) => RevivalKind::Gone,
            Answer::Retry => {
                writes.put(META, retry_row(offset), "".into());
                RevivalKind::Retried
            }
            Answer::Append(_) => {
                self.own_log.lock().push(offset);
                RevivalKind::Retried
            }
            Answer::Again => RevivalKind::Again(due.delivery_attempt + 1),
            Answer::Fail => return Err("the log is on fire".into()),
            Answer::PanicAtOnce => panic!("at once"),
            Answer::Impossible => {
                writes.require(META, "nothing".into(), "something".into());
                RevivalKind::Retried
            }
            Answer::Rows(count) => {
                for number in 0..count {
                    writes.put(META, format!("{offset} {number}").into(), "".into());
                }
                RevivalKind::Retried
            }
        };
        Ok(Revival {
            kind,
            writes,
            token: (),
        })
    }

    pub(crate) fn asked(&self, offset: u64) -> usize {
        let told = self.told.lock();
        told.iter().filter(|it| **it == Told::Asked(offset)).count()
    }

    pub(crate) fn was_told(&self, told: Told) -> bool {
        self.told.lock().contains(&told)
    }

    pub(crate) fn take_ready(&self) -> BTreeSet<SubscriptionQueue> {
        std::mem::take(&mut *self.ready.lock())
    }
}

/// The row that a retry writes.
pub(crate) fn retry_row(offset: u64) -> bytes::Bytes {
    format!("retry {offset}").into()
}

#[async_trait]
impl RetrySink for Sink {
    type Token = ();

    async fn revive(&self, due: &Checkpoint) -> Result<Revival<()>, SinkError> {
        let answer = self.answer_to(due.identity.offset.get());
        if let Answer::Append(takes) = answer {
            tokio::time::sleep(takes).await;
        }
        let decided = self.decide(due, answer);
        match answer {
            Answer::PanicLater => {
                tokio::task::yield_now().await;
                panic!("later");
            }
            Answer::Hang => std::future::pending().await,
            Answer::Slow(duration) => tokio::time::sleep(duration).await,
            _ => {}
        }
        decided
    }

    fn revive_now(&self, due: &Checkpoint) -> Option<Result<Revival<()>, SinkError>> {
        let answer = self.answer_to(due.identity.offset.get());
        let waits = match answer {
            Answer::PanicLater | Answer::Hang | Answer::Slow(_) => true,
            Answer::Append(takes) => takes > Duration::ZERO,
            _ => false,
        };
        let decides = self.at_once.load(Ordering::Relaxed) && !waits;
        decides.then(|| self.decide(due, answer))
    }

    /// Where another delivery would be written, the dead letter is.
    async fn dead_letter(&self, due: &Checkpoint) -> Result<Revival<()>, SinkError> {
        let mut revival = self.revive(due).await?;
        if revival.kind == RevivalKind::Retried {
            revival.kind = RevivalKind::DeadLettered;
        }
        Ok(revival)
    }

    fn settled(&self, due: &Checkpoint, _token: Durable<()>) {
        let offset = due.identity.offset.get();
        self.told.lock().push(Told::Settled(offset));
    }

    fn unsettled(&self, due: &Checkpoint, _token: (), outcome: Outcome) {
        let offset = due.identity.offset.get();
        self.told.lock().push(Told::Unsettled(offset, outcome));
    }

    fn ready(&self, queue: SubscriptionQueue) {
        self.ready.lock().insert(queue);
        self.woken.notify_one();
    }

    fn quarantined(&self, due: &Checkpoint) {
        let offset = due.identity.offset.get();
        self.told.lock().push(Told::Quarantined(offset));
    }
}
