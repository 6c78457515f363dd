//! The status of every answer: which code says what, in one place.

use pop_proto::v2::{self, Code};
use pop_store::ErrorKind;

use super::headers::Caller;
use crate::{BrokerError, MessageError, seldom::Seldom};

#[cfg(test)]
mod tests;

/// Every call would say the same, and a client calls again.
static FAILED: Seldom<Failed> = Seldom::new();

/// What the operator has to know of a call that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Failed {
    Store(ErrorKind),
    DeadLetter,
}

/// Why a call, or one entry of it, was not done.
#[derive(Clone, Debug)]
pub(super) struct Refusal {
    code: Code,
    message: String,
}

impl Refusal {
    pub(super) fn new(code: Code, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
        }
    }

    /// As the caller is told it, in numbers that it knows.
    pub(super) fn status(self, caller: &Caller) -> v2::Status {
        let code = if caller.old_codes_only {
            before_2_0_3(self.code)
        } else {
            self.code
        };
        v2::Status {
            code: code.into(),
            message: self.message,
        }
    }

    /// As the end of a stream that has no status.
    pub(super) fn error(self) -> tonic::Status {
        let code = i32::from(self.code);
        if (40_000..50_000).contains(&code) {
            tonic::Status::invalid_argument(self.message)
        } else {
            tonic::Status::internal(self.message)
        }
    }

    /// What the store did not do, without its own words: they speak of folders and keys, and
    /// are for the operator. Where nothing was done and the same call may be done later it is
    /// flow control, so that clients leave time in between; where the store is opened anew
    /// it is not, since there are clients that would give up.
    fn of_store(kind: ErrorKind) -> Self {
        let (code, message) = match kind {
            ErrorKind::NoSpace => (
                Code::TooManyRequests,
                "the disk of the broker is full and nothing was done: try again once its operator has freed some space",
            ),
            ErrorKind::Unavailable => (
                Code::TooManyRequests,
                "the store of the broker takes nothing now and nothing was done: try again later",
            ),
            ErrorKind::InDoubt => (
                Code::InternalServerError,
                "the store of the broker failed, and whether this was done is not known: try again in a moment",
            ),
            ErrorKind::Poisoned => (
                Code::InternalServerError,
                "the store of the broker failed and nothing was done: try again in a moment",
            ),
            ErrorKind::Conflict => (
                Code::InternalServerError,
                "something else changed meanwhile and nothing was done: try again",
            ),
            ErrorKind::Corrupt => (
                Code::InternalServerError,
                "what the broker stored is damaged: its operator has to look at it",
            ),
            ErrorKind::Unsupported => (
                Code::NotImplemented,
                "the store of this broker can't do that",
            ),
            // A fault of ours, and what a store is not opened for; a test names every kind.
            _ => (
                Code::InternalServerError,
                "the broker failed: its operator finds the reason in its log",
            ),
        };
        Self::new(code, message)
    }

    /// What a refused handle is told. A delivery whose group or topic is gone is over,
    /// too: any other code makes push consumers repeat the call for ever.
    pub(super) fn of_handle(error: BrokerError) -> Self {
        match error {
            BrokerError::GroupNotFound(_)
            | BrokerError::TopicNotFound(_)
            | BrokerError::Deleted => Self::new(Code::InvalidReceiptHandle, error.to_string()),
            error => error.into(),
        }
    }
}

impl From<BrokerError> for Refusal {
    fn from(error: BrokerError) -> Self {
        let code = match &error {
            BrokerError::TopicName(_) => Code::IllegalTopic,
            BrokerError::GroupName(_) => Code::IllegalConsumerGroup,
            BrokerError::TopicNotFound(_) => Code::TopicNotFound,
            BrokerError::GroupNotFound(_) => Code::ConsumerGroupNotFound,
            BrokerError::Message(error) => message_code(error),
            BrokerError::InvisibleDuration(_) => Code::IllegalInvisibleTime,
            BrokerError::Filter { .. } => Code::IllegalFilterExpression,
            BrokerError::Handle(_) | BrokerError::DeliveryOver | BrokerError::HandleOfAnother => {
                Code::InvalidReceiptHandle
            }
            BrokerError::Unsupported(_) => Code::NotImplemented,
            BrokerError::Busy(_) | BrokerError::TooManyInFlight(_) => Code::TooManyRequests,
            // Not too many requests: there are clients that give up on that at once, and
            // all of them try again after this.
            BrokerError::Recovering
            | BrokerError::ShuttingDown
            | BrokerError::Moving
            | BrokerError::Moved
            | BrokerError::NotOwner(_) => Code::InternalServerError,
            BrokerError::NotDeadLettered(why) => {
                warn(Failed::DeadLetter, why);
                Code::InternalServerError
            }
            BrokerError::Store(error) => {
                warn(Failed::Store(error.kind()), error);
                return Self::of_store(error.kind());
            }
            BrokerError::Deleted => Code::NotFound,
            BrokerError::InternalTopic(_)
            | BrokerError::QuarantineNotFound(_)
            | BrokerError::NotRedriven { .. }
            | BrokerError::BatchSize(_)
            | BrokerError::TopicExists(_)
            | BrokerError::GroupExists(_)
            | BrokerError::QueueCount { .. }
            | BrokerError::QueueNotFound { .. }
            | BrokerError::RetryPolicy(_) => Code::BadRequest,
        };
        Self::new(code, error.to_string())
    }
}

