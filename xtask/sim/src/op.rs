//! The calls of clients: how each is made, and what its answer tells the model.

use std::time::Duration;

use futures::future::BoxFuture;
use pop_broker::{Broker, BrokerError, Filter, NewMessage, ReceiveRequest, ResetTo, SendReceipt};
use pop_model::{Offset, QueueId};
use pop_store::ErrorKind;

use crate::{
    cast::{Cast, TAG},
    message::Content,
    model::{Arrived, Delivery, Millis, Model, Reset, Told, Window},
    violation::{Checked, Violation},
    world,
};

/// What a consumer does with what it receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It takes the messages.
    Taken,
    /// It is gone when they come.
    Dropped,
    /// It gives up after so many milliseconds.
    Abandoned(Millis),
}

/// A call of a client.
#[derive(Clone, Debug)]
pub enum Op {
    /// Sends these messages, of one topic.
    Send {
        /// The topic.
        topic: usize,
        /// What each message carries; its number is given when the call begins.
        contents: Vec<Content>,
    },
    /// Receives.
    Receive {
        /// The group.
        group: usize,
        /// The topic.
        topic: usize,
        /// How many messages at most.
        batch: usize,
        /// How long they are hidden.
        invisible_ms: Millis,
        /// How long to wait for a first one.
        wait_ms: Millis,
        /// The number of the receive; one that repeats another has its number.
        number: u64,
        /// What becomes of them.
        fate: Fate,
    },
    /// Acknowledges a delivery.
    Ack {
        /// Which one.
        delivery: Delivery,
        /// With which of its handles.
        handle: usize,
    },
    /// Changes how long a delivery is hidden.
    Change {
        /// Which one.
        delivery: Delivery,
        /// With which of its handles.
        handle: usize,
        /// For how long.
        invisible_ms: Millis,
        /// The next delivery is not to count.
        suspend: bool,
    },
    /// Sets where a group goes on in a topic.
    Reset {
        /// The group.
        group: usize,
        /// The topic.
        topic: usize,
        /// Where.
        to: Reset,
    },
}

/// What a call came to.
#[derive(Debug)]
pub enum Answer {
    /// Of a send.
    Sent(Result<Vec<Result<SendReceipt, BrokerError>>, BrokerError>),
    /// Of a receive; `None` if nobody was there to hear it.
    Received(Option<Result<Vec<pop_broker::Delivery>, BrokerError>>),
    /// Of an acknowledgement.
    Acked(Result<(), BrokerError>),
    /// Of a change.
    Changed(Result<String, BrokerError>),
    /// Of a reset.
    Reset(Result<(), BrokerError>),
    /// None came in time.
    Never,
}

impl Op {
    /// Tells the model that the call begins.
    pub fn begin(&mut self, model: &mut Model) {
        match self {
            Self::Send { contents, .. } => {
                for content in contents {
                    content.number = model.messages.len();
                    model.sending(content.clone());
                }
            }
            Self::Receive { group, topic, .. } | Self::Reset { group, topic, .. } => {
                model.receiving(*group, *topic);
            }
            Self::Ack { .. } | Self::Change { .. } => {}
        }
    }

