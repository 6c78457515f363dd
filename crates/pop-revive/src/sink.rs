//! Where a revived delivery goes: the one trait this crate calls upward.

use std::fmt::Debug;

use async_trait::async_trait;
use pop_model::Checkpoint;
use pop_store::{Durable, Outcome, WriteBatch};

/// Why a delivery could not be revived this time; it is tried again with back-off.
pub type SinkError = Box<dyn std::error::Error + Send + Sync>;

/// What becomes of a due delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RevivalKind {
    /// It is ready again, with one delivery attempt more.
    Retried,
    /// Its attempts are used up: it is in the dead-letter topic of its group.
    DeadLettered,
    /// Its message is no longer in the log, or its topic or group is gone.
    Gone,
}

/// A decision about a due delivery, with the writes that make it so.
#[derive(Debug)]
pub struct Revival<T> {
    /// What becomes of the delivery.
    pub kind: RevivalKind,
    /// Written in one batch with the removal of the checkpoint, so that no crash falls
    /// between the two.
    pub writes: WriteBatch,
    /// What the sink set aside in memory until the batch is settled.
    pub token: T,
}

/// Decides about due deliveries.
#[async_trait]
pub trait RetrySink: Send + Sync + 'static {
    /// What a decision sets aside in memory until its writes are settled.
    ///
    /// Dropping it must give back whatever it holds: a time limit may drop a decision
    /// that nothing was written for.
    type Token: Debug + Send + 'static;

    /// Decides what becomes of `due` and which writes make it so.
    ///
    /// # Contract
    ///
    /// - Nothing is written here that changes what the delivery is, only prepared: the
    ///   reviver commits [`Revival::writes`] together with the removal of the checkpoint.
    /// - An error, a panic and a hang are all failures of this one delivery: it stays
    ///   stored and is tried again with back-off.
    async fn revive(&self, due: &Checkpoint) -> Result<Revival<Self::Token>, SinkError>;

    /// The batch is committed: memory may follow, and waiting consumers be woken.
    fn settled(&self, due: &Checkpoint, token: Durable<Self::Token>);

    /// The batch was not committed, or nobody knows. After [`Outcome::InDoubt`] what the
    /// token holds must stay set aside until the store was reopened.
    fn unsettled(&self, due: &Checkpoint, token: Self::Token, outcome: Outcome);
}
