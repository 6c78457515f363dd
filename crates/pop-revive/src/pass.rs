//! One look at the due index, as a pure step: hints and rows in, what to do out.

use bytes::Bytes;
use pop_model::{Checkpoint, CodecError, DueKey, LeaseTime, StoredKey, StoredValue};
use pop_store::Entry;

/// A delivery whose time is up, with the row as it was read.
#[derive(Debug)]
pub struct Due {
    /// The hint that led here.
    pub hint: Bytes,
    /// When the hint says that the row is due.
    pub hinted_at: LeaseTime,
    /// The key of the lease row.
    pub row_key: Bytes,
    /// The row's bytes: the batch that settles it requires them unchanged.
    pub row: Bytes,
    /// The row, decoded.
    pub checkpoint: Checkpoint,
}

/// What one hint of the due index stands for.
#[derive(Debug)]
pub enum Classified {
    /// Its delivery is due.
    Due(Box<Due>),
    /// Its delivery was renewed and is due later: the hint moves there.
    Moved(Box<Due>),
    /// Its delivery is settled: the hint is litter.
    Dead {
        /// The hint's key.
        hint: Bytes,
        /// When it was due.
        hinted_at: LeaseTime,
    },
    /// Its row can't be decoded: row and hint go to quarantine.
    BadRow {
        /// The hint's key.
        hint: Bytes,
        /// When it was due.
        hinted_at: LeaseTime,
        /// The key of the lease row.
        row_key: Bytes,
        /// The row's bytes.
        row: Bytes,
        /// What is wrong with them.
        error: CodecError,
    },
}

/// Says what `hint` stands for, given the lease row that it points at.
///
/// The row is the truth and the hint only a reason to look: a renewal writes the row
/// alone, so a row due later than its hint is in order.
#[must_use]
pub fn classify(hint: &Entry, key: &DueKey, row: Option<Bytes>, now: LeaseTime) -> Classified {
    let hinted_at = key.visible_at;
    let hint = hint.key.clone();
    let row_key = key.lease_key().encode();
    let Some(row) = row else {
        return Classified::Dead { hint, hinted_at };
    };
    match Checkpoint::decode(row.clone()) {
        Err(error) => Classified::BadRow {
            hint,
            hinted_at,
            row_key,
            row,
            error,
        },
        Ok(checkpoint) => {
            let later = checkpoint.visible_at > now;
            let due = Box::new(Due {
                hint,
                hinted_at,
                row_key,
                row,
                checkpoint,
            });
            if later {
                Classified::Moved(due)
            } else {
                Classified::Due(due)
            }
        }
    }
}
