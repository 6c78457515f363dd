//! Finding an offset by the moment at which its message was stored.

use pop_model::{LogKey, LogQueue, Message, Offset, StoredKey, StoredValue, WallTime};

use super::{MessageLog, StoreLog};
use crate::{
    Result, Scan,
    table::{LOG, value::corrupt},
};

impl StoreLog {
    /// The first offset whose message was stored at or after `moment`; the end of the queue
    /// if there is none.
    ///
    /// The wall clock may have been set back while messages were stored: then it is one of
    /// the offsets at which the clock passed `moment`.
    ///
    /// # Errors
    ///
    /// The store's, or a message that can't be decoded.
    pub async fn offset_at(&self, queue: LogQueue, moment: WallTime) -> Result<Offset> {
        let bounds = self.bounds(queue).await?;
        let (mut low, mut high) = (bounds.start.get(), bounds.end.get());
        while low < high {
            let middle = low + (high - low) / 2;
            match self
                .stored_at(queue, Offset::new(middle), bounds.end)
                .await?
            {
                // Nothing lies from there to the end.
                None => high = middle,
                Some((offset, stored_at)) if stored_at < moment => low = offset.next().get(),
                Some(_) => high = middle,
            }
        }
        Ok(Offset::new(low))
    }

    /// The first message in `from..end`, and when it was stored.
    async fn stored_at(
        &self,
        queue: LogQueue,
        from: Offset,
        end: Offset,
    ) -> Result<Option<(Offset, WallTime)>> {
        let store = self.inner.store.as_ref();
        let key = |offset| LogKey { queue, offset }.encode();
        let scan = Scan::range(key(from), key(end)).with_entries_max(1);
        let Some(entry) = store.scan(LOG, scan).await?.into_iter().next() else {
            return Ok(None);
        };
        let wrong = |error| corrupt(store, LOG, &entry.key, error);
        let offset = LogKey::decode(entry.key.clone()).map_err(wrong)?.offset;
        let message = Message::decode(entry.value.clone()).map_err(wrong)?;
        Ok(Some((offset, message.stored_at)))
    }
}
