//! The message log: by topic, queue and offset, on the store that holds everything else.

mod body;
mod bounds;
mod message_log;
mod retain;
mod seek;
mod tail;

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use pop_model::{
    LogBounds, LogKey, LogQueue, Message, MessageBody, Mutant, Offset, StoredKey, TopicId,
};

use super::{LOG, retained, value::corrupt};
use crate::{Durability, Error, ErrorKind, Result, Scan, Store, StoreExt, WriteBatch};

pub use body::StagedBody;
pub(super) use body::remove as remove_body;
pub use message_log::{LogEntry, MessageLog};
pub use retain::{Sweep, Swept};
pub use tail::PendingAppend;
use tail::Tail;

/// The log in the store itself, so that a message can move in one batch with leases.
#[derive(Clone, Debug)]
pub struct StoreLog {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    store: Arc<dyn Store>,
    tails: Mutex<Tails>,
    body_ids: Mutex<std::ops::Range<u64>>,
}

#[derive(Debug, Default)]
struct Tails {
    open: HashMap<LogQueue, Arc<Tail>>,
    // Whoever still holds such a topic must not open a queue of it again.
    closed: HashSet<TopicId>,
}

impl StoreLog {
    /// The log on `store`. Chunks that a crash left without a message are dropped.
    ///
    /// # Errors
    ///
    /// The store's.
    pub async fn open(store: Arc<dyn Store>) -> Result<Self> {
        body::sweep_orphans(store.as_ref()).await?;
        Ok(Self {
            inner: Arc::new(Inner {
                store,
                tails: Mutex::default(),
                body_ids: Mutex::new(0..0),
            }),
        })
    }

    /// Gives out the next offset of a queue.
    ///
    /// # Errors
    ///
    /// The store's, when the queue is looked at for the first time; a conflict where the
    /// topic was closed.
    pub async fn begin_append(&self, queue: LogQueue) -> Result<PendingAppend> {
        let tail = self.tail(queue).await?;
        tail.begin().ok_or_else(|| self.closed(queue.topic))
    }

    /// Closes a topic that is deleted: once this returns nothing is appended to it, and
    /// no append is on its way.
    ///
    /// # Errors
    ///
    /// In doubt if an append is; closing it again after the store was opened anew works.
    pub async fn close_topic(&self, topic: TopicId) -> Result<()> {
        let closing: Vec<_> = {
            let mut tails = self.inner.tails.lock();
            tails.closed.insert(topic);
            let of_topic = |queue: &LogQueue, _: &mut Arc<Tail>| queue.topic == topic;
            tails.open.extract_if(of_topic).collect()
        };
        for (queue, tail) in closing {
            if !tail.close().await {
                let error = Error::new(ErrorKind::InDoubt, self.inner.store.name(), "close topic");
                let detail = format!("an append to queue {} of it has no outcome", queue.queue);
                return Err(error.with_detail(detail));
            }
        }
        Ok(())
    }

    /// The message that a lease row or a retry entry refers to: in the log, also below its
    /// start while it is there, or as retention kept it. `None` where retention or a
    /// deletion ended it.
    ///
    /// # Errors
    ///
    /// The store's. A row that can't be decoded is an entry, not an error.
    pub async fn referenced(&self, queue: LogQueue, offset: Offset) -> Result<Option<LogEntry>> {
        let store = self.inner.store.as_ref();
        // In this order: retention moves a row from here to there in one batch.
        let row = store.get(LOG, &LogKey { queue, offset }.encode()).await?;
        let row = match row {
            Some(row) => Some(row),
            None => retained::get(store, queue, offset).await?,
        };
        Ok(row.map(|row| LogEntry::new(offset, row)))
    }

    /// Adds the end of a queue to a batch that settles offsets below it where no message
    /// lies. Refused appends leave such holes; at the end of a queue its rows don't tell of
    /// them, and after a restart an offset that consumers have passed would be given out
    /// again, to a message that nobody would ever get.
    ///
    /// # Errors
    ///
    /// The store's.
    pub async fn put_end(
        &self,
        batch: &mut WriteBatch,
        queue: LogQueue,
        end: Offset,
    ) -> Result<()> {
        let stored = bounds::end(self.inner.store.as_ref(), queue).await?;
        // It never goes down, so one that was raised meanwhile is read again.
        bounds::raise_end(batch, queue, stored, end);
        Ok(())
    }

    /// Stores the end of a queue, so that no offset below it is ever given out again.
    ///
    /// # Errors
    ///
    /// The store's.
    pub async fn store_end(&self, queue: LogQueue, end: Offset) -> Result<()> {
        loop {
            let mut batch = WriteBatch::new();
            self.put_end(&mut batch, queue, end).await?;
            match self.inner.store.write(batch, Durability::Buffered).await {
                Err(error) if error.kind() == ErrorKind::Conflict => {}
                other => return other,
            }
        }
    }

    fn closed(&self, topic: TopicId) -> Error {
        Error::new(ErrorKind::Conflict, self.inner.store.name(), "append")
            .with_detail(format!("topic {topic} is deleted"))
    }

