//! How each call of a client is made.

use std::time::Duration;

use futures::future::BoxFuture;
use pop_broker::{Broker, DeadLetters, Filter, NewMessage, ReceiveRequest, ResetTo};
use pop_model::{Offset, QueueId};

use super::{Answer, Fate, Op};
use crate::{
    cast::{Cast, TAG},
    message::Content,
    model::{Delivery, Model, Reset},
    world,
};

impl Op {
    /// Makes the call.
    pub fn call(&self, broker: &Broker, cast: &Cast, model: &Model) -> BoxFuture<'static, Answer> {
        let limit = world::CALL_TIME_MAX + Duration::from_millis(self.wait_ms());
        let call = self.start(broker.clone(), cast, model);
        Box::pin(async move {
            let answer = tokio::time::timeout(limit, call).await;
            answer.unwrap_or(Answer::Never)
        })
    }

    fn start(&self, broker: Broker, cast: &Cast, model: &Model) -> BoxFuture<'static, Answer> {
        match self {
            Self::Send { topic, contents } => {
                let topic = world::topic(cast.topics[*topic].name);
                let messages: Vec<NewMessage> = contents.iter().map(Content::message).collect();
                Box::pin(async move { Answer::Sent(broker.send(&topic, messages).await) })
            }
            Self::Receive {
                group,
                topic,
                batch,
                invisible_ms,
                wait_ms,
                number,
                fate,
            } => {
                let group = &cast.groups[*group];
                let mut request = ReceiveRequest::new(
                    world::group(group.name),
                    world::topic(cast.topics[*topic].name),
                    Duration::from_millis(*invisible_ms),
                );
                request.batch_size = *batch;
                request.wait_max = Duration::from_millis(*wait_ms);
                if group.is_fifo {
                    request.attempt_id = Some(format!("receive {number}"));
                }
                if group.is_filtered {
                    request.filter = Filter::Tags(vec![TAG.to_owned()]);
                }
                Box::pin(receive(broker, request, *fate))
            }
            Self::Ack { delivery, handle } => {
                let (group, topic, handle) = addressed(*delivery, *handle, cast, model);
                Box::pin(async move { Answer::Acked(broker.ack(&group, &topic, &handle).await) })
            }
            Self::GiveUp { delivery, handle } => {
                let (group, topic, handle) = addressed(*delivery, *handle, cast, model);
                Box::pin(
                    async move { Answer::GivenUp(broker.give_up(&group, &topic, &handle).await) },
                )
            }
            Self::Change {
                delivery,
                handle,
                invisible_ms,
                suspend,
            } => {
                let (group, topic, handle) = addressed(*delivery, *handle, cast, model);
                let invisible_for = Duration::from_millis(*invisible_ms);
                let suspend = *suspend;
                Box::pin(async move {
                    let changed = broker
                        .change_invisible(&group, &topic, &handle, invisible_for, suspend)
                        .await;
                    Answer::Changed(changed.map(|handle| handle.to_string()))
                })
            }
            Self::Reset { group, topic, to } => {
                let group = world::group(cast.groups[*group].name);
                let topic = world::topic(cast.topics[*topic].name);
                let to = match *to {
                    Reset::Earliest => ResetTo::Earliest,
                    Reset::Latest => ResetTo::Latest,
                    Reset::Offset(queue, offset) => {
                        ResetTo::Offset(QueueId::new(queue), Offset::new(offset))
                    }
                };
                Box::pin(
                    async move { Answer::Reset(broker.reset_offset(&group, &topic, to).await) },
                )
            }
            Self::ConfirmClock => {
                Box::pin(async move { Answer::Confirmed(broker.confirm_clock().await) })
            }
            Self::Quarantined {
                place, is_dropped, ..
            } => {
                let (place, is_dropped) = (*place, *is_dropped);
                Box::pin(async move {
                    Answer::Quarantined(match is_dropped {
                        true => broker.drop_quarantined(place).await.map(drop),
                        false => broker.redrive(place).await,
                    })
                })
            }
            Self::DeleteTopic { topic } => {
                let topic = world::topic(cast.topics[*topic].name);
                Box::pin(async move { Answer::Deleted(broker.delete_topic(&topic).await) })
            }
            Self::DeleteGroup {
                group,
                with_letters,
            } => {
                let group = world::group(cast.groups[*group].name);
                let letters = if *with_letters {
                    DeadLetters::Delete
                } else {
                    DeadLetters::Keep
                };
                Box::pin(async move {
                    let deleted = broker.delete_group(&group, letters).await;
                    Answer::Deleted(deleted.map(drop))
                })
            }
        }
    }
}

async fn receive(broker: Broker, request: ReceiveRequest, fate: Fate) -> Answer {
    let receive = broker.receive(request);
    match fate {
        Fate::Taken => Answer::Received(Some(receive.await.map(|handout| handout.take()))),
        Fate::Dropped => {
            drop(receive.await);
            Answer::Received(None)
        }
        Fate::Abandoned(millis) => {
            let patience = Duration::from_millis(millis);
            let _ = tokio::time::timeout(patience, receive).await;
            Answer::Received(None)
        }
    }
}

/// The group, topic and handle with which a delivery is settled.
fn addressed(
    delivery: Delivery,
    handle: usize,
    cast: &Cast,
    model: &Model,
) -> (pop_model::GroupName, pop_model::TopicName, String) {
    let handed = &model.deliveries[delivery];
    let topic = model.messages[handed.message].content.topic;
    (
        world::group(cast.groups[handed.group].name),
        world::topic(cast.topics[topic].name),
        handed.handles[handle % handed.handles.len()].clone(),
    )
}
