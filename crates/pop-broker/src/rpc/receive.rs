//! ReceiveMessage: a long poll, answered by a short stream of frames.
//!
//! Nothing is sent while it waits. A client that goes away meanwhile drops the call, and
//! with it whatever was about to be handed out.

use std::{
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
    vec,
};

use futures::Stream;
use pop_model::{GroupName, limits};
use pop_proto::v2::{
    Code, FilterExpression, FilterType, Message, ReceiveMessageRequest, ReceiveMessageResponse,
    Resource, Status, receive_message_response::Content,
};

use super::{
    Rpc, ack, convert,
    headers::{Caller, Language},
    push::PushConsumers,
    status,
    status::Refusal,
    time,
};
use crate::{BrokerError, Delivery, Filter, Handout, ReceiveRequest};

/// How much earlier than the client's deadline a poll ends, so that its answer arrives.
const DEADLINE_MARGIN: Duration = Duration::from_secs(1);

/// How long a receive that the store refuses is held back at most: push consumers poll again
/// after 20 ms when they are told that it is too much.
const REFUSED_PAUSE: Duration = Duration::from_secs(1);

/// Waits for messages and makes the frames of the answer.
pub(super) async fn frames(rpc: &Rpc, caller: &Caller, request: ReceiveMessageRequest) -> Frames {
    let auto_renew = request.auto_renew;
    let group = request.group.clone().unwrap_or_default();
    let queue = request.message_queue.clone().unwrap_or_default();
    let topic = queue.topic.unwrap_or_default();
    let outcome = match caller.identified() {
        Ok(()) => receive(rpc, caller, &topic, request).await,
        Err(refusal) => Err(refusal),
    };
    let delivered_at = time::wire_wall(rpc.options.clock.wall());
    let (status, handout) = match outcome {
        Ok(Some(handout)) if !handout.is_empty() => (status::ok(), Some(handout)),
        // The Go client hands its user an error when there is no message, except for this.
        Ok(_) if caller.language == Language::Go && !auto_renew => (status::ok(), None),
        Ok(_) => {
            let nothing = Refusal::new(Code::MessageNotFound, "no new message");
            (nothing.status(caller), None)
        }
        Err(refusal) => (refusal.status(caller), None),
    };
    let renewed = auto_renew.then(|| caller.group(&group).ok()).flatten();
    Frames {
        renewed: renewed.map(|group| (rpc.push.clone(), group)),
        status: Some(status),
        handout,
        messages: Vec::new().into_iter(),
        delivered_at: Some(delivered_at),
        topic,
        caller: caller.clone(),
    }
}

/// Nothing if the server is on its way out.
async fn receive(
    rpc: &Rpc,
    caller: &Caller,
    topic: &Resource,
    request: ReceiveMessageRequest,
) -> Result<Option<Handout>, Refusal> {
    let request = converted(rpc, caller, topic, request)?;
    let _permit = rpc.polls.try_acquire().map_err(|_| {
        Refusal::from(BrokerError::Busy(
            "as many receives wait as the broker allows",
        ))
    })?;
    let pause = request.wait_max.min(REFUSED_PAUSE);
    let received = async {
        let received = rpc.broker.receive(request).await;
        if let Err(BrokerError::Store(error)) = &received
            && error.kind().is_refusal()
        {
            tokio::time::sleep(pause).await;
        }
        received
    };
    tokio::select! {
        handout = received => Ok(Some(handout?)),
        () = caller.closing.cancelled() => Ok(None),
    }
}

