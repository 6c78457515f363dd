//! What a consumer does with its receipt handles: AckMessage, ChangeInvisibleDuration and
//! ForwardMessageToDeadLetterQueue.

use std::time::Duration;

use futures::{StreamExt, stream};
use pop_proto::v2::{
    AckMessageEntry, AckMessageRequest, AckMessageResponse, AckMessageResultEntry,
    ChangeInvisibleDurationRequest, ChangeInvisibleDurationResponse, Code,
    ForwardMessageToDeadLetterQueueRequest, ForwardMessageToDeadLetterQueueResponse,
};

use super::{
    Rpc,
    headers::{Caller, Language},
    status,
    status::Refusal,
    time,
};
use crate::BrokerError;

/// Clients acknowledge one by one; more than this in one request is a mistake.
const ENTRIES_MAX: usize = 1_024;
/// Acknowledgements of one request that run at a time: enough to share a sync.
const CONCURRENT_MAX: usize = 64;
/// The Node.js client asks for no delay at all where it has no back-off that it can
/// read, and would get the message again and again without a pause.
const NODE_DELAY_MIN: Duration = Duration::from_secs(1);

/// Acknowledges deliveries, each with its own outcome.
pub(super) async fn messages(
    rpc: &Rpc,
    caller: &Caller,
    request: AckMessageRequest,
) -> Result<AckMessageResponse, Refusal> {
    let group = caller.group(&request.group.unwrap_or_default())?;
    let topic = caller.readable_topic(&request.topic.unwrap_or_default())?;
    let count = request.entries.len();
    if !(1..=ENTRIES_MAX).contains(&count) {
        let why = format!("{count} entries: acknowledge 1 to {ENTRIES_MAX} in one request");
        return Err(Refusal::new(Code::BadRequest, why));
    }
    let (group, topic) = (&group, &topic);
    let ack = |entry: AckMessageEntry| async move {
        let acked = rpc.broker.ack(group, topic, &entry.receipt_handle).await;
        let status = match acked {
            Ok(()) => {
                rpc.push.ended(&caller.id, &entry.receipt_handle);
                status::ok()
            }
            Err(error) => Refusal::of_handle(error).status(caller),
        };
        AckMessageResultEntry {
            message_id: entry.message_id,
            receipt_handle: entry.receipt_handle,
            status: Some(status),
        }
    };
    let entries = stream::iter(request.entries).map(ack);
    let entries: Vec<_> = entries.buffered(CONCURRENT_MAX).collect().await;
    Ok(AckMessageResponse {
        status: Some(status::common(
            entries.iter().filter_map(|entry| entry.status.as_ref()),
        )),
        entries,
    })
}

/// Hides a delivery for longer, or shorter. A refusal hands the old handle back, because
/// one client takes the handle from the answer whatever its status.
pub(super) async fn change_invisible(
    rpc: &Rpc,
    caller: &Caller,
    request: ChangeInvisibleDurationRequest,
) -> Result<ChangeInvisibleDurationResponse, Refusal> {
    let old = request.receipt_handle.clone();
    let (status, receipt_handle) = match changed(rpc, caller, request).await {
        Ok(handle) => (status::ok(), handle),
        Err(refusal) => (refusal.status(caller), old),
    };
    Ok(ChangeInvisibleDurationResponse {
        status: Some(status),
        receipt_handle,
    })
}

async fn changed(
    rpc: &Rpc,
    caller: &Caller,
    request: ChangeInvisibleDurationRequest,
) -> Result<String, Refusal> {
    let group = caller.group(&request.group.unwrap_or_default())?;
    let topic = caller.readable_topic(&request.topic.unwrap_or_default())?;
    let asked = request.invisible_duration.unwrap_or_default();
    let mut invisible_for = time::duration(asked).ok_or_else(|| negative(asked))?;
    if caller.language == Language::Node {
        invisible_for = invisible_for.max(NODE_DELAY_MIN);
    }
    if let Some(min) = rpc.push.delay_min(&caller.id, &request.receipt_handle) {
        invisible_for = invisible_for.max(min);
    }
    let suspend = request.suspend.unwrap_or_default();
    let handle = &request.receipt_handle;
    let changed = rpc
        .broker
        .change_invisible(&group, &topic, handle, invisible_for, suspend);
    let changed = changed.await.map_err(Refusal::of_handle)?;
    rpc.push.ended(&caller.id, handle);
    Ok(changed.into())
}

/// Moves a message to the dead-letter topic. The attempts that a client counts are not
/// looked at: one of them sends the number of the delivery, another one its own tries.
pub(super) async fn give_up(
    rpc: &Rpc,
    caller: &Caller,
    request: ForwardMessageToDeadLetterQueueRequest,
) -> Result<ForwardMessageToDeadLetterQueueResponse, Refusal> {
    let group = caller.group(&request.group.unwrap_or_default())?;
    let topic = caller.readable_topic(&request.topic.unwrap_or_default())?;
    let handle = &request.receipt_handle;
    let given_up = rpc.broker.give_up(&group, &topic, handle).await;
    given_up.map_err(Refusal::of_handle)?;
    rpc.push.ended(&caller.id, handle);
    Ok(ForwardMessageToDeadLetterQueueResponse {
        status: Some(status::ok()),
    })
}

/// What is wrong with a duration below zero.
pub(super) fn negative(duration: prost_types::Duration) -> BrokerError {
    BrokerError::InvisibleDuration(format!("{} s {} ns", duration.seconds, duration.nanos))
}
