//! Bodies: in the message's row, or in chunk rows of their own.

use bytes::{Bytes, BytesMut};
use pop_model::{
    BodyChunkKey, BodyId, BodyPendingKey, Message, MessageBody, StoredKey,
    limits::{BODY_CHUNK_BYTES, INLINE_BODY_BYTES_MAX},
};

use super::StoreLog;
use crate::{
    Durability, Error, ErrorKind, Result, Scan, Store, StoreExt, WriteBatch,
    table::{BODY, meta, value::corrupt},
};

/// How many body ids are taken from their counter at once.
const BODY_IDS_AT_ONCE: u64 = 1_024;

/// A body on its way into the log.
#[derive(Debug)]
pub struct StagedBody {
    /// What the message says of it.
    pub body: MessageBody,
    pub(super) pending: Option<BodyPendingKey>,
}

impl StagedBody {
    /// Adds what makes the chunks belong to the message, in the batch with its row.
    pub fn adopt(&self, batch: &mut WriteBatch) {
        if let Some(pending) = self.pending {
            batch.delete(BODY, pending.encode());
        }
    }
}

/// Adds the end of a body that has chunk rows.
pub(in crate::table) fn remove(batch: &mut WriteBatch, body: &MessageBody) {
    if let MessageBody::Chunked { id, .. } = body {
        let (start, end) = BodyChunkKey::body_range(*id);
        batch.delete_range(BODY, start, end);
    }
}

impl StoreLog {
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

    pub(super) async fn read_body(&self, message: &Message) -> Result<Bytes> {
        let (id, bytes) = match &message.body {
            MessageBody::Inline(body) => return Ok(body.clone()),
            MessageBody::Chunked { id, .. } => (*id, message.body.byte_count()),
        };
        let chunks =
            u32::try_from(bytes.div_ceil(BODY_CHUNK_BYTES)).map_err(|_| self.too_large(bytes))?;
        let keys: Vec<Bytes> = (0..chunks)
            .map(|chunk| BodyChunkKey { body: id, chunk }.encode())
            .collect();
        let found = self.inner.store.multi_get(BODY, &keys).await?;
        let mut whole = BytesMut::with_capacity(bytes);
        for chunk in found.into_iter().flatten() {
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

    fn too_large(&self, bytes: usize) -> Error {
        Error::new(ErrorKind::Invalid, self.inner.store.name(), "append")
            .with_detail(format!("a body of {bytes} bytes is above every limit"))
    }

    async fn next_body_id(&self) -> Result<BodyId> {
        if let Some(id) = self.inner.body_ids.lock().next() {
            return Ok(BodyId::new(id));
        }
        let store = self.inner.store.as_ref();
        let first = meta::take_numbers(store, meta::BODY_COUNTER, BODY_IDS_AT_ONCE).await?;
        // Whoever loses this race leaves ids unused, which costs nothing.
        *self.inner.body_ids.lock() = first + 1..first + BODY_IDS_AT_ONCE;
        Ok(BodyId::new(first))
    }
}

/// Drops chunks whose message was never written.
pub(super) async fn sweep_orphans(store: &dyn Store) -> Result<()> {
    let (start, end) = BodyPendingKey::range();
    let mut orphans = Vec::new();
    store
        .for_each_page(BODY, Scan::range(start, end), |entries| {
            for entry in entries {
                let key = BodyPendingKey::decode(entry.key.clone());
                orphans.push(key.map_err(|error| corrupt(store, BODY, &entry.key, error))?);
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