fn converted(
    rpc: &Rpc,
    caller: &Caller,
    topic: &Resource,
    request: ReceiveMessageRequest,
) -> Result<ReceiveRequest, Refusal> {
    let group = caller.group(&request.group.unwrap_or_default())?;
    let topic = caller.readable_topic(topic)?;
    let invisible_for = match request.invisible_duration {
        Some(asked) => time::duration(asked).ok_or_else(|| ack::negative(asked))?,
        None if request.auto_renew => rpc.push.lease(),
        None => Duration::ZERO,
    };
    let batch_size = usize::try_from(request.batch_size)
        .map_err(|_| BrokerError::BatchSize(request.batch_size.into()))?;
    let too_long = |id: &String| id.len() > limits::ATTEMPT_ID_BYTES_MAX;
    if request.attempt_id.as_ref().is_some_and(too_long) {
        let why = format!(
            "the attempt id has more than {} bytes",
            limits::ATTEMPT_ID_BYTES_MAX
        );
        return Err(Refusal::new(Code::BadRequest, why));
    }
    let mut receive = ReceiveRequest::new(group, topic, invisible_for);
    receive.filter = filter(request.filter_expression.unwrap_or_default())?;
    // A client that asks for more gets as many as one receive may have.
    receive.batch_size = batch_size.min(limits::RECEIVE_BATCH_MAX);
    receive.auto_renew = request.auto_renew;
    receive.attempt_id = request.attempt_id.filter(|id| !id.is_empty());
    let requested = request.long_polling_timeout;
    receive.wait_max = hold(caller, requested, rpc.options.long_poll_max);
    Ok(receive)
}

fn filter(expression: FilterExpression) -> Result<Filter, BrokerError> {
    match FilterType::try_from(expression.r#type) {
        Ok(FilterType::Tag | FilterType::Unspecified) => Filter::tags(&expression.expression),
        Ok(FilterType::Sql) => Err(BrokerError::Unsupported(
            "SQL filters are not offered by this version: filter by tag",
        )),
        Err(_) => Err(BrokerError::Filter {
            expression: expression.expression.chars().take(200).collect(),
            problem: "it has a type that this broker does not know",
        }),
    }
}

/// How long to wait for a first message: what the client asks for, and never so long that
/// the answer comes after its deadline.
fn hold(caller: &Caller, requested: Option<prost_types::Duration>, max: Duration) -> Duration {
    let asked = requested.map_or(max, |asked| time::duration(asked).unwrap_or_default());
    let asked = match caller.language {
        // Its deadline is the time that it asks for, also where it does not say so.
        Language::Rust => asked.saturating_sub(DEADLINE_MARGIN),
        _ => asked,
    };
    let left = caller.deadline.unwrap_or(Duration::MAX);
    asked.min(max).min(left.saturating_sub(DEADLINE_MARGIN))
}

/// The frames of an answer: its status, messages, and when they were handed out.
///
/// The handout is taken as the first message is written. Dropped before, as happens when
/// the client went away, it is released.
#[derive(Debug)]
pub struct Frames {
    /// Who renews what is handed out, if the client leaves that to the broker.
    renewed: Option<(PushConsumers, GroupName)>,
    status: Option<Status>,
    handout: Option<Handout>,
    messages: vec::IntoIter<Delivery>,
    delivered_at: Option<prost_types::Timestamp>,
    topic: Resource,
    caller: Caller,
}

impl Frames {
    fn message(&mut self) -> Option<Message> {
        if let Some(handout) = self.handout.take() {
            let deliveries = handout.take();
            if let Some((push, group)) = &self.renewed {
                push.delivered(&self.caller.id, group, &deliveries);
            }
            self.messages = deliveries.into_iter();
        }
        let delivery = self.messages.next()?;
        Some(convert::delivered(
            delivery,
            self.topic.clone(),
            &self.caller,
        ))
    }

    fn content(&mut self) -> Option<Content> {
        if let Some(status) = self.status.take() {
            return Some(Content::Status(status));
        }
        if let Some(message) = self.message() {
            return Some(Content::Message(message));
        }
        self.delivered_at.take().map(Content::DeliveryTimestamp)
    }
}

impl Stream for Frames {
    type Item = Result<ReceiveMessageResponse, tonic::Status>;

