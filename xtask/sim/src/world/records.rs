//! Past the broker: rows that a run damages, and what its quarantine says of them.

use bytes::Bytes;
use pop_broker::Broker;
use pop_model::{
    LeaseKey, LogKey, LogQueue, Offset, QuarantineRecord, QueueId, RetryEntry, RetryKey, StoredKey,
    StoredValue,
};
use pop_store::{
    Durability, Store, WriteBatch,
    table::{LEASE, LOG, RETRY},
};

use super::{World, unexpected};
use crate::violation::{Checked, Violation};

/// Where a record in quarantine came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The topic's place in the cast.
    pub topic: usize,
    /// How often the topic had been deleted.
    pub life: usize,
    /// The queue.
    pub queue: u32,
    /// The offset.
    pub offset: u64,
}

/// The most records of one listing.
const LISTED_MAX: usize = 1_000;

impl World {
    /// Makes the row of a message unreadable, for good. Returns whether it is there still.
    pub async fn damage(&self, at: Origin) -> Checked<bool> {
        let key = LogKey {
            queue: LogQueue {
                topic: self.topics[at.topic][at.life],
                queue: QueueId::new(at.queue),
            },
            offset: Offset::new(at.offset),
        };
        let row = self.life.rows().get(LOG, &key.encode()).await;
        if row.map_err(|error| unexpected(error.into()))?.is_none() {
            return Ok(false);
        }
        let mut batch = WriteBatch::new();
        batch.put(LOG, key.encode(), Bytes::from_static(b"damaged"));
        let written = self.life.rows().write(batch, Durability::Synced).await;
        written.map_err(|error| unexpected(error.into()))?;
        Ok(true)
    }

    /// Where each record in quarantine came from; `None` for a delivery of a retry entry
    /// that is gone, which its record does not say.
    pub async fn quarantined(&self) -> Checked<Vec<Option<Origin>>> {
        let mut origins = Vec::new();
        for record in quarantined(&self.broker).await? {
            origins.push(self.origin(&record).await?);
        }
        Ok(origins)
    }

    async fn origin(&self, record: &QuarantineRecord) -> Checked<Option<Origin>> {
        let place = if record.keyspace == LOG.name() {
            LogKey::decode(record.key.clone())
                .ok()
                .map(|key| (key.queue, key.offset))
        } else if record.keyspace == LEASE.name() {
            let key = LeaseKey::decode(record.key.clone()).ok();
            match key {
                Some(key) if key.queue.is_retry() => match self.source(key).await {
                    None => return Ok(None),
                    source => source,
                },
                key => key.map(|key| (key.queue.log_queue(), key.offset)),
            }
        } else if record.keyspace == RETRY.name() {
            RetryEntry::decode(record.value.clone())
                .ok()
                .map(|entry| (entry.source, entry.offset))
        } else {
            None
        };
        let place = place.and_then(|(queue, offset)| {
            let (topic, life) = self.topic_of(queue.topic)?;
            Some(Origin {
                topic,
                life,
                queue: queue.queue.get(),
                offset: offset.get(),
            })
        });
        let wrong = || {
            let what = format!("a record that nobody damaged: {}", record.reason);
            Violation::new("P6 quarantine", what)
        };
        place.map(Some).ok_or_else(wrong)
    }

    /// What a delivery of the retry queue is a delivery of.
    async fn source(&self, key: LeaseKey) -> Option<(LogQueue, Offset)> {
        let retry = RetryKey {
            group: key.queue.group,
            topic: key.queue.topic,
            sequence: key.offset.get(),
        };
        let row = self.life.rows().get(RETRY, &retry.encode()).await;
        let entry = RetryEntry::decode(row.ok()??).ok()?;
        Some((entry.source, entry.offset))
    }
}

async fn quarantined(broker: &Broker) -> Checked<Vec<QuarantineRecord>> {
    let listed = broker.quarantined(0, LISTED_MAX).await;
    let listed = listed.map_err(unexpected)?;
    Ok(listed.into_iter().map(|(_, record)| record).collect())
}