    /// The end of a queue when this run began: what lies below it was there before, and
    /// what lies above has come since.
    ///
    /// # Errors
    ///
    /// The store's, when the queue is looked at for the first time.
    pub async fn found_end(&self, queue: LogQueue) -> Result<Offset> {
        Ok(self.tail(queue).await?.found_end)
    }

    /// The bounds of a queue that was looked at in this run: nothing is read.
    #[must_use]
    pub fn open_bounds(&self, queue: LogQueue) -> Option<LogBounds> {
        let tails = self.inner.tails.lock();
        tails.open.get(&queue).map(|tail| tail.readable())
    }

    async fn tail(&self, queue: LogQueue) -> Result<Arc<Tail>> {
        if let Some(tail) = self.inner.tails.lock().open.get(&queue) {
            return Ok(Arc::clone(tail));
        }
        let loaded = self.load_tail(queue).await?;
        // Two loads see the same rows: nothing is appended before one of them is in.
        let mut tails = self.inner.tails.lock();
        if tails.closed.contains(&queue.topic) {
            return Err(self.closed(queue.topic));
        }
        Ok(Arc::clone(tails.open.entry(queue).or_insert(loaded)))
    }

    /// The ends of a queue: what was stored of them, or its rows where they say more.
    async fn load_tail(&self, queue: LogQueue) -> Result<Arc<Tail>> {
        let store = self.inner.store.as_ref();
        let start = bounds::start(store, queue).await?;
        let mut stored_end = bounds::end(store, queue).await?.unwrap_or_default();
        if Mutant::LogEndGoesBack.is_on() {
            stored_end = Offset::ZERO;
        }
        // Rows below the start may be left, and what is deleted there is not walked.
        let first = LogKey {
            queue,
            offset: start,
        };
        let (_, end) = LogKey::queue_range(queue);
        let scan = Scan::range(first.encode(), end).backward();
        let last = store.scan(LOG, scan.with_entries_max(1)).await?;
        let after_last = match last.into_iter().next() {
            None if Mutant::LogEndGoesBack.is_on() => Offset::ZERO,
            // An emptied queue goes on where it was.
            None => start,
            Some(entry) => {
                let key = LogKey::decode(entry.key.clone());
                let key = key.map_err(|error| corrupt(store, LOG, &entry.key, error))?;
                key.offset.next()
            }
        };
        Ok(Tail::new(queue, start, stored_end.max(after_last)))
    }

    /// Reads `first..end`, page by page.
    async fn read_run(
        &self,
        queue: LogQueue,
        first: Offset,
        end: Offset,
        found: &mut Vec<LogEntry>,
    ) -> Result<()> {
        let key = |offset| LogKey { queue, offset }.encode();
        let store = self.inner.store.as_ref();
        let scan = Scan::range(key(first), key(end));
        let decode = |entries: Vec<crate::Entry>| {
            for entry in entries {
                let at = LogKey::decode(entry.key.clone());
                let at = at.map_err(|error| corrupt(store, LOG, &entry.key, error))?;
                found.push(LogEntry::new(at.offset, entry.value));
            }
            // The last offset asked for is there, or one more page says that it is not.
            Ok::<_, Error>(found.last().is_none_or(|entry| entry.offset.next() < end))
        };
        store.for_each_page(LOG, scan, decode).await
    }
}

#[async_trait]
impl MessageLog for StoreLog {
    async fn append(
        &self,
        queue: LogQueue,
        mut message: Message,
        durability: Durability,
    ) -> Result<Offset> {
        let body = match message.body {
            MessageBody::Inline(body) => self.stage_body(body).await?,
            body @ MessageBody::Chunked { .. } => StagedBody {
                body,
                pending: None,
            },
        };
        let mut batch = WriteBatch::new();
        body.adopt(&mut batch);
        message.body = body.body;
        let pending = self.begin_append(queue).await?;
        pending.put(&mut batch, &message);
        match self.inner.store.settle(pending, batch, durability).await {
            Ok(appended) => Ok(appended.into_work().committed()),
            Err(unsettled) => {
                unsettled.work.unsettled(unsettled.error.outcome());
                Err(unsettled.error)
            }
        }
    }

    async fn read(&self, queue: LogQueue, offsets: &[Offset]) -> Result<Vec<LogEntry>> {
        let start = self.tail(queue).await?.readable().start;
        let below = offsets.partition_point(|offset| *offset < start);
        let offsets = offsets.get(below..).unwrap_or_default();
        let mut found = Vec::with_capacity(offsets.len());
        for run in offsets.chunk_by(|left, right| left.next() == *right) {
            if let (Some(first), Some(last)) = (run.first(), run.last()) {
                self.read_run(queue, *first, last.next(), &mut found)
                    .await?;
            }
        }
        Ok(found)
    }

    async fn bounds(&self, queue: LogQueue) -> Result<LogBounds> {
        Ok(self.tail(queue).await?.readable())
    }

    async fn body(&self, message: &Message) -> Result<Bytes> {
        self.read_body(message).await
    }

    async fn retain(&self, queue: LogQueue, start: Offset) -> Result<LogBounds> {
        self.raise_start(queue, start).await
    }
}
