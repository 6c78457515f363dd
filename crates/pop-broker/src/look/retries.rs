//! A look at a retry queue: its entries are handed out like the messages of any other.

use std::sync::Arc;

use bytes::Bytes;
use pop_model::{Message, Offset, RetryEntry, StoredKey, StoredValue};
use pop_store::table::RETRY;

use super::{Bad, FILTERED_MAX, Found, Look, Wanted};
use crate::BrokerError;

impl Look<'_> {
    /// Hands out messages that are ready for another delivery.
    pub(super) async fn retries(&mut self) -> Result<(), BrokerError> {
        let queue = self.consumption.retry_queue();
        let core = Arc::clone(&self.core);
        let mut passed_over = 0;
        while !self.room.is_full() && passed_over < FILTERED_MAX {
            let bounds = self.consumption.retry.lock().bounds();
            if bounds.end == Offset::ZERO {
                return Ok(());
            }
            let (_, mut reserved) = self.reserve(queue, self.room.messages, bounds).await?;
            if reserved.is_empty() {
                return Ok(());
            }
            let sequences = reserved.offsets().to_vec();
            let keys: Vec<Bytes> = sequences
                .iter()
                .map(|sequence| self.consumption.retry_key(*sequence).encode())
                .collect();
            let rows = core.store.multi_get(RETRY, &keys).await?;
            let mut bytes = self.room.bytes;
            let mut is_first = true;
            for ((sequence, key), row) in sequences.into_iter().zip(keys).zip(rows) {
                // The write of an entry was refused: a sequence without one.
                let Some(row) = row else {
                    reserved.skip(&[sequence]);
                    continue;
                };
                match self.retry(row.clone(), bytes, is_first).await? {
                    Retry::Wanted(entry, message, body) => {
                        is_first = false;
                        bytes = bytes.saturating_sub(body.len());
                        let wanted = Wanted {
                            offset: sequence,
                            place: entry.offset,
                            message,
                            body,
                            source: entry.source,
                            attempt: entry.delivery_attempt,
                        };
                        self.lease(&mut reserved, vec![wanted], entry.delivery_attempt)
                            .await?;
                    }
                    Retry::Skipped => {
                        passed_over += 1;
                        reserved.skip(&[sequence]);
                    }
                    Retry::Bad(reason) => {
                        let bad = Bad {
                            offset: sequence,
                            row,
                            reason,
                        };
                        self.quarantine(queue, &mut reserved, RETRY, key, bad)
                            .await?;
                    }
                    Retry::DoesNotFit => break,
                }
            }
        }
        if passed_over >= FILTERED_MAX {
            // A filter or a reset passed over this many and there are more.
            self.consumption.wake();
        }
        Ok(())
    }

    /// What a retry entry stands for now.
    async fn retry(&self, row: Bytes, bytes: usize, is_first: bool) -> Result<Retry, BrokerError> {
        let entry = match RetryEntry::decode(row) {
            Ok(entry) => entry,
            Err(error) => return Ok(Retry::Bad(error.to_string())),
        };
        if self.core.is_void(&self.consumption, &entry).await? {
            return Ok(Retry::Skipped);
        }
        let found = self.core.log.referenced(entry.source, entry.offset);
        let Some(found) = found.await? else {
            tracing::warn!(
                ?entry,
                "a message that was to be delivered again is no longer in the log"
            );
            return Ok(Retry::Skipped);
        };
        Ok(match self.fetch(found, bytes, is_first).await? {
            Found::Wanted(message, body) => Retry::Wanted(entry, message, body),
            Found::Skipped => Retry::Skipped,
            Found::Bad(_, reason) => Retry::Bad(reason),
            Found::DoesNotFit => Retry::DoesNotFit,
        })
    }
}

#[allow(
    clippy::large_enum_variant,
    reason = "one at a time, on its way into a delivery"
)]
enum Retry {
    Wanted(RetryEntry, Message, Bytes),
    Skipped,
    Bad(String),
    DoesNotFit,
}