    /// Makes the call.
    pub fn call(&self, broker: &Broker, cast: &Cast, model: &Model) -> BoxFuture<'static, Answer> {
        let limit = world::CALL_TIME_MAX + Duration::from_millis(self.wait_ms());
        let call = self.start(broker.clone(), cast, model);
        Box::pin(async move {
            let answer = tokio::time::timeout(limit, call).await;
            answer.unwrap_or(Answer::Never)
        })
    }

    fn wait_ms(&self) -> Millis {
        match self {
            Self::Receive { wait_ms, .. } => *wait_ms,
            _ => 0,
        }
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
        }
    }

    /// Tells the model what the call came to, but for messages that arrived.
    ///
    /// # Errors
    ///
    /// If the promises don't allow it.
    pub fn end(&self, answer: &Answer, at: Window, model: &mut Model) -> Checked {
        match (self, answer) {
            (Self::Send { contents, .. }, Answer::Sent(outcomes)) => {
                for (position, content) in contents.iter().enumerate() {
                    let outcome = match outcomes {
                        Ok(outcomes) => outcomes[position].as_ref(),
                        Err(error) => Err(error),
                    };
                    let place = outcome.ok().map(|it| (it.queue.get(), it.offset.get()));
                    model.sent(content.number, told(outcome)?, place);
                }
                Ok(())
            }
            (
                Self::Receive {
                    group,
                    topic,
                    invisible_ms,
                    number,
                    ..
                },
                Answer::Received(outcome),
            ) => match outcome {
                Some(Ok(_)) => {
                    model.has_received(*group, *topic);
                    Ok(())
                }
                Some(Err(error)) => {
                    told::<()>(Err(error))?;
                    model.may_have_repeated(*group, *topic, *number, *invisible_ms, at);
                    let is_refused = match error {
                        BrokerError::Store(error) => error.kind() == ErrorKind::Unavailable,
                        BrokerError::TooManyInFlight(_) => true,
                        _ => false,
                    };
                    if !is_refused {
                        let at = Window {
                            is_calm: false,
                            ..at
                        };
                        model.may_have_received(*group, *topic, *invisible_ms, at);
                    }
                    Ok(())
                }
                None => {
                    model.may_have_repeated(*group, *topic, *number, *invisible_ms, at);
                    model.may_have_received(*group, *topic, *invisible_ms, at);
                    Ok(())
                }
            },
            (Self::Ack { delivery, .. }, Answer::Acked(outcome)) => {
                model.acked(*delivery, told(outcome.as_ref())?, at)
            }
            (
                Self::Change {
                    delivery,
                    invisible_ms,
                    suspend,
                    ..
                },
                Answer::Changed(outcome),
            ) => {
                let told = told(outcome.as_ref())?;
                model.changed(*delivery, told, *invisible_ms, *suspend, at)?;
                if let Ok(handle) = outcome {
                    model.deliveries[*delivery].handles.push(handle.clone());
                }
                Ok(())
            }
            (Self::Reset { group, topic, to }, Answer::Reset(outcome)) => {
                model.was_reset(*group, *topic, *to, told(outcome.as_ref())?);
                Ok(())
            }
            _ => Err(Violation::new(
                "P5 no wedge",
                format!("{} had no answer in time", self.text(model)),
            )),
        }
    }

    /// The call, for people.
    pub fn text(&self, model: &Model) -> String {
        match self {
            Self::Send { topic, contents } => {
                let ids: Vec<String> = contents.iter().map(Content::id).collect();
                format!("send {ids:?} to topic {topic}")
            }
            Self::Receive {
                group,
                topic,
                batch,
                invisible_ms,
                wait_ms,
                number,
                fate,
            } => format!(
                "receive {number}: group {group} receives {batch} of topic {topic} for {invisible_ms} ms, waits {wait_ms} ms, {fate:?}"
            ),
            Self::Ack { delivery, handle } => {
                format!("ack {}", delivery_text(*delivery, *handle, model))
            }
            Self::Change {
                delivery,
                handle,
                invisible_ms,
                suspend,
            } => format!(
                "hide {} for {invisible_ms} ms, suspend {suspend}",
                delivery_text(*delivery, *handle, model)
            ),
            Self::Reset { group, topic, to } => {
                format!("set group {group} in topic {topic} to {to:?}")
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

fn delivery_text(delivery: Delivery, handle: usize, model: &Model) -> String {
    let handed = &model.deliveries[delivery];
    let id = model.messages[handed.message].content.id();
    let handle = handle % handed.handles.len();
    format!(
        "#{delivery} ({id} of group {}, handle {handle})",
        handed.group
    )
}

/// A message that arrived.
#[derive(Debug)]
pub struct Arrival<'a> {
    group: usize,
    topic: usize,
    invisible_ms: Millis,
    receive: u64,
    /// What arrived.
    pub delivery: &'a pop_broker::Delivery,
    at: Window,
}

/// The messages that arrived with this answer.
pub fn arrivals<'a>(op: &Op, answer: &'a Answer, at: Window) -> Vec<Arrival<'a>> {
    match (op, answer) {
        (
            Op::Receive {
                group,
                topic,
                invisible_ms,
                number,
                ..
            },
            Answer::Received(Some(Ok(deliveries))),
        ) => {
            let arrival = |delivery| Arrival {
                group: *group,
                topic: *topic,
                invisible_ms: *invisible_ms,
                receive: *number,
                delivery,
                at,
            };
            deliveries.iter().map(arrival).collect()
        }
        _ => Vec::new(),
    }
}

