//! Where a delivery goes when its time is up: the one trait that is called upward.

use std::{
    any::Any,
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    time::Duration,
};

use async_trait::async_trait;
use futures::FutureExt;
use pop_model::{Checkpoint, DeliveryIdentity, SubscriptionQueue};
use pop_store::{Durable, Outcome, WriteBatch};

/// Why a delivery could not be revived this time; it is tried again with back-off.
pub type SinkError = Box<dyn std::error::Error + Send + Sync>;

/// What becomes of a due delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RevivalKind {
    /// It is ready again elsewhere, with one delivery attempt more.
    Retried,
    /// It is ready again where it lies, for this attempt: only in an ordered queue.
    Again(u32),
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
    /// Written in one batch with the end of the delivery, so that no crash falls between
    /// the two. Empty where the decision was carried out in a log of its own: then a crash
    /// may repeat it, and never loses it.
    pub writes: WriteBatch,
    /// What the sink set aside in memory until the batch is settled.
    pub token: T,
}

/// Decides about due deliveries.
#[async_trait]
pub trait RetrySink: fmt::Debug + Send + Sync + 'static {
    /// What a decision sets aside in memory until its writes are settled.
    ///
    /// Dropping it must give back whatever it holds: a time limit may drop a decision
    /// that nothing was written for.
    type Token: fmt::Debug + Send + 'static;

    /// Decides what becomes of `due` and which writes make it so.
    ///
    /// # Contract
    ///
    /// - Nothing is written here that changes what the delivery is, only prepared: the
    ///   caller commits [`Revival::writes`] together with the end of the delivery.
    /// - An error, a panic and a hang are all failures of this one delivery: it is stored
    ///   and tried again with back-off.
    async fn revive(&self, due: &Checkpoint) -> Result<Revival<Self::Token>, SinkError>;

    /// Decides about a delivery that its consumer gave up: its message goes to the dead
    /// letters, whatever attempts are left. The contract is that of [`revive`](Self::revive).
    ///
    /// A sink without dead letters refuses, and the delivery goes on. An error of the store
    /// it passes on as a [`pop_store::Error`], so that whoever asked learns of a full disk.
    async fn dead_letter(&self, due: &Checkpoint) -> Result<Revival<Self::Token>, SinkError> {
        let _ = due;
        Err("there are no dead letters here".into())
    }

    /// Decides about `due` at once, where nothing has to be waited for. `None` leaves it to
    /// [`revive`](Self::revive).
    ///
    /// # Contract
    ///
    /// - What it decides is what `revive` would, and an error or a panic is a failure of
    ///   this one delivery.
    /// - It never blocks: no limit of time is above it. That is what makes it cheap, where
    ///   a million leases expire at once.
    fn revive_now(&self, due: &Checkpoint) -> Option<Result<Revival<Self::Token>, SinkError>> {
        let _ = due;
        None
    }

    /// The batch is committed: memory may follow, and waiting consumers be woken.
    fn settled(&self, due: &Checkpoint, token: Durable<Self::Token>);

    /// The batch was not committed, or nobody knows. After [`Outcome::InDoubt`] what the
    /// token holds must stay set aside until the store was reopened.
    fn unsettled(&self, due: &Checkpoint, token: Self::Token, outcome: Outcome);

    /// Something of this queue may be handed out that could not be before.
    fn ready(&self, queue: SubscriptionQueue) {
        let _ = queue;
    }

    /// A delivery whose revive failed too often is in quarantine.
    fn quarantined(&self, due: &Checkpoint) {
        let _ = due;
    }

    /// A delivery is in the store: whatever becomes of this process, it ends as its row says.
    fn stored(&self, stored: &DeliveryIdentity) {
        let _ = stored;
    }

    /// A stored delivery is over, and its row gone.
    fn stored_ended(&self, ended: &DeliveryIdentity) {
        let _ = ended;
    }
}

/// Every way in which a decision can fail, folded into one type at one place.
#[derive(Debug)]
pub enum Failure {
    /// It said so.
    Error(SinkError),
    /// It panicked, in the call or in its future.
    Panicked(String),
    /// It did not answer in time. Its future is dropped: nothing can come of it later.
    TimedOut(Duration),
}

impl Failure {
    fn panicked(panic: &(dyn Any + Send)) -> Self {
        let text = panic.downcast_ref::<&str>().map(ToString::to_string);
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
        Self::Panicked(text.unwrap_or_else(|| "without a message".into()))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Error(error) => write!(f, "{error}"),
            Self::Panicked(message) => write!(f, "it panicked: {message}"),
            Self::TimedOut(limit) => write!(f, "no answer within {limit:?}"),
        }
    }
}

/// What became of asking a sink about one delivery.
pub type Decision<T> = Result<Revival<T>, Failure>;

/// Asks a sink, and makes one outcome of everything that can go wrong.
///
/// # Errors
///
/// How it failed. A second or a late answer can't be: the future is owned here.
pub async fn decide<K: RetrySink>(
    sink: &K,
    due: &Checkpoint,
    limit: Duration,
) -> Decision<K::Token> {
    match decide_now(sink, due) {
        Some(decision) => decision,
        None => decide_later(sink, due, limit).await,
    }
}

/// What a sink decides at once, if it does.
pub(crate) fn decide_now<K: RetrySink>(sink: &K, due: &Checkpoint) -> Option<Decision<K::Token>> {
    match catch_unwind(AssertUnwindSafe(|| sink.revive_now(due))) {
        Ok(decided) => decided.map(|it| it.map_err(Failure::Error)),
        Err(panic) => Some(Err(Failure::panicked(panic.as_ref()))),
    }
}

/// What a sink decides that did not do so at once.
pub(crate) async fn decide_later<K: RetrySink>(
    sink: &K,
    due: &Checkpoint,
    limit: Duration,
) -> Decision<K::Token> {
    // The call itself is inside the future, so that what it throws is an outcome, too.
    outcome_of(async { sink.revive(due).await }, limit).await
}

/// One outcome of everything that can go wrong in a call of a sink.
pub(crate) async fn outcome_of<T>(
    call: impl Future<Output = Result<T, SinkError>>,
    limit: Duration,
) -> Result<T, Failure> {
    match tokio::time::timeout(limit, AssertUnwindSafe(call).catch_unwind()).await {
        Ok(Ok(decided)) => decided.map_err(Failure::Error),
        Ok(Err(panic)) => Err(Failure::panicked(panic.as_ref())),
        Err(_) => Err(Failure::TimedOut(limit)),
    }
}
