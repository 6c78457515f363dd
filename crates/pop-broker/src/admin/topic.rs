//! Topics.

use axum::{
    Json,
    extract::{
        Query, State,
        rejection::{JsonRejection, QueryRejection},
    },
    http::StatusCode,
};
use pop_broker::{Broker, BrokerError, CatalogOptions, Topic, TopicSpec};
use pop_model::{Namespace, TopicName};

use super::{api, problem::Problem};

pub(super) async fn list(State(broker): State<Broker>) -> Result<Json<Vec<api::Topic>>, Problem> {
    let topics = broker.topics()?;
    Ok(Json(topics.iter().map(|topic| summary(topic)).collect()))
}

pub(super) async fn create(
    State(broker): State<Broker>,
    new: Result<Json<api::NewTopic>, JsonRejection>,
) -> Result<(StatusCode, Json<api::Topic>), Problem> {
    let Json(new) = new?;
    let spec = TopicSpec {
        name: TopicName::user(&Namespace::new(&new.namespace)?, &new.name)?,
        queues: new.queues.unwrap_or(CatalogOptions::default().queues),
    };
    let topic = broker.create_topic(spec).await?;
    Ok((StatusCode::CREATED, Json(summary(&topic))))
}

pub(super) async fn describe(
    State(broker): State<Broker>,
    named: Result<Query<api::Named>, QueryRejection>,
) -> Result<Json<api::TopicDescription>, Problem> {
    let Query(named) = named?;
    let name = TopicName::readable(&Namespace::new(&named.namespace)?, &named.name)?;
    let topic = broker
        .topic(&name)?
        .ok_or(BrokerError::TopicNotFound(name))?;
    let mut bounds = Vec::new();
    for queue in topic.queues() {
        let found = broker.bounds(queue).await?;
        bounds.push(api::Queue {
            queue: queue.queue.get(),
            start: found.start.get(),
            end: found.end.get(),
        });
    }
    let topic = summary(&topic);
    Ok(Json(api::TopicDescription { topic, bounds }))
}

pub(super) async fn delete(
    State(broker): State<Broker>,
    named: Result<Query<api::Named>, QueryRejection>,
) -> Result<Json<api::Deleted>, Problem> {
    let Query(named) = named?;
    let name = TopicName::readable(&Namespace::new(&named.namespace)?, &named.name)?;
    broker.delete_topic(&name).await?;
    Ok(Json(api::Deleted {
        namespace: named.namespace,
        name: named.name,
        dead_letters_kept: None,
    }))
}

fn summary(topic: &Topic) -> api::Topic {
    let record = topic.record();
    api::Topic {
        namespace: record.name.namespace().as_str().into(),
        name: record.name.name().into(),
        queues: record.queues,
        created_at_unix_ms: record.created_at.as_unix_millis(),
    }
}
