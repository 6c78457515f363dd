//! The rows of one space, with large values in pieces that sled keeps in its log.
//!
//! The row of a key is under the space's id. It holds a small value itself, after a byte
//! that says so, or else the length of the value, whose pieces are under the same id with
//! the highest bit set: the key, then the number of the piece.

use bytes::Bytes;
use sled::{Batch, Db, IVec};

use super::{NAME, error};
use crate::{Entry, Error, ErrorKind, Result};

// A node of sled has up to 16 rows and goes to a blob file above some 128 KiB.
const PIECE_BYTES: u16 = 4 << 10;
const WHOLE: u8 = 0;
const IN_PIECES: u8 = 1;
const PIECES_BIT: u32 = 1 << 31;

/// One space of a database.
pub(super) struct Pieces<'a> {
    db: &'a Db,
    id: u32,
}

impl<'a> Pieces<'a> {
    pub(super) fn new(db: &'a Db, id: u32) -> Self {
        Self { db, id }
    }

    pub(super) fn get(&self, key: &[u8]) -> Result<Option<Bytes>> {
        let row = self.db.get(row_key(self.id, key));
        match row.map_err(error::read_failed)? {
            Some(row) => Ok(Some(self.value(key, &row)?)),
            None => Ok(None),
        }
    }

    /// The rows of `start..end`, to the end of the space without an end.
    pub(super) fn range(
        &self,
        start: &[u8],
        end: Option<&[u8]>,
    ) -> impl DoubleEndedIterator<Item = Result<Entry>> {
        self.rows(start, end).map(|row| {
            let (key, row) = row.map_err(error::read_failed)?;
            let key = Bytes::copy_from_slice(bare(&key));
            let value = self.value(&key, &row)?;
            Ok(Entry { key, value })
        })
    }

    pub(super) fn insert(&self, key: &[u8], value: &[u8], batch: &mut Batch) {
        if value.len() <= usize::from(PIECE_BYTES) {
            batch.insert(row_key(self.id, key), [&[WHOLE], value].concat());
            return;
        }
        for (number, piece) in (0_u32..).zip(value.chunks(usize::from(PIECE_BYTES))) {
            batch.insert(piece_key(self.id, key, number), piece);
        }
        let length = u32::try_from(value.len()).expect("a batch has at most 1 MiB");
        let row = [&[IN_PIECES][..], &length.to_be_bytes()].concat();
        batch.insert(row_key(self.id, key), row);
    }

    pub(super) fn remove(&self, key: &[u8], batch: &mut Batch) -> Result<()> {
        let row = self.db.get(row_key(self.id, key));
        if let Some(row) = row.map_err(error::write_failed)? {
            self.remove_row(key, &row, batch)?;
        }
        Ok(())
    }

    pub(super) fn remove_range(&self, start: &[u8], end: &[u8], batch: &mut Batch) -> Result<()> {
        for row in self.rows(start, Some(end)) {
            let (key, row) = row.map_err(error::write_failed)?;
            self.remove_row(bare(&key), &row, batch)?;
        }
        Ok(())
    }

    fn remove_row(&self, key: &[u8], row: &[u8], batch: &mut Batch) -> Result<()> {
        if let Row::InPieces(length) = Row::read(row)? {
            for number in 0..piece_count(length) {
                batch.remove(piece_key(self.id, key, number));
            }
        }
        batch.remove(row_key(self.id, key));
        Ok(())
    }

    fn rows(&self, start: &[u8], end: Option<&[u8]>) -> sled::Iter {
        let start = row_key(self.id, start);
        let end = end.map_or_else(|| row_key(self.id + 1, b""), |end| row_key(self.id, end));
        self.db.range(start..end)
    }

    fn value(&self, key: &[u8], row: &[u8]) -> Result<Bytes> {
        let length = match Row::read(row)? {
            Row::Whole(value) => return Ok(Bytes::copy_from_slice(value)),
            Row::InPieces(length) => length,
        };
        let mut value = Vec::with_capacity(length as usize);
        for number in 0..piece_count(length) {
            let piece = self.db.get(piece_key(self.id, key, number));
            let piece: Option<IVec> = piece.map_err(error::read_failed)?;
            value.extend_from_slice(&piece.ok_or_else(damaged)?);
        }
        if value.len() != length as usize {
            return Err(damaged());
        }
        Ok(value.into())
    }
}

/// The prefixes of a space: its rows and its pieces.
pub(super) fn prefixes(id: u32) -> [[u8; 4]; 2] {
    [id.to_be_bytes(), (id | PIECES_BIT).to_be_bytes()]
}

enum Row<'a> {
    Whole(&'a [u8]),
    InPieces(u32),
}

impl<'a> Row<'a> {
    fn read(row: &'a [u8]) -> Result<Self> {
        match row.split_first() {
            Some((&WHOLE, value)) => Ok(Self::Whole(value)),
            Some((&IN_PIECES, length)) => {
                let length = length.try_into().map_err(|_| damaged())?;
                Ok(Self::InPieces(u32::from_be_bytes(length)))
            }
            _ => Err(damaged()),
        }
    }
}

fn damaged() -> Error {
    Error::new(ErrorKind::Corrupt, NAME, "read")
        .with_detail("a row and the pieces of its value don't match")
}

fn piece_count(length: u32) -> u32 {
    length.div_ceil(u32::from(PIECE_BYTES))
}

fn row_key(id: u32, key: &[u8]) -> Vec<u8> {
    [&id.to_be_bytes(), key].concat()
}

fn piece_key(id: u32, key: &[u8], number: u32) -> Vec<u8> {
    [&(id | PIECES_BIT).to_be_bytes(), key, &number.to_be_bytes()].concat()
}

/// The key of a row without its prefix.
fn bare(row_key: &[u8]) -> &[u8] {
    row_key.get(size_of::<u32>()..).unwrap_or_default()
}
