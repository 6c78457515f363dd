//! The operator's side of a serving broker, over HTTP: health, metrics, and a JSON API that
//! the command line uses, too.
//!
//! It has no passwords, so it listens on this machine alone unless told otherwise. A web
//! page of somebody else can't make a browser change anything: what changes something
//! takes JSON by its content type, which a browser does not send across sites unasked.

pub(crate) mod api;

mod group;
mod health;
mod metrics;
mod problem;
mod quarantine;
mod topic;

use axum::{Router, routing::get};
use pop_broker::Broker;

/// All that is answered.
pub(crate) fn router(broker: Broker) -> Router {
    Router::new()
        .route("/health", get(health::show))
        .route("/metrics", get(metrics::show))
        .route(api::TOPICS, get(topic::list).post(topic::create))
        .route(api::TOPIC, get(topic::describe))
        .route(api::GROUPS, get(group::list).post(group::create))
        .route(api::QUARANTINE, get(quarantine::list))
        .fallback(problem::not_found)
        .with_state(broker)
}
