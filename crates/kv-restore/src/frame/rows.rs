//! Rows as a chunk carries them: a count, then keyspace, lengths, key and value of each.

use bytes::{BufMut, Bytes, BytesMut};
use pop_store::Entry;

use super::FrameError;
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
    chunk: Bytes,
    // Where the next row begins.
    at: usize,
    left: u32,
}

/// A row, and its bytes as the digest covers them.
#[derive(Debug)]
pub(crate) struct ReadRow<'a> {
    pub(crate) row: Row,
    pub(crate) encoded: &'a [u8],
}

impl RowsReader {
    pub(crate) fn new(chunk: Bytes) -> Result<Self, FrameError> {
        let mut reader = Self {
            chunk,
            at: 0,
            left: 0,
        };
        reader.left = u32::from_be_bytes(*reader.take()?);
        let least = u64::from(reader.left)
            * u64::try_from(KEYSPACE_BYTES + ROW_HEAD_BYTES).unwrap_or(u64::MAX);
        if least > u64::try_from(reader.chunk.len() - reader.at).unwrap_or(u64::MAX) {
            return Err(FrameError::Invalid("more rows than bytes"));
        }
        Ok(reader)
    }

    /// The next row; `None` at the end, which must be the end of the bytes too.
    ///
    /// Its key and value share the chunk, and nothing else is counted or copied: a chunk has
    /// thousands of rows.
    pub(crate) fn next(&mut self) -> Result<Option<ReadRow<'_>>, FrameError> {
        if self.left == 0 {
            return match self.at == self.chunk.len() {
                true => Ok(None),
                false => Err(FrameError::Invalid("bytes after the end")),
            };
        }
        self.left -= 1;
        let keyspace = u16::from_be_bytes(*self.take()?);
        let start = self.at;
        let key = u32::from_be_bytes(*self.take()?);
        let value = u32::from_be_bytes(*self.take()?);
        let key = self.share(key)?;
        let value = self.share(value)?;
        let encoded = self.chunk.get(start..self.at);
        Ok(Some(ReadRow {
            row: Row {
                keyspace,
                entry: Entry { key, value },
            },
            encoded: encoded.unwrap_or_default(),
        }))
    }

    fn take<const N: usize>(&mut self) -> Result<&[u8; N], FrameError> {
        let rest = self.chunk.get(self.at..).unwrap_or_default();
        let taken = rest.first_chunk().ok_or(FrameError::Truncated)?;
        self.at += N;
        Ok(taken)
    }

    fn share(&mut self, length: u32) -> Result<Bytes, FrameError> {
        let length = usize::try_from(length).map_err(|_| FrameError::Truncated)?;
        if length > self.chunk.len() - self.at {
            return Err(FrameError::Truncated);
        }
        let start = self.at;
        self.at += length;
        Ok(self.chunk.slice(start..self.at))
    }
}