impl Arrival<'_> {
    /// Tells the model of it. Returns whether it is a new delivery.
    ///
    /// # Errors
    ///
    /// If the promises don't allow it.
    pub fn note(&self, model: &mut Model) -> Checked<bool> {
        let delivery = self.delivery;
        let number = Content::number_of(&delivery.message.message_id)
            .filter(|number| *number < model.messages.len());
        let Some(number) = number else {
            let what = format!("{} was never sent", delivery.message.message_id);
            return Err(Violation::new("what is sent arrives", what));
        };
        let content = &model.messages[number].content;
        if content.topic != self.topic {
            let what = format!("{} came from another topic", content.id());
            return Err(Violation::new("what is sent arrives", what));
        }
        content.check(delivery)?;
        let attempt = delivery.delivery_attempt;
        let handle = delivery.handle.to_string();
        let arrived = Arrived {
            group: self.group,
            message: number,
            attempt,
            invisible_ms: self.invisible_ms,
            receive: self.receive,
            place: (delivery.source.queue.get(), delivery.offset.get()),
        };
        model.delivered(arrived, handle, self.at)
    }

    /// Holds its place in its message group against the others.
    ///
    /// # Errors
    ///
    /// If it came out of order (P7).
    pub fn check_order(&self, model: &Model, now: Millis) -> Checked {
        match Content::number_of(&self.delivery.message.message_id) {
            Some(number) => model.check_order(self.group, number, self.receive, self.at, now),
            None => Ok(()),
        }
    }
}

/// What an outcome means for the one who asked.
fn told<T>(outcome: Result<T, &BrokerError>) -> Checked<Told> {
    Ok(match outcome {
        Ok(_) => Told::Ok,
        Err(BrokerError::DeliveryOver) => Told::Over,
        Err(
            BrokerError::Recovering
            | BrokerError::ShuttingDown
            | BrokerError::Busy(_)
            | BrokerError::TooManyInFlight(_),
        ) => Told::Refused,
        Err(BrokerError::Store(error)) => match error.kind() {
            ErrorKind::InDoubt => Told::Doubt,
            ErrorKind::Unavailable | ErrorKind::Poisoned => Told::Refused,
            _ => return Err(unexpected(error)),
        },
        Err(error) => return Err(unexpected(error)),
    })
}

fn unexpected(error: &dyn std::error::Error) -> Violation {
    Violation::new("errors are those that were asked for", error.to_string())
}

impl Answer {
    /// The answer, for people.
    pub fn text(&self) -> String {
        fn outcome<T>(outcome: &Result<T, BrokerError>) -> String {
            match outcome {
                Ok(_) => "OK".into(),
                Err(error) => error.to_string(),
            }
        }
        match self {
            Self::Sent(Ok(outcomes)) => {
                let each: Vec<String> = outcomes.iter().map(outcome).collect();
                each.join(", ")
            }
            Self::Sent(Err(error)) | Self::Received(Some(Err(error))) => error.to_string(),
            Self::Received(None) => "nobody heard it".into(),
            Self::Received(Some(Ok(deliveries))) => {
                format!("{} messages", deliveries.len())
            }
            Self::Acked(answer) | Self::Reset(answer) => outcome(answer),
            Self::Changed(answer) => outcome(answer),
            Self::Never => "no answer in time".into(),
        }
    }
}
