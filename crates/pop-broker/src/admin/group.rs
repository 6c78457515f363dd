//! Groups.

use axum::{
    Json,
    extract::{State, rejection::JsonRejection},
    http::StatusCode,
};
use pop_broker::{Broker, BrokerError, GroupSpec};
use pop_model::{GroupName, GroupRecord, Namespace, RetryPolicy, StartPosition};

use super::{api, problem::Problem};

pub(super) async fn list(State(broker): State<Broker>) -> Result<Json<Vec<api::Group>>, Problem> {
    let groups = broker.groups()?;
    Ok(Json(groups.iter().map(|group| summary(group)).collect()))
}

pub(super) async fn create(
    State(broker): State<Broker>,
    new: Result<Json<api::NewGroup>, JsonRejection>,
) -> Result<(StatusCode, Json<api::Group>), Problem> {
    let Json(new) = new?;
    let mut policy = RetryPolicy::default();
    if let Some(attempts) = new.delivery_attempts_max {
        let backoff = policy.backoff().clone();
        policy = RetryPolicy::new(attempts, backoff).map_err(BrokerError::from)?;
    }
    let spec = GroupSpec {
        name: GroupName::user(&Namespace::new(&new.namespace)?, &new.name)?,
        policy,
        start: new.start.map_or(StartPosition::Earliest, Into::into),
    };
    let group = broker.create_group(spec).await?;
    Ok((StatusCode::CREATED, Json(summary(&group))))
}

fn summary(group: &GroupRecord) -> api::Group {
    api::Group {
        namespace: group.name.namespace().as_str().into(),
        name: group.name.name().into(),
        delivery_attempts_max: group.policy.delivery_attempts_max(),
        start: group.start.into(),
        created_at_unix_ms: group.created_at.as_unix_millis(),
    }
}