/// The client can't mend it, and the operator must see it.
fn warn(kind: Failed, why: &dyn std::fmt::Display) {
    if let Some(others) = FAILED.may_say(kind) {
        tracing::warn!(%why, others, "a call failed");
    }
}

impl From<MessageError> for Refusal {
    fn from(error: MessageError) -> Self {
        Self::new(message_code(&error), error.to_string())
    }
}

fn message_code(error: &MessageError) -> Code {
    match error {
        MessageError::TooMany(_) => Code::BadRequest,
        MessageError::None | MessageError::MixedTopics | MessageError::Corrupted => {
            Code::MessageCorrupted
        }
        MessageError::Id(_) => Code::IllegalMessageId,
        MessageError::BodyEmpty => Code::MessageBodyEmpty,
        MessageError::BodyTooLarge(_) => Code::MessageBodyTooLarge,
        MessageError::Tag(_) => Code::IllegalMessageTag,
        MessageError::Key(_) => Code::IllegalMessageKey,
        MessageError::Group(_) => Code::IllegalMessageGroup,
        MessageError::Property(_) => Code::IllegalMessagePropertyKey,
        MessageError::PropertiesTooLarge { .. } => Code::MessagePropertiesTooLarge,
        MessageError::KindConflict(_) => Code::MessagePropertyConflictWithType,
        MessageError::DeliveryTime(_) => Code::IllegalDeliveryTime,
    }
}

/// The nearest code of version 2.0.2 of the interface.
fn before_2_0_3(code: Code) -> Code {
    match code {
        Code::IllegalOffset | Code::InvalidClientProperties => Code::BadRequest,
        Code::IllegalLiteTopic => Code::IllegalTopic,
        Code::OffsetNotFound => Code::NotFound,
        Code::MessageBodyEmpty => Code::MessageCorrupted,
        Code::LiteTopicQuotaExceeded | Code::LiteSubscriptionQuotaExceeded => Code::TooManyRequests,
        code => code,
    }
}

/// Done.
pub(super) fn ok() -> v2::Status {
    v2::Status {
        code: Code::Ok.into(),
        message: "OK".into(),
    }
}

/// The status of a call with several entries: theirs if they agree.
pub(super) fn common<'a>(mut entries: impl Iterator<Item = &'a v2::Status>) -> v2::Status {
    let Some(first) = entries.next() else {
        return ok();
    };
    if entries.all(|entry| entry.code == first.code) {
        first.clone()
    } else {
        v2::Status {
            code: Code::MultipleResults.into(),
            message: "the entries have different results".into(),
        }
    }
}

/// A response that can say why a call was not done.
pub(super) trait Answer: Sized {
    fn refused(status: v2::Status) -> Self;
}

macro_rules! answers {
    ($($response:ident),* $(,)?) => {$(
        impl Answer for v2::$response {
            fn refused(status: v2::Status) -> Self {
                #[allow(
                    clippy::needless_update,
                    reason = "some responses are a status and nothing else"
                )]
                Self {
                    status: Some(status),
                    ..Self::default()
                }
            }
        }
    )*};
}

answers! {
    QueryRouteResponse,
    QueryAssignmentResponse,
    HeartbeatResponse,
    NotifyClientTerminationResponse,
    SendMessageResponse,
    AckMessageResponse,
    ChangeInvisibleDurationResponse,
    ForwardMessageToDeadLetterQueueResponse,
    EndTransactionResponse,
    RecallMessageResponse,
    SyncLiteSubscriptionResponse,
}
