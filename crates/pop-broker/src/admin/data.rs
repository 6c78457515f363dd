//! The data port: what it does, and how fast it may.

use axum::{
    Json,
    extract::{State, rejection::JsonRejection},
    http::StatusCode,
};
use pop_broker::data::{ByteRate, DataService};

use super::{api, problem::Problem};

pub(super) async fn show(
    State(data): State<Option<DataService>>,
) -> Result<Json<api::Data>, Problem> {
    Ok(Json(read(&there(data)?)))
}

pub(super) async fn set_rate(
    State(data): State<Option<DataService>>,
    rate: Result<Json<api::DataRate>, JsonRejection>,
) -> Result<Json<api::Data>, Problem> {
    let Json(api::DataRate { rate }) = rate?;
    let data = there(data)?;
    let rate: Result<ByteRate, _> = rate.parse();
    data.set_rate(rate.map_err(|error| Problem::new(StatusCode::BAD_REQUEST, error.to_string()))?);
    Ok(Json(read(&data)))
}

fn there(data: Option<DataService>) -> Result<DataService, Problem> {
    let off = "this broker has no data port: start it with --data-listen ADDRESS";
    data.ok_or_else(|| Problem::new(StatusCode::NOT_FOUND, off))
}

fn read(data: &DataService) -> api::Data {
    let stats = data.stats();
    api::Data {
        rate: data.rate().to_string(),
        running: stats.running,
        snapshots: stats.pins,
        oldest_snapshot_seconds: stats.oldest_pin.map(|age| age.as_secs()),
        installed: stats.installed,
        failed: stats.failed,
        refused: stats.refused,
        sent_bytes: stats.bytes,
    }
}
