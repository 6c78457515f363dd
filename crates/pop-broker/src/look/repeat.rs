//! A look for a receive of an ordered group that is repeated, because its answer was lost.

use std::sync::Arc;

use bytes::Bytes;
use pop_cache::{CacheError, Reread};
use pop_model::{Message, SubscriptionQueue};
use pop_store::table::MessageLog;

use super::{Look, Wanted};
use crate::BrokerError;

impl Look<'_> {
    /// Gives a batch of an ordered group again to whoever repeats the receive that got it,
    /// and nothing else. Returns whether there was one. Any failure is told, and leaves the
    /// batch as it is: a repeat that comes back empty has the client take it for lost.
    pub(super) async fn repeated(&mut self) -> Result<bool, BrokerError> {
        let attempt_id = self.request.attempt_id.as_deref();
        let Some(attempt_id) = attempt_id.filter(|_| self.consumption.group.fifo) else {
            return Ok(false);
        };
        let core = Arc::clone(&self.core);
        let consumption = Arc::clone(&self.consumption);
        let invisible_for = self.request.invisible_for;
        let repeated = loop {
            let mut reread = Vec::new();
            for queue in consumption.queues_from(0) {
                reread.extend(self.reread(queue, attempt_id).await?);
            }
            match core.cache.repeat(attempt_id, reread, invisible_for).await {
                Err(CacheError::Evicted(_)) => {}
                other => break other?,
            }
        };
        for (granted, (message, body)) in repeated {
            let wanted = Wanted {
                offset: granted.identity.offset,
                place: granted.identity.offset,
                message,
                body,
                source: granted.identity.queue.log_queue(),
                attempt: granted.attempt,
            };
            // The first answer may have arrived: whoever works on it keeps it.
            let mut again = self.leased(granted.identity, wanted);
            again.release = None;
            self.handout.push(again);
        }
        Ok(!self.handout.is_empty())
    }

    /// Reads what a receive got from a queue.
    async fn reread(
        &mut self,
        queue: SubscriptionQueue,
        attempt_id: &str,
    ) -> Result<Option<Reread<(Message, Bytes)>>, BrokerError> {
        let core = Arc::clone(&self.core);
        let (cached, offsets) = loop {
            let cached = core.cached(&self.consumption, queue).await?;
            // After a restart the batch is among what is still to be read.
            while cached.look(|leases| leases.is_still_to_be_read(attempt_id)) {
                if self.admit(queue).await? == 0 {
                    break;
                }
            }
            match core.cache.out_of(&cached, attempt_id).await {
                Err(CacheError::Evicted(_)) => {}
                other => break (cached, other?),
            }
        };
        if offsets.is_empty() {
            return Ok(None);
        }
        let mut read = Vec::with_capacity(offsets.len());
        for entry in core.log.read(queue.log_queue(), &offsets).await? {
            // One that can't be decoded went to nobody.
            let Ok(message) = entry.message else { continue };
            let body = core.log.body(&message).await?;
            read.push((entry.offset, (message, body)));
        }
        Ok(Some(Reread { cached, read }))
    }
}
