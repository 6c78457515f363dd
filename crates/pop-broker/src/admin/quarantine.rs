//! Records that could not be worked on.

use axum::{
    Json,
    extract::{
        Query, State,
        rejection::{JsonRejection, QueryRejection},
    },
};
use data_encoding::HEXLOWER;
use pop_broker::Broker;
use pop_model::QuarantineRecord;

use super::{api, problem::Problem};

/// Bounds one answer: a record can be as large as a message's row.
const COUNT_MAX: usize = 1_000;
const COUNT: usize = 100;

pub(super) async fn list(
    State(broker): State<Broker>,
    page: Result<Query<api::Page>, QueryRejection>,
) -> Result<Json<api::Quarantine>, Problem> {
    let Query(page) = page?;
    let count = page.count.unwrap_or(COUNT).clamp(1, COUNT_MAX);
    let found = broker.quarantined(page.from.unwrap_or(0), count).await?;
    // Only an empty answer proves the end: a scan may stop early.
    let next = found.last().and_then(|(place, _)| place.checked_add(1));
    let records = found
        .into_iter()
        .map(|(place, record)| summary(place, &record));
    Ok(Json(api::Quarantine {
        records: records.collect(),
        next,
    }))
}

pub(super) async fn redrive(
    State(broker): State<Broker>,
    redrive: Result<Json<api::Redrive>, JsonRejection>,
) -> Result<Json<api::Place>, Problem> {
    let Json(api::Redrive { place }) = redrive?;
    broker.redrive(place).await?;
    Ok(Json(api::Place { place }))
}

pub(super) async fn drop_record(
    State(broker): State<Broker>,
    place: Result<Query<api::Place>, QueryRejection>,
) -> Result<Json<api::Quarantined>, Problem> {
    let Query(api::Place { place }) = place?;
    let record = broker.drop_quarantined(place).await?;
    Ok(Json(summary(place, &record)))
}

fn summary(place: u64, record: &QuarantineRecord) -> api::Quarantined {
    api::Quarantined {
        place,
        at_unix_ms: record.at.as_unix_millis(),
        reason: record.reason.clone(),
        keyspace: record.keyspace.clone(),
        key_hex: HEXLOWER.encode(&record.key),
        value_bytes: record.value.len(),
    }
}
