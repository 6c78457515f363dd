#![doc = include_str!("../README.md")]

// In reading order: what things are called, when things happen, what is stored, how.
mod ids;
mod name;
mod time;

mod checkpoint;
mod message;
mod mutant;
mod progress;
mod receipt;
mod record;
mod retained;
mod retry;
mod retry_entry;

pub mod codec;
pub mod limits;

pub use checkpoint::{Checkpoint, DeliveryIdentity, RetryKind};
pub use codec::{
    CodecError, StoredKey, StoredValue,
    key::{
        BodyChunkKey, BodyPendingKey, DueKey, LeaseKey, LogKey, MarkPageKey, MetaKey, ParkedKey,
        ProgressKey, QuarantineKey, RetainedKey, RetryKey, TimerKey,
    },
};
pub use ids::{
    BodyId, Generation, GroupId, Incarnation, LogQueue, Offset, QueueId, ShardId,
    SubscriptionEpoch, SubscriptionQueue, TopicId, shard_of,
};
pub use message::{
    BodyEncoding, DeadLetterOrigin, Message, MessageBody, MessageKind, message_group_hash,
};
pub use mutant::Mutant;
pub use name::{GroupName, NameError, Namespace, TopicName, TopicNameKind};
pub use progress::{MarkPage, Progress};
pub use receipt::{HandleError, HandleKey, HandleKeyring, HandleKeys, ReceiptHandle};
pub use record::{
    GroupRecord, LogBounds, QuarantineRecord, StartPosition, SubscriptionRecord, TopicRecord,
};
pub use retained::{Holder, Retained};
pub use retry::{
    Backoff, REVIVE_FAILURES_MAX, RetryPolicy, RetryPolicyError, revive_failure_backoff,
};
pub use retry_entry::RetryEntry;
pub use time::{Clock, LeaseTime, ManualClock, SystemClock, WallTime, resumed_lease_time};
