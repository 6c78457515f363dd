//! Past the broker: rows that a run damages, and what its quarantine says of them.

use bytes::Bytes;
use pop_broker::BrokerError;
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

/// A record in quarantine.
#[derive(Clone, Copy, Debug)]
pub struct PutAway {
    /// Its place there.
    pub place: u64,
    /// The group that it is of, unless that is deleted.
    pub group: Option<usize>,
    /// Where it came from; `None` for a delivery of a retry entry that is gone, which its
    /// record does not say.
    pub origin: Option<Origin>,
}

/// What a damaged row reads.
const DAMAGED: &[u8] = b"damaged";
/// The most records of one listing.
const LISTED_MAX: usize = 1_000;

impl World {
    /// Makes the row of a message unreadable. Returns whether it is there still.
    pub async fn damage(&mut self, at: Origin) -> Checked<bool> {
        let key = self.log_key(at);
        let Some(row) = self.row(&key).await? else {
            return Ok(false);
        };
        self.put_row(&key, Bytes::from_static(DAMAGED)).await?;
        self.damaged.insert(key, row);
        Ok(true)
    }

    /// Makes the row of a message what it was. Returns whether it is there still.
    pub async fn repair(&mut self, at: Origin) -> Checked<bool> {
        let key = self.log_key(at);
        if self.row(&key).await?.as_deref() != Some(DAMAGED) {
            return Ok(false);
        }
        let Some(row) = self.damaged.remove(&key) else {
            return Ok(false);
        };
        self.put_row(&key, row).await?;
        Ok(true)
    }

    fn log_key(&self, at: Origin) -> Bytes {
        let queue = LogQueue {
            topic: self.topics[at.topic][at.life],
            queue: QueueId::new(at.queue),
        };
        let offset = Offset::new(at.offset);
        LogKey { queue, offset }.encode()
    }

    async fn row(&self, key: &Bytes) -> Checked<Option<Bytes>> {
        let row = self.life.rows().get(LOG, key).await;
        row.map_err(|error| unexpected(error.into()))
    }

    async fn put_row(&self, key: &Bytes, row: Bytes) -> Checked {
        let mut batch = WriteBatch::new();
        batch.put(LOG, key.clone(), row);
        let written = self.life.rows().write(batch, Durability::Synced).await;
        written.map_err(|error| unexpected(error.into()))
    }

    /// The records in quarantine.
    ///
    /// # Errors
    ///
    /// If one is there that nobody damaged.
    pub async fn put_away(&self) -> Checked<Result<Vec<PutAway>, BrokerError>> {
        let listed = match self.broker.quarantined(0, LISTED_MAX).await {
            Ok(listed) => listed,
            Err(error) => return Ok(Err(error)),
        };
        let mut all = Vec::new();
        for (place, record) in listed {
            all.push(PutAway {
                place,
                group: self.group_of_record(&record),
                origin: self.origin(&record).await?,
            });
        }
        Ok(Ok(all))
    }

    /// The group that a record is of, unless it is deleted.
    fn group_of_record(&self, record: &QuarantineRecord) -> Option<usize> {
        let key = record.key.clone();
        let id = if record.keyspace == LEASE.name() {
            LeaseKey::decode(key).ok().map(|key| key.queue.group)
        } else if record.keyspace == RETRY.name() {
            RetryKey::decode(key).ok().map(|key| key.group)
        } else {
            record.group
        };
        let (group, life) = self.group_of(id?)?;
        (life + 1 == self.groups[group].len()).then_some(group)
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
