//! The ancestor's layout on our stores: the honest peer of the benches about leases.
//!
//! A record is JSON under (deadline, group, topic, queue, offset). Each call is a synced
//! write of its own, each delete a single one, one lock covers a whole group and topic, and
//! a revive writes the body again, into the retry topic, before it deletes the record.

use std::{collections::HashMap, sync::Arc, time::Duration};

use bytes::{BufMut, Bytes};
use pop_store::{
    Durability, Store, WriteBatch,
    table::{LEASE, LOG},
};
use serde::Serialize;
use tokio::sync::Mutex;

/// A checkpoint as the ancestor stores it.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// When it was handed out.
    pub pop_time: u64,
    /// Who consumes.
    pub group_id: String,
    /// What is consumed.
    pub topic_id: String,
    /// Which queue of it.
    pub queue_id: u32,
    /// From which kind of topic.
    pub retry_flag: u32,
    /// How long it is hidden, in milliseconds.
    pub invisible_time: u64,
    /// Which message.
    pub offset: u64,
    /// Failed revives so far.
    pub attempt_times: u32,
    /// The client's name for the receive.
    pub attempt_id: String,
    /// The next delivery does not count.
    pub suspend: bool,
}

impl Record {
    /// A record of message `offset`.
    #[must_use]
    pub fn new(offset: u64) -> Self {
        Self {
            pop_time: 1_000_000,
            group_id: "bench".into(),
            topic_id: "orders".into(),
            queue_id: 0,
            retry_flag: 0,
            invisible_time: 30_000,
            offset,
            attempt_times: 0,
            attempt_id: String::new(),
            suspend: false,
        }
    }

    fn key(&self) -> Bytes {
        let mut key = Vec::new();
        key.put_u64(self.pop_time + self.invisible_time);
        key.extend_from_slice(self.group_id.as_bytes());
        key.push(b'@');
        key.extend_from_slice(self.topic_id.as_bytes());
        key.push(b'@');
        key.put_u32(self.queue_id);
        key.push(b'@');
        key.put_u64(self.offset);
        key.into()
    }

    fn value(&self) -> Bytes {
        serde_json::to_vec(self).expect("a record is plain").into()
    }
}

type Lock = Arc<Mutex<()>>;

/// The ancestor's consumer service, as far as leases go.
#[derive(Debug)]
pub struct Ancestor {
    store: Arc<dyn Store>,
    locks: parking_lot::Mutex<HashMap<(String, String), Lock>>,
}

impl Ancestor {
    /// On a store of ours.
    #[must_use]
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self {
            store,
            locks: parking_lot::Mutex::default(),
        }
    }

    fn lock(&self, record: &Record) -> Lock {
        let mut locks = self.locks.lock();
        let of = (record.group_id.clone(), record.topic_id.clone());
        Arc::clone(locks.entry(of).or_default())
    }

    async fn write(&self, batch: WriteBatch) {
        let written = self.store.write(batch, Durability::Synced).await;
        written.expect("the store takes it");
    }

    /// Stores the records of a receive: one synced batch.
    pub async fn pop(&self, records: &[Record]) {
        let Some(first) = records.first() else { return };
        let lock = self.lock(first);
        let _held = lock.lock().await;
        let mut batch = WriteBatch::new();
        for record in records {
            batch.put(LEASE, record.key(), record.value());
        }
        self.write(batch).await;
    }

    /// Deletes a record: one synced write.
    pub async fn ack(&self, record: &Record) {
        let lock = self.lock(record);
        let _held = lock.lock().await;
        let mut batch = WriteBatch::new();
        batch.delete(LEASE, record.key());
        self.write(batch).await;
    }

    /// Appends the message to the retry topic and deletes the record: two synced writes.
    pub async fn revive(&self, record: &Record, body: &Bytes) {
        let mut batch = WriteBatch::new();
        batch.put(LOG, record.key(), body.clone());
        self.write(batch).await;
        let mut batch = WriteBatch::new();
        batch.delete(LEASE, record.key());
        self.write(batch).await;
    }

    /// Changes how long a record is hidden: a new record, which it returns, then a delete of
    /// the old one.
    pub async fn change(&self, record: &Record, invisible_for: Duration) -> Record {
        let changed = Record {
            invisible_time: u64::try_from(invisible_for.as_millis()).unwrap_or(u64::MAX),
            ..record.clone()
        };
        let mut batch = WriteBatch::new();
        batch.put(LEASE, changed.key(), changed.value());
        self.write(batch).await;
        let mut batch = WriteBatch::new();
        batch.delete(LEASE, record.key());
        self.write(batch).await;
        changed
    }
}
