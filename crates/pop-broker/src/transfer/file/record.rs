//! Records of a backup as bytes: kind, length, payload, checksum.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use pop_store::Entry;

/// The version of the format that is written and read.
pub(super) const VERSION: u8 = 1;

/// How a backup begins, before its version.
pub(super) const MAGIC: [u8; 7] = *b"POPBKUP";

/// Bytes before the first record.
pub(super) const HEAD_BYTES: u64 = 8;

/// Which snapshot it is of; the first record.
pub(super) const BEGIN: u8 = 1;
/// Rows of one keyspace.
pub(super) const ROWS: u8 = 2;
/// What all rows add up to; the last record.
pub(super) const END: u8 = 3;

/// Kind and length.
pub(super) const FRONT_BYTES: usize = 5;
pub(super) const SUM_BYTES: usize = 4;

/// The longest payload: a block and the largest row a store takes, with room to spare. A
/// longer one is damage, and nothing is reserved for it.
pub(super) const PAYLOAD_BYTES_MAX: u32 = 4 << 20;

/// A block is written once it has so many bytes.
pub(super) const BLOCK_BYTES: usize = 1 << 20;

/// A record around `payload`.
pub(super) fn seal(kind: u8, payload: &[u8]) -> Bytes {
    let mut record = BytesMut::with_capacity(FRONT_BYTES + payload.len() + SUM_BYTES);
    record.put_u8(kind);
    record.put_u32(u32::try_from(payload.len()).unwrap_or(u32::MAX));
    record.put_slice(payload);
    let sum = crc32c::crc32c(&record);
    record.put_u32(sum);
    record.freeze()
}

/// The kind and the length of the payload, from the first bytes of a record.
pub(super) fn front(mut bytes: &[u8]) -> Option<(u8, u32)> {
    let kind = bytes.try_get_u8().ok()?;
    let length = bytes.try_get_u32().ok()?;
    (length <= PAYLOAD_BYTES_MAX).then_some((kind, length))
}

/// The payload of a whole record, if its checksum is right.
pub(super) fn unseal(record: &Bytes) -> Option<Bytes> {
    let (sealed, sum) = record.split_last_chunk::<SUM_BYTES>()?;
    let whole = crc32c::crc32c(sealed) == u32::from_be_bytes(*sum);
    (whole && sealed.len() >= FRONT_BYTES).then(|| record.slice(FRONT_BYTES..sealed.len()))
}

/// Appends a row to a block.
pub(super) fn put_row(block: &mut BytesMut, entry: &Entry) {
    for bytes in [&entry.key, &entry.value] {
        block.put_u32(u32::try_from(bytes.len()).unwrap_or(u32::MAX));
    }
    block.put_slice(&entry.key);
    block.put_slice(&entry.value);
}

/// Takes the first row off a block.
pub(super) fn take_row(block: &mut Bytes) -> Option<Entry> {
    let key = usize::try_from(block.try_get_u32().ok()?).ok()?;
    let value = usize::try_from(block.try_get_u32().ok()?).ok()?;
    if key.checked_add(value)? > block.len() {
        return None;
    }
    Some(Entry {
        key: block.split_to(key),
        value: block.split_to(value),
    })
}

/// The rows of a block, behind its keyspace; `None` if they don't fill it exactly.
pub(super) fn rows(mut block: Bytes) -> Option<(u16, Vec<Entry>)> {
    let keyspace = block.try_get_u16().ok()?;
    let mut rows = Vec::new();
    while !block.is_empty() {
        rows.push(take_row(&mut block)?);
    }
    Some((keyspace, rows))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(key: &'static str, value: &'static str) -> Entry {
        Entry {
            key: key.into(),
            value: value.into(),
        }
    }

    #[test]
    fn a_block_reads_back_and_a_cut_one_does_not() {
        let mut block = BytesMut::new();
        block.put_u16(3);
        let entries = vec![entry("a", ""), entry("b", "value")];
        entries.iter().for_each(|it| put_row(&mut block, it));
        let block = block.freeze();
        assert_eq!(rows(block.clone()), Some((3, entries)));
        // A cut between two rows is found by the checksum of the record.
        for end in (0..2).chain(3..11).chain(12..block.len()) {
            assert_eq!(rows(block.slice(..end)), None, "{end}");
        }
    }

    // Mutant: the checksum is not compared.
    #[test]
    fn a_record_with_any_bit_changed_is_refused() {
        let record = seal(ROWS, b"payload");
        assert_eq!(unseal(&record).as_deref(), Some(b"payload".as_slice()));
        for bit in 0..record.len() * 8 {
            let mut damaged = record.to_vec();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(unseal(&damaged.into()), None, "bit {bit}");
        }
    }

    #[test]
    fn a_length_beyond_the_limit_is_no_record() {
        assert_eq!(front(&seal(END, b"")), Some((END, 0)));
        assert_eq!(front(&[ROWS, 0xFF, 0, 0, 0]), None);
    }
}
