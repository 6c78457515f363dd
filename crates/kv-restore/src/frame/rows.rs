//! Rows as a chunk carries them: a count, then keyspace, lengths, key and value of each.

use bytes::{BufMut, Bytes, BytesMut};
use pop_store::Entry;

use super::{FrameError, wire::Reader};
use crate::digest::Digest;

/// Bytes before key and value of a row that are hashed with it: its two lengths.
pub(crate) const ROW_HEAD_BYTES: usize = 8;

const KEYSPACE_BYTES: usize = 2;
const COUNT_BYTES: usize = 4;

/// A row of one of the snapshot's keyspaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Which of them.
    pub keyspace: u16,
    /// Key and value.
    pub entry: Entry,
}

/// Writes the part of a row that its digest covers.
pub(crate) fn put_row(into: &mut BytesMut, entry: &Entry) {
    into.put_u32(length(&entry.key));
    into.put_u32(length(&entry.value));
    into.put_slice(&entry.key);
    into.put_slice(&entry.value);
}

// A length that does not fit belongs to no row that a store could hold; it is refused by
// the limits of the frame, whatever is written here.
fn length(bytes: &[u8]) -> u32 {
    u32::try_from(bytes.len()).unwrap_or(u32::MAX)
}

/// Collects the rows of one chunk.
#[derive(Debug)]
pub(crate) struct RowsWriter {
    bytes: BytesMut,
    count: u32,
}

impl RowsWriter {
    pub(crate) fn new(capacity: usize) -> Self {
        let mut bytes = BytesMut::with_capacity(capacity.saturating_add(COUNT_BYTES));
        bytes.put_u32(0);
        Self { bytes, count: 0 }
    }

    /// Adds a row, to the chunk and to the totals.
    pub(crate) fn add(&mut self, row: &Row, seed: u64, totals: &mut Digest) {
        self.bytes.put_u16(row.keyspace);
        let start = self.bytes.len();
        put_row(&mut self.bytes, &row.entry);
        let bytes = row.entry.key.len() + row.entry.value.len();
        totals.add_encoded(seed, self.bytes.get(start..).unwrap_or_default(), bytes);
        self.count += 1;
    }

    pub(crate) fn finish(mut self) -> Bytes {
        if let Some(count) = self.bytes.get_mut(..COUNT_BYTES) {
            count.copy_from_slice(&self.count.to_be_bytes());
        }
        self.bytes.freeze()
    }
}

/// Reads the rows of a chunk, one after another.
///
/// The count is only compared with what is there, so that a large one costs nothing.
#[derive(Debug)]
pub(crate) struct RowsReader {
    reader: Reader,
    left: u32,
}

/// A row, and its bytes as the digest covers them.
#[derive(Debug)]
pub(crate) struct ReadRow {
    pub(crate) row: Row,
    pub(crate) encoded: Bytes,
}

impl RowsReader {
    pub(crate) fn new(payload: Bytes) -> Result<Self, FrameError> {
        let mut reader = Reader::new(payload);
        let left = reader.u32()?;
        let least =
            u64::from(left) * u64::try_from(KEYSPACE_BYTES + ROW_HEAD_BYTES).unwrap_or(u64::MAX);
        if least > u64::try_from(reader.remaining()).unwrap_or(u64::MAX) {
            return Err(FrameError::Invalid("more rows than bytes"));
        }
        Ok(Self { reader, left })
    }

    /// The next row; `None` at the end, which must be the end of the bytes too.
    pub(crate) fn next(&mut self) -> Result<Option<ReadRow>, FrameError> {
        if self.left == 0 {
            self.reader.end()?;
            return Ok(None);
        }
        self.left -= 1;
        let keyspace = self.reader.u16()?;
        let rest = self.reader.rest();
        let key = self.reader.u32()?;
        let value = self.reader.u32()?;
        let key = self.reader.take(key)?;
        let value = self.reader.take(value)?;
        let encoded = rest.slice(..rest.len() - self.reader.remaining());
        Ok(Some(ReadRow {
            row: Row {
                keyspace,
                entry: Entry { key, value },
            },
            encoded,
        }))
    }
}
