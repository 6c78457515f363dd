//! What a caller is told when something is not done.

use axum::{
    Json,
    extract::rejection::{JsonRejection, QueryRejection},
    http::StatusCode,
    response::{IntoResponse, Response},
};
use pop_broker::BrokerError;
use pop_model::NameError;

use super::api;

/// The broker's answer to what it did not do.
#[derive(Debug)]
pub(super) struct Problem(StatusCode, String);

impl From<BrokerError> for Problem {
    fn from(error: BrokerError) -> Self {
        let status = match &error {
            BrokerError::TopicNotFound(_)
            | BrokerError::GroupNotFound(_)
            | BrokerError::QueueNotFound { .. }
            | BrokerError::Deleted
            | BrokerError::QuarantineNotFound(_) => StatusCode::NOT_FOUND,
            BrokerError::TopicExists(_)
            | BrokerError::GroupExists(_)
            | BrokerError::NotRedriven { .. } => StatusCode::CONFLICT,
            BrokerError::InternalTopic(_)
            | BrokerError::TopicName(_)
            | BrokerError::GroupName(_)
            | BrokerError::QueueCount { .. }
            | BrokerError::RetryPolicy(_) => StatusCode::BAD_REQUEST,
            BrokerError::Recovering
            | BrokerError::Moving
            | BrokerError::Moved
            | BrokerError::NotOwner(_)
            | BrokerError::ShuttingDown
            | BrokerError::Busy(_)
            | BrokerError::TooManyInFlight(_) => StatusCode::SERVICE_UNAVAILABLE,
            // A full disk, for instance: the same call may be done later.
            BrokerError::Store(error) if error.kind().is_refusal() => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self(status, error.to_string())
    }
}

impl Problem {
    pub(super) fn new(status: StatusCode, error: impl Into<String>) -> Self {
        Self(status, error.into())
    }
}

impl From<NameError> for Problem {
    fn from(error: NameError) -> Self {
        Self(StatusCode::BAD_REQUEST, error.to_string())
    }
}

impl From<JsonRejection> for Problem {
    fn from(rejection: JsonRejection) -> Self {
        Self(rejection.status(), rejection.body_text())
    }
}

impl From<QueryRejection> for Problem {
    fn from(rejection: QueryRejection) -> Self {
        Self(rejection.status(), rejection.body_text())
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        (self.0, Json(api::Problem { error: self.1 })).into_response()
    }
}

/// The answer to a path that is none.
pub(super) async fn not_found() -> Problem {
    let paths = [
        api::TOPICS,
        api::TOPIC,
        api::GROUPS,
        api::GROUP,
        api::OFFSETS,
        api::RETENTION,
        api::QUARANTINE,
        api::DATA,
    ];
    let paths = paths.join(", ");
    let error = format!("no such path: there are /health, /metrics, {paths}");
    Problem(StatusCode::NOT_FOUND, error)
}
