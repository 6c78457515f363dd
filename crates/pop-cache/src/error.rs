//! Why the cache could not do what it was asked.

use pop_model::{Offset, SubscriptionQueue};

/// An error of the cache.
#[derive(Debug, thiserror::Error)]
pub enum CacheError {
    /// The delivery is over, was handed out again, or was reset.
    #[error("the delivery is over: it was acknowledged, handed out again, or reset")]
    Over,
    /// As many deliveries are out as are allowed.
    #[error(
        "{queue}: {in_flight} deliveries are out, which is the most that is allowed; acknowledge some, or raise the limit"
    )]
    Full {
        /// Where.
        queue: SubscriptionQueue,
        /// How many.
        in_flight: u64,
    },
    /// The queue's state was given up while it was idle: look it up again.
    #[error("{0} is not in memory; look it up again")]
    Evicted(SubscriptionQueue),
    /// The queue's topic or group is deleted.
    #[error("{0} is deleted")]
    Closed(SubscriptionQueue),
    /// The outcome of the delivery was being written for too long.
    #[error("{0}: the outcome of the delivery is still being written; try again")]
    Busy(SubscriptionQueue),
    /// A delivery that its consumer gave up is not in the dead-letter topic.
    #[error(
        "{queue}, offset {offset}: it could not be moved to the dead-letter topic and goes on: {reason}"
    )]
    NotDeadLettered {
        /// Where.
        queue: SubscriptionQueue,
        /// Which.
        offset: Offset,
        /// Why.
        reason: String,
    },
    /// The store's.
    #[error(transparent)]
    Store(#[from] pop_store::Error),
}

/// What a call of the cache returns.
pub type Result<T, E = CacheError> = std::result::Result<T, E>;
