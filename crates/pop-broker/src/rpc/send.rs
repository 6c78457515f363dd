//! SendMessage.

use pop_proto::v2::{SendMessageRequest, SendMessageResponse, SendResultEntry};

use super::{
    Messaging,
    convert::new_message,
    headers::Caller,
    status::{self, Refusal},
};
use crate::{BrokerError, SendReceipt, single_topic};

impl Messaging {
    /// Takes the messages of a request, which must all be of one topic. What is wrong with
    /// one of them refuses the request before anything is written.
    pub(super) async fn send(
        &self,
        caller: &Caller,
        request: SendMessageRequest,
    ) -> Result<SendMessageResponse, Refusal> {
        let topics: Result<Vec<_>, BrokerError> = request
            .messages
            .iter()
            .map(|message| caller.topic_to_write(message.topic.as_ref()))
            .collect();
        let topic = single_topic(topics?)?;
        let mut messages = Vec::with_capacity(request.messages.len());
        for message in request.messages {
            let message = new_message(message)?;
            message.check()?;
            messages.push(message);
        }
        let ids: Vec<String> = messages
            .iter()
            .map(|message| message.message_id.clone())
            .collect();
        let outcomes = self.broker.send(&topic, messages).await?;
        let entries: Vec<_> = outcomes
            .into_iter()
            .zip(ids)
            .map(|(outcome, id)| entry(caller, outcome, id))
            .collect();
        let all = status::common(entries.iter().filter_map(|entry| entry.status.as_ref()));
        Ok(SendMessageResponse {
            status: Some(all),
            entries,
        })
    }
}

fn entry(
    caller: &Caller,
    outcome: Result<SendReceipt, BrokerError>,
    message_id: String,
) -> SendResultEntry {
    match outcome {
        Ok(receipt) => SendResultEntry {
            status: Some(status::ok()),
            message_id: receipt.message_id,
            offset: i64::try_from(receipt.offset.get()).unwrap_or(i64::MAX),
            ..SendResultEntry::default()
        },
        Err(error) => SendResultEntry {
            status: Some(Refusal::from(error).status_for(caller.language)),
            message_id,
            ..SendResultEntry::default()
        },
    }
}
