//! The one place where a failure becomes a status code.

use pop_proto::v2::{Code, Status};
use pop_store::ErrorKind;

use super::headers::Language;
use crate::{BrokerError, MessageError};

/// A request that is answered with a status and nothing else.
#[derive(Clone, Debug)]
pub(super) struct Refusal {
    code: Code,
    text: String,
}

impl Refusal {
    pub(super) fn new(code: Code, text: impl Into<String>) -> Self {
        Self {
            code,
            text: text.into(),
        }
    }

    #[cfg(test)]
    pub(super) fn code(&self) -> Code {
        self.code
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    pub(super) fn status(&self) -> Status {
        Status {
            code: self.code.into(),
            message: self.text.clone(),
        }
    }

    /// The status, with a number that this client knows.
    pub(super) fn status_for(&self, language: Language) -> Status {
        let mut status = self.status();
        if language == Language::RustPublished {
            status.code = known_to_published_rust(self.code).into();
        }
        status
    }
}

/// The Rust crate 5.0.0 panics on a number that came after it.
fn known_to_published_rust(code: Code) -> Code {
    match code {
        Code::MessageBodyEmpty => Code::MessageCorrupted,
        Code::IllegalOffset | Code::IllegalLiteTopic | Code::InvalidClientProperties => {
            Code::BadRequest
        }
        Code::OffsetNotFound => Code::NotFound,
        Code::LiteTopicQuotaExceeded | Code::LiteSubscriptionQuotaExceeded => Code::TooManyRequests,
        code => code,
    }
}

impl From<BrokerError> for Refusal {
    fn from(error: BrokerError) -> Self {
        let code = code(&error);
        if code == Code::InternalServerError {
            tracing::error!(%error, "a request failed inside the broker");
        }
        Self::new(code, error.to_string())
    }
}

impl From<MessageError> for Refusal {
    fn from(error: MessageError) -> Self {
        BrokerError::from(error).into()
    }
}

fn code(error: &BrokerError) -> Code {
    match error {
        BrokerError::TopicName(_) => Code::IllegalTopic,
        BrokerError::GroupName(_) => Code::IllegalConsumerGroup,
        BrokerError::TopicNotFound(_) => Code::TopicNotFound,
        BrokerError::GroupNotFound(_) => Code::ConsumerGroupNotFound,
        BrokerError::Message(error) => message_code(error),
        BrokerError::InvisibleDuration(_) => Code::IllegalInvisibleTime,
        BrokerError::Filter { .. } => Code::IllegalFilterExpression,
        // The only number on which push consumers stop repeating an acknowledgement.
        BrokerError::Handle(_) | BrokerError::DeliveryOver | BrokerError::HandleOfAnother => {
            Code::InvalidReceiptHandle
        }
        BrokerError::Unsupported(_) => Code::NotImplemented,
        BrokerError::Busy(_) => Code::TooManyRequests,
        BrokerError::TopicExists(_)
        | BrokerError::GroupExists(_)
        | BrokerError::QueueCount { .. }
        | BrokerError::RetryPolicy(_)
        | BrokerError::BatchSize(_) => Code::BadRequest,
        BrokerError::Recovering | BrokerError::ShuttingDown => Code::InternalServerError,
        BrokerError::Store(error) => match error.kind() {
            ErrorKind::Unavailable => Code::TooManyRequests,
            _ => Code::InternalServerError,
        },
    }
}

fn message_code(error: &MessageError) -> Code {
    match error {
        MessageError::None | MessageError::MixedTopics | MessageError::Corrupted => {
            Code::MessageCorrupted
        }
        MessageError::TooMany(_) => Code::PayloadTooLarge,
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

pub(super) fn ok() -> Status {
    Status {
        code: Code::Ok.into(),
        message: "OK".into(),
    }
}

pub(super) fn not_implemented(call: &str) -> Status {
    Refusal::new(
        Code::NotImplemented,
        format!("{call} is not offered by this version"),
    )
    .status()
}

/// The status of an answer with entries: that of all, where they agree.
pub(super) fn common<'a>(statuses: impl IntoIterator<Item = &'a Status>) -> Status {
    let mut statuses = statuses.into_iter();
    let Some(first) = statuses.next() else {
        return ok();
    };
    if statuses.all(|status| status.code == first.code) {
        return first.clone();
    }
    Status {
        code: Code::MultipleResults.into(),
        message: "the entries have different results".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_rust_client_never_gets_a_number_that_it_does_not_know() {
        // The items of the API that are newer than the crate 5.0.0.
        let newer = [40_019, 40_020, 40_021, 40_404, 41_302, 42_901, 42_902];
        for number in (0..70_000).filter_map(|number| Code::try_from(number).ok()) {
            let status = Refusal::new(number, "").status_for(Language::RustPublished);
            assert!(!newer.contains(&status.code), "{number:?}");
        }
        assert_eq!(
            Refusal::new(Code::MessageBodyEmpty, "")
                .status_for(Language::Other)
                .code,
            41_302
        );
    }

    #[test]
    fn entries_that_agree_give_their_status_and_others_multiple_results() {
        let bad = Refusal::new(Code::InvalidReceiptHandle, "x").status();
        assert_eq!(common(&[ok(), ok()]).code, i32::from(Code::Ok));
        assert_eq!(common(&[bad.clone(), bad.clone()]).code, bad.code);
        assert_eq!(common(&[ok(), bad]).code, i32::from(Code::MultipleResults));
    }
}
