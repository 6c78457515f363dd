//! How messages end by their age.

use axum::{
    Json,
    extract::{State, rejection::JsonRejection},
};
use pop_broker::Broker;

use super::{api, problem::Problem};

pub(super) async fn show(State(broker): State<Broker>) -> Result<Json<api::Retention>, Problem> {
    let status = broker.retention()?;
    Ok(Json(api::Retention {
        keep_seconds: status.keep.map(|keep| keep.as_secs()),
        clock_jumped_by_ms: status.stopped_by.map(|jump| jump.ahead_ms),
    }))
}

pub(super) async fn confirm(
    State(broker): State<Broker>,
    confirm: Result<Json<api::ConfirmClock>, JsonRejection>,
) -> Result<Json<api::Retention>, Problem> {
    let Json(api::ConfirmClock {}) = confirm?;
    broker.confirm_clock().await?;
    show(State(broker)).await
}
