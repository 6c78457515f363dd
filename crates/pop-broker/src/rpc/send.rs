//! SendMessage.

use pop_proto::v2::{SendMessageRequest, SendMessageResponse, SendResultEntry};

use super::{Rpc, convert, headers::Caller, status, status::Refusal};
use crate::{MessageError, SendReceipt, single_topic};

/// Sends messages of one topic, each with its own outcome.
pub(super) async fn messages(
    rpc: &Rpc,
    caller: &Caller,
    request: SendMessageRequest,
) -> Result<SendMessageResponse, Refusal> {
    // Before they are looked at one by one: a request may have very many.
    if request.messages.len() > pop_model::limits::SEND_BATCH_MAX {
        return Err(MessageError::TooMany(request.messages.len()).into());
    }
    let topics = request.messages.iter().map(|message| {
        let resource = message.topic.clone().unwrap_or_default();
        caller.user_topic(&resource)
    });
    let topics: Vec<_> = topics.collect::<Result<_, _>>()?;
    let topic = single_topic(topics)?;
    let now = rpc.options.clock.wall();
    let mut outcomes = Vec::with_capacity(request.messages.len());
    let mut good = Vec::with_capacity(request.messages.len());
    for message in request.messages {
        let converted = convert::new_message(message, now);
        outcomes.push(converted.map(|message| good.push(message)));
    }
    let mut sent = Vec::new().into_iter();
    if !good.is_empty() {
        sent = rpc.broker.send(&topic, good).await?.into_iter();
    }
    let entries = outcomes.into_iter().map(|outcome| {
        let outcome =
            outcome.and_then(|()| sent.next().expect("an outcome for each that was sent"));
        outcome.map_or_else(|error| refused(Refusal::from(error), caller), entry)
    });
    let entries: Vec<_> = entries.collect();
    Ok(SendMessageResponse {
        status: Some(status::common(
            entries.iter().filter_map(|entry| entry.status.as_ref()),
        )),
        entries,
    })
}

fn entry(receipt: SendReceipt) -> SendResultEntry {
    SendResultEntry {
        status: Some(status::ok()),
        message_id: receipt.message_id,
        offset: i64::try_from(receipt.offset.get()).unwrap_or(i64::MAX),
        ..SendResultEntry::default()
    }
}

fn refused(refusal: Refusal, caller: &Caller) -> SendResultEntry {
    SendResultEntry {
        status: Some(refusal.status(caller)),
        ..SendResultEntry::default()
    }
}
