//! A look at the queues of a group that consumes in order.

use std::sync::Arc;

use pop_cache::{CacheError, CachedQueue};
use pop_model::{SubscriptionQueue, message_group_hash};
use pop_store::table::{LogEntry, MessageLog};

use super::{FILTERED_MAX, Look};
use crate::BrokerError;

/// How many new messages are read at once, to learn their groups.
const ADMIT_AT_ONCE: usize = 64;

impl Look<'_> {
    /// Hands out messages of one queue of an ordered group: whole batches of message groups
    /// that are not blocked.
    pub(super) async fn ordered(&mut self, queue: SubscriptionQueue) -> Result<(), BrokerError> {
        let core = Arc::clone(&self.core);
        // Groups are tried in the order of their first open message, each once.
        let mut after = None;
        let mut admitted = 0;
        while !self.room.is_full() {
            let bounds = core.log.bounds(queue.log_queue()).await?;
            let cached = core.cached(&self.consumption, queue).await?;
            let mut reserved = match core.cache.reserve_group(&cached, self.room.messages, after) {
                Err(CacheError::Evicted(_)) => continue,
                other => other?,
            };
            if !reserved.is_empty() {
                let offsets = reserved.offsets().to_vec();
                after = offsets.first().copied();
                let entries = core.log.read(queue.log_queue(), &offsets).await?;
                self.hand_out(queue, &mut reserved, &offsets, entries, bounds)
                    .await?;
                continue;
            }
            drop(reserved);
            if self.unpark(&cached).await? {
                // Of a group that was passed, perhaps.
                after = None;
                continue;
            }
            match self.admit(queue).await? {
                0 => return Ok(()),
                count => admitted += count,
            }
            if admitted >= FILTERED_MAX {
                // All of them wait behind others, and there are more: the next look goes on.
                self.consumption.wake();
                return Ok(());
            }
        }
        Ok(())
    }

    /// Brings messages back that were parked while their group was blocked, as many as fit.
    /// Returns whether a group had some.
    async fn unpark(&self, cached: &Arc<CachedQueue>) -> Result<bool, BrokerError> {
        let Some(_turn) = cached.read_turn().await else {
            return Ok(false);
        };
        Ok(self.core.cache.unpark(cached, self.room.messages).await?)
    }

    /// Reads new messages of an ordered queue and learns which groups they belong to.
    /// Returns how many there were.
    pub(super) async fn admit(&mut self, queue: SubscriptionQueue) -> Result<usize, BrokerError> {
        let core = Arc::clone(&self.core);
        let cached = core.cached(&self.consumption, queue).await?;
        let Some(_turn) = cached.read_turn().await else {
            return Ok(0);
        };
        let bounds = core.log.bounds(queue.log_queue()).await?;
        let mut reserved = match core.cache.reserve(&cached, ADMIT_AT_ONCE, bounds) {
            Err(CacheError::Evicted(_)) => return Ok(1),
            other => other?,
        };
        if reserved.is_empty() {
            return Ok(0);
        }
        let offsets = reserved.offsets().to_vec();
        let entries = core.log.read(queue.log_queue(), &offsets).await?;
        let mut entries = entries.into_iter().peekable();
        let mut groups = Vec::with_capacity(offsets.len());
        let mut holes = Vec::new();
        for offset in offsets {
            match entries.next_if(|entry| entry.offset == offset) {
                // One that can't be decoded waits in line, and goes to quarantine in turn.
                Some(entry) => groups.push((offset, group_of(&entry))),
                None => holes.push(offset),
            }
        }
        self.pass_holes(queue, &mut reserved, &holes, bounds)
            .await?;
        let count = groups.len() + holes.len();
        reserved.admit(groups).await?;
        Ok(count)
    }
}

/// The message group of a row, where messages without one share one.
fn group_of(entry: &LogEntry) -> u64 {
    let message = entry.message.as_ref().ok();
    let group = message.and_then(|message| message.message_group.as_deref());
    message_group_hash(group.unwrap_or_default())
}
