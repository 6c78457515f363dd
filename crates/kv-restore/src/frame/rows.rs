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

// The documentation says so.
#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<Row>() == 72);

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

/// How many bytes a chunk of these rows has.
pub(crate) fn chunk_bytes(rows: &[Row]) -> usize {
    let each = KEYSPACE_BYTES + ROW_HEAD_BYTES;
    let bytes = |row: &Row| each + row.entry.key.len() + row.entry.value.len();
    COUNT_BYTES + rows.iter().map(bytes).sum::<usize>()
}

/// Collects the rows of one chunk.
#[derive(Debug)]
pub(crate) struct RowsWriter {
    bytes: BytesMut,
    count: u32,
}

impl RowsWriter {
    /// Takes room for so many bytes, all of which are kept as long as the chunk is.
    pub(crate) fn new(capacity: usize) -> Self {
        let mut bytes = BytesMut::with_capacity(capacity);
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

/// The rows of a chunk, to be loaded. Their keys and values share it.
///
/// A [`Row`] takes 72 bytes beside those, several times what a small row has on the wire, so
/// that only what is loaded next is taken apart.
pub(crate) fn rows(chunk: &Bytes) -> Result<Vec<Row>, FrameError> {
    let mut reader = RowsReader::new(chunk)?;
    let mut rows = Vec::with_capacity(reader.left());
    while let Some(row) = reader.next()? {
        let entry = Entry {
            key: chunk.slice_ref(row.key),
            value: chunk.slice_ref(row.value),
        };
        let keyspace = row.keyspace;
        rows.push(Row { keyspace, entry });
    }
    Ok(rows)
}

/// Reads the rows of a chunk, one after another.
///
/// The count is only compared with what is there, so that a large one costs nothing.
#[derive(Debug)]
pub(crate) struct RowsReader<'a> {
    rest: &'a [u8],
    left: u32,
}

/// A row, and its bytes as the digest covers them.
#[derive(Debug)]
pub(crate) struct ReadRow<'a> {
    pub(crate) keyspace: u16,
    pub(crate) key: &'a [u8],
    pub(crate) value: &'a [u8],
    pub(crate) encoded: &'a [u8],
}

impl<'a> RowsReader<'a> {
    pub(crate) fn new(chunk: &'a [u8]) -> Result<Self, FrameError> {
        let mut reader = Self {
            rest: chunk,
            left: 0,
        };
        reader.left = reader.number()?;
        let least = u64::from(reader.left)
            * u64::try_from(KEYSPACE_BYTES + ROW_HEAD_BYTES).unwrap_or(u64::MAX);
        if least > u64::try_from(reader.rest.len()).unwrap_or(u64::MAX) {
            return Err(FrameError::Invalid("more rows than bytes"));
        }
        Ok(reader)
    }

    /// How many rows are to come.
    fn left(&self) -> usize {
        usize::try_from(self.left).unwrap_or(usize::MAX)
    }

    /// The next row; `None` at the end, which must be the end of the bytes too.
    ///
    /// Nothing is counted or copied: a chunk has thousands of rows.
    pub(crate) fn next(&mut self) -> Result<Option<ReadRow<'a>>, FrameError> {
        if self.left == 0 {
            return match self.rest.is_empty() {
                true => Ok(None),
                false => Err(FrameError::Invalid("bytes after the end")),
            };
        }
        self.left -= 1;
        let keyspace = u16::from_be_bytes(*self.array()?);
        let row = self.rest;
        let key = self.number()?;
        let value = self.number()?;
        let key = self.take(key)?;
        let value = self.take(value)?;
        let encoded = row.len() - self.rest.len();
        Ok(Some(ReadRow {
            keyspace,
            key,
            value,
            encoded: row.get(..encoded).unwrap_or_default(),
        }))
    }

    fn number(&mut self) -> Result<u32, FrameError> {
        self.array().copied().map(u32::from_be_bytes)
    }

    fn array<const N: usize>(&mut self) -> Result<&'a [u8; N], FrameError> {
        let (taken, rest) = self.rest.split_first_chunk().ok_or(FrameError::Truncated)?;
        self.rest = rest;
        Ok(taken)
    }

    fn take(&mut self, length: u32) -> Result<&'a [u8], FrameError> {
        let length = usize::try_from(length).map_err(|_| FrameError::Truncated)?;
        let (taken, rest) = self
            .rest
            .split_at_checked(length)
            .ok_or(FrameError::Truncated)?;
        self.rest = rest;
        Ok(taken)
    }
}
