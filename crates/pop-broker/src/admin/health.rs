//! `/health`: whether it is worth sending clients here.

use axum::{Json, extract::State, http::StatusCode};
use pop_broker::{Broker, Health};
use serde::Serialize;

/// The state in one word, and the problem if there is one.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
}

pub(super) async fn show(State(broker): State<Broker>) -> (StatusCode, Json<Report>) {
    let health = broker.health().borrow().clone();
    let (status, state, problem) = match health {
        Health::Serving => (StatusCode::OK, "serving", None),
        Health::Recovering => (StatusCode::SERVICE_UNAVAILABLE, "recovering", None),
        Health::Failed(problem) => (StatusCode::SERVICE_UNAVAILABLE, "failed", Some(problem)),
        Health::Paused => (StatusCode::SERVICE_UNAVAILABLE, "paused", None),
        // Not what the folder says of it: the receipt is for the operator alone.
        Health::Moved(_) => (StatusCode::SERVICE_UNAVAILABLE, "moved", None),
        Health::Closed => (StatusCode::SERVICE_UNAVAILABLE, "closed", None),
    };
    (status, Json(Report { state, problem }))
}
