//! Groups.

use axum::{
    Json,
    extract::{
        Query, State,
        rejection::{JsonRejection, QueryRejection},
    },
    http::StatusCode,
};
use pop_broker::{Broker, BrokerError, DeadLetters, GroupSpec};
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
        fifo: new.fifo,
    };
    let group = broker.create_group(spec).await?;
    Ok((StatusCode::CREATED, Json(summary(&group))))
}

pub(super) async fn delete(
    State(broker): State<Broker>,
    named: Result<Query<api::GroupToDelete>, QueryRejection>,
) -> Result<Json<api::Deleted>, Problem> {
    let Query(named) = named?;
    let name = GroupName::user(&Namespace::new(&named.namespace)?, &named.name)?;
    let dead_letters = match named.with_dead_letters {
        true => DeadLetters::Delete,
        false => DeadLetters::Keep,
    };
    let deleted = broker.delete_group(&name, dead_letters).await?;
    let kept = deleted.dead_letters_kept;
    Ok(Json(api::Deleted {
        namespace: named.namespace,
        name: named.name,
        dead_letters_kept: kept.map(|topic| topic.name().into()),
    }))
}

fn summary(group: &GroupRecord) -> api::Group {
    api::Group {
        namespace: group.name.namespace().as_str().into(),
        name: group.name.name().into(),
        delivery_attempts_max: group.policy.delivery_attempts_max(),
        start: group.start.into(),
        fifo: group.fifo,
        created_at_unix_ms: group.created_at.as_unix_millis(),
    }
}