    fn poll_next(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let content = self.get_mut().content();
        Poll::Ready(content.map(|content| {
            Ok(ReceiveMessageResponse {
                content: Some(content),
            })
        }))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use futures::StreamExt;
    use pop_proto::v2::MessageQueue;
    use pop_store::{MemStore, Store, table::KEYSPACES};
    use tokio::sync::Semaphore;

    use super::*;
    use crate::{
        Broker, BrokerOptions, NewMessage, OpenStore,
        rpc::{PushOptions, RpcOptions},
    };

    #[derive(Debug)]
    struct InMemory(MemStore);

    #[async_trait::async_trait]
    impl OpenStore for InMemory {
        async fn open(&self) -> pop_store::Result<Arc<dyn Store>> {
            Ok(Arc::new(self.0.clone()))
        }
    }

    async fn rpc() -> Rpc {
        let options = BrokerOptions::new(Arc::new(|secret: &mut [u8]| secret.fill(7)));
        let store = InMemory(MemStore::new(&KEYSPACES));
        let broker = Broker::open(Arc::new(store), options).await.unwrap();
        Rpc {
            push: PushConsumers::new(broker.clone(), PushOptions::default()),
            broker,
            options: RpcOptions::new(),
            polls: Arc::new(Semaphore::new(1)),
        }
    }

    fn poll() -> ReceiveMessageRequest {
        let resource = |name: &str| Resource {
            resource_namespace: String::new(),
            name: name.into(),
        };
        ReceiveMessageRequest {
            group: Some(resource("billing")),
            message_queue: Some(MessageQueue {
                topic: Some(resource("orders")),
                ..MessageQueue::default()
            }),
            batch_size: 32,
            auto_renew: true,
            long_polling_timeout: Some(prost_types::Duration {
                seconds: 5,
                nanos: 0,
            }),
            ..ReceiveMessageRequest::default()
        }
    }

    /// P1, P4. Mutant: take the handout when the frames are made.
    #[tokio::test]
    async fn an_answer_that_is_not_read_to_its_first_message_hands_nothing_out() {
        let rpc = rpc().await;
        let mut request = tonic::Request::new(());
        let headers = request.metadata_mut();
        headers.insert("x-mq-client-id", "id".parse().unwrap());
        let caller = Caller::of(&request);
        let topic = caller.user_topic(&poll().message_queue.unwrap().topic.unwrap());
        let message = NewMessage::new("id", b"body".to_vec().into());
        let sent = rpc.broker.send(&topic.unwrap(), vec![message]).await;
        sent.unwrap().remove(0).unwrap();
        for _ in 0..3 {
            let mut unread = frames(&rpc, &caller, poll()).await;
            let status = unread.next().await.unwrap().unwrap().content.unwrap();
            assert_eq!(status, Content::Status(status::ok()));
        }
        let read: Vec<_> = frames(&rpc, &caller, poll()).await.collect().await;
        let Some(Content::Message(message)) = read[1].clone().unwrap().content else {
            panic!("no message came");
        };
        let system = message.system_properties.unwrap();
        assert_eq!(system.delivery_attempt, Some(1));
    }

    fn caller(language: &'static str, deadline: &'static str) -> Caller {
        let mut request = tonic::Request::new(());
        let headers = request.metadata_mut();
        headers.insert("x-mq-language", language.parse().unwrap());
        headers.insert("grpc-timeout", deadline.parse().unwrap());
        Caller::of(&request)
    }

    #[test]
    fn a_poll_ends_before_the_client_gives_up() {
        let max = Duration::from_secs(20);
        let seconds = |seconds| Some(prost_types::Duration { seconds, nanos: 0 });
        let held = |language, deadline, requested| {
            hold(&caller(language, deadline), requested, max).as_secs()
        };
        assert_eq!(held("PYTHON", "23S", seconds(20)), 20);
        assert_eq!(held("JAVA", "8S", seconds(5)), 5);
        // Asks for no time at all.
        assert_eq!(held("GO", "8S", None), 7);
        // Its deadline is the time that it asks for.
        assert_eq!(held("RUST", "5S", seconds(5)), 4);
        assert_eq!(held("RUST", "", seconds(5)), 4);
        assert_eq!(held("RUST", "40S", seconds(40)), 20);
        assert_eq!(held("JAVA", "99999999H", seconds(i64::MAX)), 20);
        assert_eq!(held("JAVA", "1S", seconds(20)), 0);
        assert_eq!(held("JAVA", "garbage", seconds(-20)), 0);
    }
}
