//! The store's own records in `pop@0`: a version byte, a payload, a checksum.

use bytes::Bytes;

/// Names the format of everything below; see [`FORMAT_VERSION`].
pub(super) const FORMAT: &[u8] = b"format";
/// Names the generation in use of each keyspace: the switch record.
pub(super) const LAYOUT: &[u8] = b"layout";
/// The last checkpoint of a staging, see [`Checkpoint`](super::checkpoint::Checkpoint).
pub(super) const STAGING: &[u8] = b"staging";
/// The number of the last group; rewritten with every group.
pub(crate) const SEQUENCE: &[u8] = b"sequence";

/// The version of the physical layout and of the store's own records.
pub(super) const FORMAT_VERSION: u64 = 1;

const RECORD_VERSION: u8 = 1;
const CHECKSUM_BYTES: usize = 4;

/// Seals `payload` into a record.
pub(crate) fn seal(payload: &[u8]) -> Bytes {
    let mut record = Vec::with_capacity(1 + payload.len() + CHECKSUM_BYTES);
    record.push(RECORD_VERSION);
    record.extend_from_slice(payload);
    record.extend_from_slice(&crc32c::crc32c(&record).to_be_bytes());
    record.into()
}

/// The payload of a record, or `None` if it is not what [`seal`] made.
pub(crate) fn unseal(record: &[u8]) -> Option<&[u8]> {
    let (sealed, checksum) = record.split_last_chunk::<CHECKSUM_BYTES>()?;
    let (&version, payload) = sealed.split_first()?;
    let whole = crc32c::crc32c(sealed) == u32::from_be_bytes(*checksum);
    (whole && version == RECORD_VERSION).then_some(payload)
}

/// Seals a number.
pub(crate) fn seal_number(number: u64) -> Bytes {
    seal(&number.to_be_bytes())
}

/// The number of a record that [`seal_number`] made.
pub(crate) fn unseal_number(record: &[u8]) -> Option<u64> {
    Some(u64::from_be_bytes(unseal(record)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_with_any_byte_changed_is_refused() {
        let record = seal_number(7);
        assert_eq!(unseal_number(&record), Some(7));
        for at in 0..record.len() {
            let mut changed = record.to_vec();
            changed[at] ^= 1;
            assert_eq!(unseal_number(&changed), None, "byte {at}");
        }
        assert_eq!(unseal(&[]), None);
    }
}
