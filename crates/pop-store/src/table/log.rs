//! The message log: by topic, queue and offset, on the store that holds everything else.

use std::{
    collections::{BTreeSet, HashMap},
    fmt::Debug,
    sync::Arc,
};

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use pop_model::{
    BodyChunkKey, BodyId, BodyPendingKey, CodecError, LogBounds, LogKey, LogQueue, Message,
    MessageBody, MetaKey, Offset, StoredKey, StoredValue,
    limits::{BODY_CHUNK_BYTES, INLINE_BODY_BYTES_MAX},
};

use super::{BODY, LOG, META, get_value, meta};
use crate::{Durability, Error, ErrorKind, Outcome, Result, Scan, Store, StoreExt, WriteBatch};

/// A message at its place in the log.
#[derive(Clone, Debug)]
pub struct LogEntry {
    /// Its place.
    pub offset: Offset,
    /// The message, or what is wrong with its row.
    pub message: Result<Message, CodecError>,
    /// The row as it is stored.
    pub row: Bytes,
}

/// An ordered log of messages per queue. Another log can take the place of [`StoreLog`].
#[async_trait]
pub trait MessageLog: Debug + Send + Sync + 'static {
    /// Appends a message and returns its offset once it is as durable as asked.
    ///
    /// # Errors
    ///
    /// [`Error::outcome`](crate::Error::outcome) tells a refused append from one in doubt.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the answer; the message may still be appended.
    async fn append(
        &self,
        queue: LogQueue,
        message: Message,
        durability: Durability,
    ) -> Result<Offset>;

    /// Reads the messages at exactly these ascending offsets. An offset where nothing
    /// lies is left out; nothing else is put in its place.
    ///
    /// # Errors
    ///
    /// The store's. A row that can't be decoded is an entry, not an error.
    async fn read(&self, queue: LogQueue, offsets: &[Offset]) -> Result<Vec<LogEntry>>;

    /// The first offset that may be there, and the end below which every append has an
    /// outcome: a reader stops there.
    ///
    /// # Errors
    ///
    /// The store's, when the queue is looked at for the first time.
    async fn bounds(&self, queue: LogQueue) -> Result<LogBounds>;

    /// The whole body of a message.
    ///
    /// # Errors
    ///
    /// The store's, or [`ErrorKind::Corrupt`] where a chunk is missing.
    async fn body(&self, message: &Message) -> Result<Bytes>;

    /// Ends the messages below `start`, for good.
    ///
    /// # Errors
    ///
    /// The store's.
    async fn retain(&self, queue: LogQueue, start: Offset) -> Result<()>;
}

/// The log in the store itself, so that a message can move in one batch with leases.
#[derive(Clone, Debug)]
pub struct StoreLog {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    store: Arc<dyn Store>,
    tails: Mutex<HashMap<LogQueue, Arc<Tail>>>,
    body_ids: Mutex<std::ops::Range<u64>>,
}

/// The end of a queue.
#[derive(Debug)]
struct Tail {
    queue: LogQueue,
    ends: Mutex<Ends>,
}

#[derive(Debug)]
struct Ends {
    start: Offset,
    next: Offset,
    // Given out, and its write has no outcome yet. Readers stop below the lowest.
    unresolved: BTreeSet<Offset>,
}

impl Ends {
    fn readable(&self) -> LogBounds {
        LogBounds {
            start: self.start,
            end: self.unresolved.first().copied().unwrap_or(self.next),
        }
    }
}

/// An offset that is given out, whose message is being written.
///
/// Dropping it says that nothing was written: the offset is used again if it was the
/// last, and is a hole that readers pass otherwise.
#[derive(Debug)]
#[must_use = "resolve the append once its write has an outcome"]
pub struct PendingAppend {
    tail: Arc<Tail>,
    offset: Offset,
    resolved: bool,
}

impl PendingAppend {
    /// The offset that the message gets.
    #[must_use]
    pub fn offset(&self) -> Offset {
        self.offset
    }

    /// Adds the message's row, which alone makes it exist.
    pub fn put(&self, batch: &mut WriteBatch, message: &Message) {
        let key = LogKey {
            queue: self.tail.queue,
            offset: self.offset,
        };
        batch.put(LOG, key.encode(), message.encode());
    }

    /// The batch is committed. Returns the offset.
    pub fn committed(mut self) -> Offset {
        self.resolved = true;
        self.tail.ends.lock().unresolved.remove(&self.offset);
        self.offset
    }

    /// Nobody knows about the batch: readers go on stopping here until the store was
    /// reopened.
    pub fn in_doubt(mut self) {
        self.resolved = true;
    }

