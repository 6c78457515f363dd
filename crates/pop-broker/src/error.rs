//! Why the broker would not do something, as the client is told.

use pop_cache::CacheError;
use pop_model::{GroupName, HandleError, NameError, QueueId, RetryPolicyError, TopicName};
use pop_store::ErrorKind;

use crate::NotOwner;

/// A refused or failed operation. Each kind has its own status on the wire.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BrokerError {
    /// A topic's name.
    #[error("{0}")]
    TopicName(NameError),
    /// A group's name.
    #[error("{0}")]
    GroupName(NameError),
    /// A topic that is not there and is not made on demand.
    #[error("topic {0} does not exist: create it first (pop-broker topic create)")]
    TopicNotFound(TopicName),
    /// A group that is not there and is not made on demand.
    #[error("group {0} does not exist: create it first (pop-broker group create)")]
    GroupNotFound(GroupName),
    /// A queue that a topic does not have.
    #[error("topic {topic} has no queue {queue}")]
    QueueNotFound {
        /// The topic.
        topic: TopicName,
        /// The queue.
        queue: QueueId,
    },
    /// Nothing is in quarantine at this place.
    #[error("nothing is in quarantine at place {0}: pop-broker quarantine list shows what is")]
    QuarantineNotFound(u64),
    /// A quarantined record that can't be worked on now either.
    #[error("the record at place {place} stays in quarantine: {reason}")]
    NotRedriven {
        /// Its place.
        place: u64,
        /// Why.
        reason: String,
    },
    /// A topic of the broker's own, which goes with what it belongs to.
    #[error(
        "topic {0} is one of the broker's own and can't be deleted by its name: dead letters go with their group (pop-broker group delete --with-dead-letters), or once that is deleted"
    )]
    InternalTopic(TopicName),
    /// A topic or a group that was deleted while the operation ran.
    #[error("the topic or the group was deleted meanwhile")]
    Deleted,
    /// A topic that is already there.
    #[error("topic {0} already exists")]
    TopicExists(TopicName),
    /// A group that is already there.
    #[error("group {0} already exists")]
    GroupExists(GroupName),
    /// A number of queues that no topic may have.
    #[error("{queues} queues: a topic has 1 to {max}", max = pop_model::limits::QUEUES_MAX)]
    QueueCount {
        /// What was asked.
        queues: u32,
    },
    /// A retry policy.
    #[error("{0}")]
    RetryPolicy(#[from] RetryPolicyError),
    /// A message that can't be taken.
    #[error("{0}")]
    Message(#[from] MessageError),
    /// A receive that asks for no message, or for more than one receive may have.
    #[error("batch size {0}: ask for 1 to {max} messages", max = pop_model::limits::RECEIVE_BATCH_MAX)]
    BatchSize(i64),
    /// An invisible duration out of range.
    #[error(
        "invisible duration {0}: give more than 0 and at most 12 h on a receive, at least 0 on a change"
    )]
    InvisibleDuration(String),
    /// A filter that can't be understood.
    #[error("filter expression {expression:?}: {problem}")]
    Filter {
        /// The expression.
        expression: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// A receipt handle that is not one of this broker's.
    #[error("{0}")]
    Handle(#[from] HandleError),
    /// A receipt handle whose delivery is over.
    #[error(
        "the delivery of this receipt handle is over: it was acknowledged, or its time was up and the message was made ready again"
    )]
    DeliveryOver,
    /// A receipt handle of another group or topic than the request names.
    #[error("the receipt handle belongs to another group or topic than the request names")]
    HandleOfAnother,
    /// Something this version does not offer.
    #[error("{0}")]
    Unsupported(&'static str),
    /// As many deliveries are out as are allowed.
    #[error("{0}")]
    TooManyInFlight(String),
    /// A delivery that its consumer gave up could not be moved.
    #[error("{0}")]
    NotDeadLettered(String),
    /// Too many at a time.
    #[error("{0}: try again later")]
    Busy(&'static str),
    /// The store is being opened anew.
    #[error("the broker is recovering its store: try again in a moment")]
    Recovering,
    /// The broker is on its way out.
    #[error("the broker is shutting down")]
    ShuttingDown,
    /// Everything is being handed over to another broker.
    #[error("the broker is being handed over: try again in a moment, there or here")]
    Moving,
    /// Everything was handed over to another broker.
    #[error("the broker was handed over to another one: connect there")]
    Moved,
    /// The content of the store may not be served here.
    #[error(transparent)]
    NotOwner(#[from] NotOwner),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] pop_store::Error),
}

impl From<CacheError> for BrokerError {
    fn from(error: CacheError) -> Self {
        match error {
            CacheError::Over => Self::DeliveryOver,
            CacheError::Store(error) => Self::Store(error),
            CacheError::Full { .. } => Self::TooManyInFlight(error.to_string()),
            CacheError::NotDeadLettered { .. } => Self::NotDeadLettered(error.to_string()),
            CacheError::Busy(_) => Self::Busy("the outcome of the delivery is being written"),
            CacheError::Evicted(_) => Self::Busy("the queue is being loaded"),
            // What is asked next finds that its name is gone.
            CacheError::Closed(_) => Self::Deleted,
        }
    }
}

impl BrokerError {
    /// Whether the store must be opened anew before anything else is done on it.
    pub(crate) fn needs_reopen(&self) -> bool {
        match self {
            Self::Store(error) => matches!(error.kind(), ErrorKind::Poisoned | ErrorKind::InDoubt),
            _ => false,
        }
    }
}

/// Why a message can't be taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MessageError {
    /// No message in the request.
    #[error("the request has no message")]
    None,
    /// More messages than one send may have.
    #[error("{0} messages in one request, at most {max} are taken", max = pop_model::limits::SEND_BATCH_MAX)]
    TooMany(usize),
    /// Messages of different topics in one request.
    #[error("the messages of one request must be of one topic")]
    MixedTopics,
    /// No message id, or an unreasonable one.
    #[error("message id {0:?}: give 1 to {max} bytes without control characters", max = pop_model::limits::MESSAGE_ID_BYTES_MAX)]
    Id(String),
    /// Nothing to deliver.
    #[error("the body is empty")]
    BodyEmpty,
    /// Too much to deliver.
    #[error("the body has {0} bytes, at most {max} are taken", max = pop_model::limits::BODY_BYTES_MAX)]
    BodyTooLarge(usize),
    /// Body bytes that are not those the producer's digest is of.
    #[error("the body does not match its digest")]
    Corrupted,
    /// A tag that filters could not name.
    #[error("tag {0:?}: give text without '|' and control characters")]
    Tag(String),
    /// A key that is blank.
    #[error("key {0:?}: give text without control characters")]
    Key(String),
    /// A message group that is blank or too long.
    #[error("message group {0:?}: give 1 to {max} bytes without control characters", max = pop_model::limits::MESSAGE_GROUP_BYTES_MAX)]
    Group(String),
    /// A property whose name or value is not text.
    #[error(
        "property {0:?}: name and value must be text without control characters, the name not empty"
    )]
    Property(String),
    /// Too many properties, or too large ones.
    #[error("{count} properties with {bytes} bytes, at most {max} with {bytes_max} bytes are taken", max = pop_model::limits::PROPERTIES_MAX, bytes_max = pop_model::limits::PROPERTIES_BYTES_MAX)]
    PropertiesTooLarge {
        /// How many.
        count: usize,
        /// How large.
        bytes: usize,
    },
    /// A message whose fields belong to another kind than it says, or that its topic does not take.
    #[error("{0}")]
    KindConflict(&'static str),
    /// A delivery time too far away.
    #[error("{0}")]
    DeliveryTime(&'static str),
}
