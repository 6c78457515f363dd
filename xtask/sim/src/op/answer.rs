//! Answers, and what each means for the one who asked.

use pop_broker::{BrokerError, SendReceipt};
use pop_store::ErrorKind;

use crate::{
    model::Told,
    violation::{Checked, Violation},
};

/// What a call came to.
#[derive(Debug)]
pub enum Answer {
    /// Of a send.
    Sent(Result<Vec<Result<SendReceipt, BrokerError>>, BrokerError>),
    /// Of a receive; `None` if nobody was there to hear it.
    Received(Option<Result<Vec<pop_broker::Delivery>, BrokerError>>),
    /// Of an acknowledgement.
    Acked(Result<(), BrokerError>),
    /// Of a delivery that is given up.
    GivenUp(Result<(), BrokerError>),
    /// Of a change.
    Changed(Result<String, BrokerError>),
    /// Of a reset.
    Reset(Result<(), BrokerError>),
    /// Of a confirmed time.
    Confirmed(Result<(), BrokerError>),
    /// Of a re-drive, or of a record that is given up.
    Quarantined(Result<(), BrokerError>),
    /// Of a deletion.
    Deleted(Result<(), BrokerError>),
    /// None came in time.
    Never,
}

/// What an outcome means for the one who asked, whose topic or group may have been deleted.
pub(super) fn told<T>(outcome: Result<T, &BrokerError>, may_be_gone: bool) -> Checked<Told> {
    Ok(match outcome {
        Ok(_) => Told::Ok,
        Err(BrokerError::DeliveryOver | BrokerError::NotRedriven { .. }) => Told::Over,
        Err(
            BrokerError::Recovering
            | BrokerError::ShuttingDown
            | BrokerError::Busy(_)
            | BrokerError::TooManyInFlight(_)
            | BrokerError::NotDeadLettered(_),
        ) => Told::Refused,
        Err(
            BrokerError::TopicNotFound(_)
            | BrokerError::GroupNotFound(_)
            | BrokerError::Deleted
            | BrokerError::HandleOfAnother,
        ) if may_be_gone => Told::Gone,
        Err(BrokerError::Store(error)) => match error.kind() {
            ErrorKind::InDoubt => Told::Doubt,
            ErrorKind::Unavailable | ErrorKind::NoSpace | ErrorKind::Poisoned => Told::Refused,
            _ => return Err(unexpected(error)),
        },
        Err(error) => return Err(unexpected(error)),
    })
}

fn unexpected(error: &dyn std::error::Error) -> Violation {
    Violation::new("errors are those that were asked for", error.to_string())
}

impl Answer {
    /// The answer, for people.
    pub fn text(&self) -> String {
        fn outcome<T>(outcome: &Result<T, BrokerError>) -> String {
            match outcome {
                Ok(_) => "OK".into(),
                Err(error) => error.to_string(),
            }
        }
        match self {
            Self::Sent(Ok(outcomes)) => {
                let each: Vec<String> = outcomes.iter().map(outcome).collect();
                each.join(", ")
            }
            Self::Sent(Err(error)) | Self::Received(Some(Err(error))) => error.to_string(),
            Self::Received(None) => "nobody heard it".into(),
            Self::Received(Some(Ok(deliveries))) => {
                format!("{} messages", deliveries.len())
            }
            Self::Acked(answer)
            | Self::GivenUp(answer)
            | Self::Reset(answer)
            | Self::Quarantined(answer)
            | Self::Deleted(answer)
            | Self::Confirmed(answer) => outcome(answer),
            Self::Changed(answer) => outcome(answer),
            Self::Never => "no answer in time".into(),
        }
    }
}