    /// Goes on as the error of the write says.
    pub fn unsettled(self, outcome: Outcome) {
        match outcome {
            Outcome::Refused => drop(self),
            Outcome::InDoubt => self.in_doubt(),
        }
    }
}

impl Drop for PendingAppend {
    fn drop(&mut self) {
        if self.resolved {
            return;
        }
        let mut ends = self.tail.ends.lock();
        ends.unresolved.remove(&self.offset);
        if ends.next == self.offset.next() {
            ends.next = self.offset;
        }
    }
}

/// A body on its way into the log.
#[derive(Debug)]
pub struct StagedBody {
    /// What the message says of it.
    pub body: MessageBody,
    pending: Option<BodyPendingKey>,
}

impl StagedBody {
    /// Adds what makes the chunks belong to the message, in the batch with its row.
    pub fn adopt(&self, batch: &mut WriteBatch) {
        if let Some(pending) = self.pending {
            batch.delete(BODY, pending.encode());
        }
    }
}

impl StoreLog {
    /// How many body ids are taken from their counter at once.
    const BODY_IDS_AT_ONCE: u64 = 1_024;

    /// The log on `store`. Chunks that a crash left without a message are dropped.
    ///
    /// # Errors
    ///
    /// The store's.
    pub async fn open(store: Arc<dyn Store>) -> Result<Self> {
        sweep_orphans(store.as_ref()).await?;
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
    /// The store's, when the queue is looked at for the first time.
    pub async fn begin_append(&self, queue: LogQueue) -> Result<PendingAppend> {
        let tail = self.tail(queue).await?;
        let offset = {
            let mut ends = tail.ends.lock();
            let offset = ends.next;
            ends.next = offset.next();
            ends.unresolved.insert(offset);
            offset
        };
        Ok(PendingAppend {
            tail,
            offset,
            resolved: false,
        })
    }

    /// Makes a body ready to be referred to: a small one as it is, a large one as chunk
    /// rows under a fresh id. By prefix durability they are as durable as the message's
    /// row, which is written after them.
    ///
    /// # Errors
    ///
    /// The store's.
    pub async fn stage_body(&self, body: Bytes) -> Result<StagedBody> {
        if body.len() <= INLINE_BODY_BYTES_MAX {
            return Ok(StagedBody {
                body: MessageBody::Inline(body),
                pending: None,
            });
        }
        let bytes = u32::try_from(body.len()).map_err(|_| self.too_large(body.len()))?;
        let id = self.next_body_id().await?;
        let pending = BodyPendingKey { body: id };
        let mut rest = body;
        let mut chunk = 0;
        while !rest.is_empty() {
            let part = rest.split_to(rest.len().min(BODY_CHUNK_BYTES));
            let mut batch = WriteBatch::new();
            if chunk == 0 {
                batch.put(BODY, pending.encode(), Bytes::new());
            }
            batch.put(BODY, BodyChunkKey { body: id, chunk }.encode(), part);
            self.inner.store.write(batch, Durability::Buffered).await?;
            chunk += 1;
        }
        Ok(StagedBody {
            body: MessageBody::Chunked { id, bytes },
            pending: Some(pending),
        })
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
        let key = MetaKey::LogBounds(queue).encode();
        let stored = self.inner.store.get(META, &key).await?;
        let bounds = match &stored {
            None => LogBounds::default(),
            Some(row) => LogBounds::decode(row.clone()).map_err(|error| {
                super::value::corrupt(self.inner.store.as_ref(), META, &key, error)
            })?,
        };
        if end <= bounds.end {
            return Ok(());
        }
        // Neither end ever goes down, so a row that changed meanwhile is read again.
        match stored {
            None => batch.require_absent(META, key.clone()),
            Some(row) => batch.require(META, key.clone(), row),
        };
        batch.put(META, key, LogBounds { end, ..bounds }.encode());
        Ok(())
    }

    fn too_large(&self, bytes: usize) -> Error {
        Error::new(ErrorKind::Invalid, self.inner.store.name(), "append")
            .with_detail(format!("a body of {bytes} bytes is above every limit"))
    }

    async fn next_body_id(&self) -> Result<BodyId> {
        if let Some(id) = self.inner.body_ids.lock().next() {
            return Ok(BodyId::new(id));
        }
        let first = meta::take_numbers(
            self.inner.store.as_ref(),
            meta::BODY_COUNTER,
            Self::BODY_IDS_AT_ONCE,
        )
        .await?;
        // Whoever loses this race leaves ids unused, which costs nothing.
        *self.inner.body_ids.lock() = first + 1..first + Self::BODY_IDS_AT_ONCE;
        Ok(BodyId::new(first))
    }

    async fn tail(&self, queue: LogQueue) -> Result<Arc<Tail>> {
        if let Some(tail) = self.inner.tails.lock().get(&queue) {
            return Ok(Arc::clone(tail));
        }
        let ends = self.load_ends(queue).await?;
        // Two loads see the same rows: nothing is appended before one of them is in.
        let mut tails = self.inner.tails.lock();
        let tail = tails.entry(queue).or_insert_with(|| {
            Arc::new(Tail {
                queue,
                ends: Mutex::new(ends),
            })
        });
        Ok(Arc::clone(tail))
    }

    /// The ends of a queue: what was stored of them, or its rows where they say more.
    async fn load_ends(&self, queue: LogQueue) -> Result<Ends> {
        let store = self.inner.store.as_ref();
        let key = MetaKey::LogBounds(queue).encode();
        let stored: LogBounds = get_value(store, META, &key).await?.unwrap_or_default();
        let (start, end) = LogKey::queue_range(queue);
        let last = store
            .scan(LOG, Scan::range(start, end).backward().with_entries_max(1))
            .await?;
        let after_last = match last.into_iter().next() {
            None => Offset::ZERO,
            Some(entry) => {
                let key = LogKey::decode(entry.key.clone());
                let key =
                    key.map_err(|error| super::value::corrupt(store, LOG, &entry.key, error))?;
                key.offset.next()
            }
        };
        Ok(Ends {
            start: stored.start,
            next: stored.end.max(after_last),
            unresolved: BTreeSet::new(),
        })
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
                let at =
                    at.map_err(|error| super::value::corrupt(store, LOG, &entry.key, error))?;
                found.push(LogEntry {
                    offset: at.offset,
                    message: Message::decode(entry.value.clone()),
                    row: entry.value,
                });
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
        let tail = self.tail(queue).await?;
        let bounds = tail.ends.lock().readable();
        Ok(bounds)
    }

    async fn body(&self, message: &Message) -> Result<Bytes> {
        let (id, bytes) = match &message.body {
            MessageBody::Inline(body) => return Ok(body.clone()),
            MessageBody::Chunked { id, .. } => (*id, message.body.byte_count()),
        };
        let chunks =
            u32::try_from(bytes.div_ceil(BODY_CHUNK_BYTES)).map_err(|_| self.too_large(bytes))?;
        let keys: Vec<Bytes> = (0..chunks)
            .map(|chunk| BodyChunkKey { body: id, chunk }.encode())
            .collect();
        let mut whole = BytesMut::with_capacity(bytes);
        for chunk in self
            .inner
            .store
            .multi_get(BODY, &keys)
            .await?
            .into_iter()
            .flatten()
        {
            whole.extend_from_slice(&chunk);
        }
        if whole.len() != bytes {
            return Err(
                Error::new(ErrorKind::Corrupt, self.inner.store.name(), "read body").with_detail(
                    format!("body {id} has {} of its {bytes} bytes", whole.len()),
                ),
            );
        }
        Ok(whole.freeze())
    }

    async fn retain(&self, queue: LogQueue, start: Offset) -> Result<()> {
        let tail = self.tail(queue).await?;
        let bounds = tail.ends.lock().readable();
        let start = start.clamp(bounds.start, bounds.end);
        let (first, _) = LogKey::queue_range(queue);
        let mut batch = WriteBatch::new();
        batch.delete_range(
            LOG,
            first,
            LogKey {
                queue,
                offset: start,
            }
            .encode(),
        );
        let bounds = LogBounds {
            start,
            end: bounds.end,
        };
        batch.put(META, MetaKey::LogBounds(queue).encode(), bounds.encode());
        self.inner.store.write(batch, Durability::Synced).await?;
        tail.ends.lock().start = start;
        Ok(())
    }
}

/// Drops chunks whose message was never written.
async fn sweep_orphans(store: &dyn Store) -> Result<()> {
    let (start, end) = BodyPendingKey::range();
    let mut orphans = Vec::new();
    store
        .for_each_page(BODY, Scan::range(start, end), |entries| {
            for entry in entries {
                let key = BodyPendingKey::decode(entry.key.clone());
                orphans.push(
                    key.map_err(|error| super::value::corrupt(store, BODY, &entry.key, error))?,
                );
            }
            Ok::<_, Error>(true)
        })
        .await?;
    for orphan in orphans {
        let (start, end) = BodyChunkKey::body_range(orphan.body);
        let mut batch = WriteBatch::new();
        batch
            .delete_range(BODY, start, end)
            .delete(BODY, orphan.encode());
        store.write(batch, Durability::Buffered).await?;
        tracing::info!(
            body = orphan.body.get(),
            "dropped the chunks of a message that was never stored"
        );
    }
    Ok(())
}
