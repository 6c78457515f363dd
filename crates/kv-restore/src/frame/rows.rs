//! Rows as a chunk carries them: a count, then keyspace, lengths, key and value of each.

use bytes::{BufMut, Bytes, BytesMut};
use pop_store::{Entry, Rows};

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

/// Rows of one keyspace that come one behind the other.
#[derive(Clone, Debug)]
pub struct Part {
    /// Which of the snapshot's keyspaces.
    pub keyspace: u16,
    /// The rows.
    pub rows: Rows,
}

impl Part {
    /// Rows as parts: one for each stretch of the same keyspace.
    #[must_use]
    pub fn of(rows: &[Row]) -> Vec<Self> {
        let stretches = rows.chunk_by(|a, b| a.keyspace == b.keyspace);
        let part = |rows: &[Row]| {
            let entries: Vec<_> = rows.iter().map(|it| it.entry.clone()).collect();
            rows.first().map(|first| Self {
                keyspace: first.keyspace,
                rows: entries.into(),
            })
        };
        stretches.filter_map(part).collect()
    }

    /// The rows one by one.
    pub fn rows(&self) -> impl Iterator<Item = Row> {
        let keyspace = self.keyspace;
        let row = move |entry| Row { keyspace, entry };
        self.rows.entries().map(row)
    }
}

/// Writes the part of a row that its digest covers.
pub(crate) fn put_row(into: &mut BytesMut, key: &[u8], value: &[u8]) {
    into.put_u32(length(key));
    into.put_u32(length(value));
    into.put_slice(key);
    into.put_slice(value);
}

// A length that does not fit belongs to no row that a store could hold; it is refused by
// the limits of the frame, whatever is written here.
fn length(bytes: &[u8]) -> u32 {
    u32::try_from(bytes.len()).unwrap_or(u32::MAX)
}

/// How many bytes a chunk of these rows has.
pub(crate) fn chunk_bytes(parts: &[Part]) -> usize {
    let each = KEYSPACE_BYTES + ROW_HEAD_BYTES;
    let bytes = |part: &Part| each * part.rows.len() + part.rows.byte_count();
    COUNT_BYTES + parts.iter().map(bytes).sum::<usize>()
}

/// Collects the rows of one chunk.
#[derive(Debug)]
pub(crate) struct RowsWriter {
    bytes: BytesMut,
    count: u32,
}

impl RowsWriter {
    /// Takes room for so many bytes, all of which are kept as long as the chunk is: that of an
    /// earlier chunk of about this size, which is several times faster than fresh memory.
    pub(crate) fn new(capacity: usize, spent: Option<BytesMut>) -> Self {
        let room = capacity..=capacity + capacity / 8;
        let spent = spent.filter(|it| room.contains(&it.capacity()));
        let fresh = || BytesMut::with_capacity(capacity + capacity / 32);
        let mut bytes = spent.unwrap_or_else(fresh);
        bytes.clear();
        bytes.put_u32(0);
        Self { bytes, count: 0 }
    }

    /// Adds rows, to the chunk and to the totals; they are of the keyspace with this seed.
    pub(crate) fn add(&mut self, part: &Part, seed: u64, totals: &mut Digest) {
        for (key, value) in part.rows.iter() {
            self.bytes.put_u16(part.keyspace);
            let start = self.bytes.len();
            put_row(&mut self.bytes, key, value);
            let row = self.bytes.get(start..).unwrap_or_default();
            totals.add_encoded(seed, row, key.len() + value.len());
            self.count += 1;
        }
    }

    pub(crate) fn finish(mut self) -> Bytes {
        if let Some(count) = self.bytes.get_mut(..COUNT_BYTES) {
            count.copy_from_slice(&self.count.to_be_bytes());
        }
        self.bytes.freeze()
    }
}

/// The rows of a chunk, to be loaded. They lie in it as it came.
pub(crate) fn parts(chunk: &Bytes) -> Result<Vec<Part>, FrameError> {
    let mut reader = RowsReader::new(chunk)?;
    let mut parts: Vec<Part> = Vec::new();
    while let Some(row) = reader.next()? {
        let keyspace = row.keyspace;
        if parts.last().is_none_or(|it| it.keyspace != keyspace) {
            // Most chunks are one part. Room for all that is left in each would be much of it
            // where they are many.
            let room = if parts.is_empty() {
                1 + reader.left()
            } else {
                0
            };
            let rows = Rows::within(chunk.clone(), room);
            parts.push(Part { keyspace, rows });
        }
        let part = parts.last_mut().ok_or(FrameError::Truncated)?;
        if !part.rows.push(row.start, row.key.len(), row.value.len()) {
            return Err(FrameError::Truncated);
        }
    }
    Ok(parts)
}

/// Reads the rows of a chunk, one after another.
///
/// The count is only compared with what is there, so that a large one costs nothing.
#[derive(Debug)]
pub(crate) struct RowsReader<'a> {
    length: usize,
    rest: &'a [u8],
    left: u32,
}

/// A row, and its bytes as the digest covers them.
#[derive(Debug)]
pub(crate) struct ReadRow<'a> {
    pub(crate) keyspace: u16,
    /// Where in the chunk its key begins, and its value right behind.
    pub(crate) start: usize,
    pub(crate) key: &'a [u8],
    pub(crate) value: &'a [u8],
    pub(crate) encoded: &'a [u8],
}

impl<'a> RowsReader<'a> {
    pub(crate) fn new(chunk: &'a [u8]) -> Result<Self, FrameError> {
        let mut reader = Self {
            length: chunk.len(),
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
        let start = self.length - self.rest.len();
        let key = self.take(key)?;
        let value = self.take(value)?;
        let encoded = row.len() - self.rest.len();
        Ok(Some(ReadRow {
            keyspace,
            start,
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
