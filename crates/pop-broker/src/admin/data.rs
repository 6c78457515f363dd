//! The data port: what it does, and how fast it may.

use std::collections::BTreeMap;

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
    let words = |counts: BTreeMap<&'static str, u64>| {
        let words = counts.into_iter();
        words
            .map(|(word, count)| (word.to_owned(), count))
            .collect()
    };
    api::Data {
        rate: data.rate().to_string(),
        open: stats.open,
        running: stats.running,
        still_seconds: stats.still.map(|time| time.as_secs()),
        snapshots: stats.pins,
        oldest_snapshot_seconds: stats.oldest_pin.map(|age| age.as_secs()),
        installed: stats.installed,
        failed: stats.failed,
        refused: stats.refused,
        turned_away: words(stats.turned_away),
        ended: words(stats.ended),
        handovers: stats.handovers,
        sent_rows: stats.rows,
        sent_bytes: stats.bytes,
    }
}
