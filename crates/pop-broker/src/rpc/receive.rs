//! ReceiveMessage: a status, then the messages, then the time.

use std::time::Duration;

use futures::{StreamExt, stream};
use pop_model::limits::{ATTEMPT_ID_BYTES_MAX, RECEIVE_BATCH_MAX};
use pop_proto::v2::{
    Code, FilterExpression, FilterType, ReceiveMessageRequest, ReceiveMessageResponse, Resource,
    Status, receive_message_response::Content,
};

use super::{
    Frames, Messaging,
    convert::{delivered, duration},
    headers::Caller,
    status::{self, Refusal},
};
use crate::{BrokerError, Filter, Handout, ReceiveRequest};

/// How long a lease of a push consumer lasts before it is renewed (the reference server's).
const AUTO_RENEW_LEASE: Duration = Duration::from_secs(60);
/// How long before the caller's deadline an empty answer leaves, so that it arrives.
const ANSWER_MARGIN: Duration = Duration::from_secs(1);

impl Messaging {
    pub(super) async fn receive(
        &self,
        caller: &Caller,
        request: ReceiveMessageRequest,
    ) -> Result<Frames<ReceiveMessageResponse>, Refusal> {
        let wanted = self.wanted(caller, &request)?;
        let held = self.held.try_acquire();
        let _held = held.map_err(|_| BrokerError::Busy("too many receives are waiting"))?;
        let handout = self.broker.receive(wanted).await?;
        if handout.is_empty() {
            return Ok(only(
                Refusal::new(Code::MessageNotFound, "no new message").status(),
            ));
        }
        let topic = request
            .message_queue
            .and_then(|queue| queue.topic)
            .unwrap_or_default();
        Ok(messages(handout, topic))
    }

    fn wanted(
        &self,
        caller: &Caller,
        request: &ReceiveMessageRequest,
    ) -> Result<ReceiveRequest, Refusal> {
        let queue = request.message_queue.as_ref();
        let batch_size = usize::try_from(request.batch_size).unwrap_or(0);
        if batch_size == 0 {
            return Err(BrokerError::BatchSize(request.batch_size.into()).into());
        }
        if request
            .attempt_id
            .as_ref()
            .is_some_and(|id| id.len() > ATTEMPT_ID_BYTES_MAX)
        {
            return Err(Refusal::new(Code::BadRequest, "the attempt id is too long"));
        }
        Ok(ReceiveRequest {
            group: caller.group(request.group.as_ref())?,
            topic: caller.topic(queue.and_then(|queue| queue.topic.as_ref()))?,
            filter: filter(request.filter_expression.as_ref())?,
            // More than a batch may have is asked for by none of the official clients, and
            // capped by the reference server.
            batch_size: batch_size.min(RECEIVE_BATCH_MAX),
            invisible_for: invisible_for(request)?,
            auto_renew: request.auto_renew,
            wait_max: self.hold(caller, request),
            attempt_id: request.attempt_id.clone(),
        })
    }

    /// How long to wait for a first message: what is asked, and never up to the caller's
    /// deadline. The Rust client's deadline is the polling time itself.
    fn hold(&self, caller: &Caller, request: &ReceiveMessageRequest) -> Duration {
        let max = self.options.long_poll_max;
        let asked = request.long_polling_timeout.as_ref();
        let asked = asked.map_or(max, |asked| duration(asked).unwrap_or_default());
        let until_deadline = caller
            .time_left
            .map_or(max, |left| left.saturating_sub(ANSWER_MARGIN));
        asked.min(max).min(until_deadline)
    }
}

fn invisible_for(request: &ReceiveMessageRequest) -> Result<Duration, Refusal> {
    match &request.invisible_duration {
        None if request.auto_renew => Ok(AUTO_RENEW_LEASE),
        None => Err(BrokerError::InvisibleDuration("missing".into()).into()),
        Some(asked) => duration(asked)
            .filter(|asked| !asked.is_zero())
            .ok_or_else(|| {
                BrokerError::InvisibleDuration(format!("{} s {} ns", asked.seconds, asked.nanos))
                    .into()
            }),
    }
}

fn filter(expression: Option<&FilterExpression>) -> Result<Filter, BrokerError> {
    let Some(filter) = expression else {
        return Ok(Filter::All);
    };
    match FilterType::try_from(filter.r#type) {
        Ok(FilterType::Tag | FilterType::Unspecified) => Filter::tags(&filter.expression),
        Ok(FilterType::Sql) => Err(BrokerError::Filter {
            expression: filter.expression.chars().take(200).collect(),
            problem: "SQL filters are not offered by this version: filter by tag",
        }),
        Err(_) => Err(BrokerError::Filter {
            expression: filter.expression.chars().take(200).collect(),
            problem: "its type is not known",
        }),
    }
}

/// The frames of a handout. It is taken when the first frame is asked for: a client that
/// went away before that has taken nothing.
fn messages(handout: Handout, topic: Resource) -> Frames<ReceiveMessageResponse> {
    let taken = stream::once(async move { handout.take() });
    let frames = taken.flat_map(move |deliveries| {
        let first = frame(Content::Status(status::ok()));
        let topic = topic.clone();
        let rest = deliveries
            .into_iter()
            .map(move |delivery| frame(Content::Message(delivered(delivery, &topic, ""))));
        stream::iter(std::iter::once(first).chain(rest))
    });
    Box::pin(frames)
}

/// A status and nothing else.
pub(super) fn only(status: Status) -> Frames<ReceiveMessageResponse> {
    Box::pin(stream::iter([frame(Content::Status(status))]))
}

fn frame(content: Content) -> Result<ReceiveMessageResponse, tonic::Status> {
    Ok(ReceiveMessageResponse {
        content: Some(content),
    })
}
