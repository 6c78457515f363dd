//! What a message log is, whoever keeps it.

use std::fmt::Debug;

use async_trait::async_trait;
use bytes::Bytes;
use pop_model::{CodecError, LogBounds, LogQueue, Message, Offset, StoredValue};

use crate::{Durability, Result};

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

impl LogEntry {
    pub(super) fn new(offset: Offset, row: Bytes) -> Self {
        Self {
            offset,
            message: Message::decode(row.clone()),
            row,
        }
    }
}

/// An ordered log of messages per queue. Another log can take the place of
/// [`StoreLog`](super::StoreLog).
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
    /// lies, or that is below the start, is left out; nothing else is put in its place.
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
    /// The store's, or [`ErrorKind::Corrupt`](crate::ErrorKind::Corrupt) where a chunk is missing.
    async fn body(&self, message: &Message) -> Result<Bytes>;

    /// Ends the messages below `start`, for good: from then on nobody reads them who does
    /// not refer to them already. The start never goes down, and never above the readable
    /// end. Returns the bounds after it.
    ///
    /// # Errors
    ///
    /// The store's; a refused one changed nothing.
    async fn retain(&self, queue: LogQueue, start: Offset) -> Result<LogBounds>;
}
