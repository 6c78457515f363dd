//! AckMessage and ChangeInvisibleDuration.

use futures::future::join_all;
use pop_proto::v2::{
    AckMessageEntry, AckMessageRequest, AckMessageResponse, AckMessageResultEntry,
    ChangeInvisibleDurationRequest, ChangeInvisibleDurationResponse, Code,
};

use super::{
    Messaging,
    convert::duration,
    headers::Caller,
    status::{self, Refusal},
};
use crate::BrokerError;

/// More entries than this in one request are a mistake: clients send one.
const ENTRIES_MAX: usize = 1_024;

impl Messaging {
    /// Acknowledges each entry on its own: one that is over refuses no other.
    pub(super) async fn ack(
        &self,
        caller: &Caller,
        request: AckMessageRequest,
    ) -> Result<AckMessageResponse, Refusal> {
        let group = caller.group(request.group.as_ref())?;
        let topic = caller.topic(request.topic.as_ref())?;
        if request.entries.is_empty() || request.entries.len() > ENTRIES_MAX {
            let text = format!("{} entries: give 1 to {ENTRIES_MAX}", request.entries.len());
            return Err(Refusal::new(Code::BadRequest, text));
        }
        let acks = request
            .entries
            .iter()
            .map(|entry| self.broker.ack(&group, &topic, &entry.receipt_handle));
        let outcomes = join_all(acks).await;
        let entries: Vec<_> = request
            .entries
            .into_iter()
            .zip(outcomes)
            .map(|(entry, outcome)| result(caller, entry, outcome))
            .collect();
        let all = status::common(entries.iter().filter_map(|entry| entry.status.as_ref()));
        Ok(AckMessageResponse {
            status: Some(all),
            entries,
        })
    }

    pub(super) async fn change_invisible(
        &self,
        caller: &Caller,
        request: ChangeInvisibleDurationRequest,
    ) -> Result<ChangeInvisibleDurationResponse, Refusal> {
        let group = caller.group(request.group.as_ref())?;
        let topic = caller.topic(request.topic.as_ref())?;
        let asked = request.invisible_duration.unwrap_or_default();
        let invisible_for = duration(&asked).ok_or_else(|| {
            BrokerError::InvisibleDuration(format!("{} s {} ns", asked.seconds, asked.nanos))
        })?;
        let suspend = request.suspend.unwrap_or(false);
        let handle = request.receipt_handle;
        let changed = self
            .broker
            .change_invisible(&group, &topic, &handle, invisible_for, suspend)
            .await?;
        Ok(ChangeInvisibleDurationResponse {
            status: Some(status::ok()),
            receipt_handle: changed.into(),
        })
    }
}

fn result(
    caller: &Caller,
    entry: AckMessageEntry,
    outcome: Result<(), BrokerError>,
) -> AckMessageResultEntry {
    let status = match outcome {
        Ok(()) => status::ok(),
        Err(error) => Refusal::from(error).status_for(caller.language),
    };
    AckMessageResultEntry {
        message_id: entry.message_id,
        receipt_handle: entry.receipt_handle,
        status: Some(status),
    }
}
