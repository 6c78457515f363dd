//! How far groups have come, and setting them back or forward.

use axum::{
    Json,
    extract::{
        Query, State,
        rejection::{JsonRejection, QueryRejection},
    },
};
use pop_broker::{Broker, QueueProgress, ResetTo};
use pop_model::{GroupName, Namespace, Offset, QueueId, TopicName, WallTime};

use super::{api, problem::Problem};

pub(super) async fn show(
    State(broker): State<Broker>,
    of: Result<Query<api::Consumption>, QueryRejection>,
) -> Result<Json<Vec<api::Progress>>, Problem> {
    let Query(of) = of?;
    let (group, topic) = names(&of)?;
    let progress = broker.progress(&group, &topic).await?;
    Ok(Json(progress.iter().map(summary).collect()))
}

pub(super) async fn reset(
    State(broker): State<Broker>,
    reset: Result<Json<api::Reset>, JsonRejection>,
) -> Result<Json<Vec<api::Progress>>, Problem> {
    let Json(reset) = reset?;
    let (group, topic) = names(&reset.of)?;
    let to = match reset.to {
        api::ResetTo::Earliest => ResetTo::Earliest,
        api::ResetTo::Latest => ResetTo::Latest,
        api::ResetTo::TimeUnixMs(millis) => ResetTo::Time(WallTime::from_unix_millis(millis)),
        api::ResetTo::Offset { queue, offset } => {
            ResetTo::Offset(QueueId::new(queue), Offset::new(offset))
        }
    };
    broker.reset_offset(&group, &topic, to).await?;
    let progress = broker.progress(&group, &topic).await?;
    Ok(Json(progress.iter().map(summary).collect()))
}

fn names(of: &api::Consumption) -> Result<(GroupName, TopicName), Problem> {
    let namespace = Namespace::new(&of.namespace)?;
    let group = GroupName::user(&namespace, &of.group)?;
    let topic = TopicName::readable(&namespace, &of.topic)?;
    Ok((group, topic))
}

fn summary(progress: &QueueProgress) -> api::Progress {
    let is_retry = progress.queue == QueueId::RETRY;
    api::Progress {
        queue: (!is_retry).then_some(progress.queue.get()),
        start: progress.bounds.start.get(),
        end: progress.bounds.end.get(),
        committed: progress.committed.get(),
        in_flight: progress.in_flight,
        lag: progress.lag,
    }
}
