//! The operator's side of a serving broker, over HTTP: health, metrics, and a JSON API that
//! the command line uses, too.
//!
//! It has no passwords, so it listens on this machine alone unless told otherwise. A web
//! page of somebody else can't make a browser change anything: what changes something
//! is a DELETE or takes JSON by its content type, and a browser sends neither across sites
//! unasked.

pub(crate) mod api;

mod data;
mod group;
mod health;
mod metrics;
mod offset;
mod problem;
mod quarantine;
mod retention;
mod topic;

use axum::{
    Router,
    extract::FromRef,
    routing::{delete, get},
};
use pop_broker::{Broker, data::DataService};

/// What is asked about.
#[derive(Clone)]
struct State {
    broker: Broker,
    /// None while nothing is given out.
    data: Option<DataService>,
}

impl FromRef<State> for Broker {
    fn from_ref(state: &State) -> Self {
        state.broker.clone()
    }
}

impl FromRef<State> for Option<DataService> {
    fn from_ref(state: &State) -> Self {
        state.data.clone()
    }
}

/// All that is answered.
pub(crate) fn router(broker: Broker, data: Option<DataService>) -> Router {
    Router::new()
        .route("/health", get(health::show))
        .route("/metrics", get(metrics::show))
        .route(api::TOPICS, get(topic::list).post(topic::create))
        .route(api::TOPIC, get(topic::describe).delete(topic::delete))
        .route(api::GROUPS, get(group::list).post(group::create))
        .route(api::OFFSETS, get(offset::show).post(offset::reset))
        .route(api::GROUP, delete(group::delete))
        .route(
            api::RETENTION,
            get(retention::show).post(retention::confirm),
        )
        .route(
            api::QUARANTINE,
            get(quarantine::list)
                .post(quarantine::redrive)
                .delete(quarantine::drop_record),
        )
        .route(api::DATA, get(data::show).post(data::set_rate))
        .fallback(problem::not_found)
        .with_state(State { broker, data })
}
