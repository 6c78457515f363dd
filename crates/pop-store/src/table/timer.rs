//! Messages that enter their queue later, by shard and moment of wall time.

use bytes::{BufMut, Bytes};
use pop_model::{
    CodecError, LogQueue, Message, QueueId, ShardId, StoredKey, StoredValue, TimerKey, TopicId,
    WallTime,
    codec::{reader::Reader, value::write_bytes},
};

use super::{TIMER, value::corrupt};
use crate::{Result, Scan, Store, WriteBatch};

/// A message that waits, and where it goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timer {
    /// The queue that it enters.
    pub queue: LogQueue,
    /// The message.
    pub message: Message,
}

impl StoredValue for Timer {
    const WHAT: &'static str = "timer";

    fn write(&self, out: &mut Vec<u8>) {
        out.put_u64(self.queue.topic.get());
        out.put_u32(self.queue.queue.get());
        write_bytes(out, &self.message.encode());
    }

    fn read(reader: &mut Reader) -> Result<Self, CodecError> {
        Ok(Self {
            queue: LogQueue {
                topic: TopicId::new(reader.u64()?),
                queue: QueueId::new(reader.u32()?),
            },
            message: Message::decode(reader.bytes()?)?,
        })
    }

    fn size_hint(&self) -> usize {
        512 + self.message.body.byte_count()
    }
}

/// A timer whose moment has come.
#[derive(Clone, Debug)]
pub struct DueTimer {
    /// Its key.
    pub key: TimerKey,
    /// The row as it is stored: the batch that ends it requires it unchanged.
    pub row: Bytes,
    /// The timer, or what is wrong with its row.
    pub timer: Result<Timer, CodecError>,
}

/// Adds a timer.
pub fn put(batch: &mut WriteBatch, key: TimerKey, timer: &Timer) {
    batch.put(TIMER, key.encode(), timer.encode());
}

/// Ends the timer that was read as `row`, in the batch with what becomes of its message.
pub fn remove(batch: &mut WriteBatch, key: TimerKey, row: Bytes) {
    batch.require(TIMER, key.encode(), row);
    batch.delete(TIMER, key.encode());
}

/// Reads up to `count` timers of a shard whose moment is before `until`, earliest first.
///
/// # Errors
///
/// The store's, or a key that can't be decoded. A row that can't be is in its entry.
///
/// # Cancel safety
///
/// It only reads.
pub async fn due(
    store: &dyn Store,
    shard: ShardId,
    until: WallTime,
    count: usize,
) -> Result<Vec<DueTimer>> {
    let (start, end) = TimerKey::range_until(shard, until);
    let scan = Scan::range(start, end).with_entries_max(count);
    let entries = store.scan(TIMER, scan).await?;
    let due = |entry: crate::Entry| {
        let key = TimerKey::decode(entry.key.clone());
        Ok(DueTimer {
            key: key.map_err(|error| corrupt(store, TIMER, &entry.key, error))?,
            timer: Timer::decode(entry.value.clone()),
            row: entry.value,
        })
    };
    entries.into_iter().map(due).collect()
}

#[cfg(test)]
mod tests {
    use pop_model::{BodyEncoding, MessageBody, MessageKind};

    use super::*;
    use crate::{Durability, MemStore, table::KEYSPACES};

    fn timer(id: &str) -> Timer {
        Timer {
            queue: LogQueue {
                topic: TopicId::new(7),
                queue: QueueId::new(3),
            },
            message: Message {
                message_id: id.into(),
                kind: MessageKind::Delay,
                tag: None,
                keys: Vec::new(),
                message_group: None,
                encoding: BodyEncoding::Identity,
                born_at: WallTime::default(),
                born_host: String::new(),
                stored_at: WallTime::default(),
                deliver_at: Some(WallTime::from_unix_millis(5)),
                trace_context: None,
                priority: None,
                properties: Vec::new(),
                origin: None,
                body_md5: [0; 16],
                body: MessageBody::Inline(Bytes::from_static(b"later")),
            },
        }
    }

    fn key(due: i64, sequence: u64) -> TimerKey {
        TimerKey {
            shard: ShardId::new(9).unwrap(),
            due: WallTime::from_unix_millis(due),
            sequence,
        }
    }

    #[tokio::test]
    async fn timers_come_in_the_order_of_their_moments_and_not_before() {
        let store = MemStore::new(&KEYSPACES);
        let mut batch = WriteBatch::new();
        for (at, sequence) in [(30, 1), (-10, 2), (20, 3), (20, 1)] {
            put(
                &mut batch,
                key(at, sequence),
                &timer(&format!("{at}/{sequence}")),
            );
        }
        store.write(batch, Durability::Synced).await.unwrap();
        let shard = ShardId::new(9).unwrap();
        let due = due(&store, shard, WallTime::from_unix_millis(30), 9)
            .await
            .unwrap();
        let ids: Vec<_> = due
            .iter()
            .map(|due| due.timer.as_ref().unwrap().message.message_id.as_str())
            .collect();
        // Mutant: the end of the range is inclusive; the one at 30 would come at 29.
        assert_eq!(ids, ["-10/2", "20/1", "20/3"]);
        assert_eq!(due[1].timer, Ok(timer("20/1")));
    }

    #[tokio::test]
    async fn a_timer_ends_once_and_only_as_it_was_read() {
        let store = MemStore::new(&KEYSPACES);
        let mut batch = WriteBatch::new();
        put(&mut batch, key(1, 1), &timer("a"));
        store.write(batch, Durability::Synced).await.unwrap();
        let row = timer("a").encode();
        for (row, fires) in [
            (timer("b").encode(), false),
            (row.clone(), true),
            (row, false),
        ] {
            let mut batch = WriteBatch::new();
            remove(&mut batch, key(1, 1), row);
            // Mutant: the row is not required; two loops would both deliver the message.
            assert_eq!(store.write(batch, Durability::Synced).await.is_ok(), fires);
        }
    }
}
