//! The records of a MANIFEST, as far as it takes to tell which of them are whole.
//!
//! A file is blocks of 32 KiB. A record is one fragment, or one in each of some blocks; no
//! fragment goes over the end of a block, where less room than a header takes is left out.
//! A fragment is a checksum, a length and a kind, and its bytes (RocksDB's
//! `db/log_format.h`).

use std::ops::Range;

pub(super) const BLOCK_BYTES: usize = 32 << 10;
pub(super) const SECTOR_BYTES: usize = 512;
pub(super) const HEADER_BYTES: usize = 7;
// Kinds of fragments. A MANIFEST has no others: it is never recycled nor compressed.
pub(super) const FULL: u8 = 1;
pub(super) const FIRST: u8 = 2;
pub(super) const MIDDLE: u8 = 3;
pub(super) const LAST: u8 = 4;

/// Where the whole records of a MANIFEST end, if what is left after them was torn. What was
/// changed and not torn is RocksDB's to refuse.
pub(super) fn torn_at(bytes: &[u8]) -> Option<usize> {
    let mut whole = 0;
    let mut at = 0;
    // Whether a record that was begun goes on.
    let mut is_open = false;
    while at < bytes.len() {
        let block_end = (at / BLOCK_BYTES + 1) * BLOCK_BYTES;
        if block_end - at < HEADER_BYTES {
            at = block_end;
            continue;
        }
        let block = bytes.get(at..block_end.min(bytes.len()))?;
        let is_short = at + block.len() < block_end;
        match Fragment::read(block) {
            Fragment::Whole { kind, length } => {
                is_open = match (kind, is_open) {
                    (FULL, false) | (LAST, true) => false,
                    (FIRST, false) | (MIDDLE, true) => true,
                    _ => return None,
                };
                at += length;
                if !is_open {
                    whole = at;
                }
            }
            Fragment::Beyond if is_short => return Some(whole),
            Fragment::Beyond => return has_lost_sector(bytes, at..block_end).then_some(whole),
            Fragment::Wrong { length } => {
                return has_lost_sector(bytes, at..at + length).then_some(whole);
            }
        }
    }
    is_open.then_some(whole)
}

/// What a stretch of a block begins with.
enum Fragment {
    Whole {
        kind: u8,
        length: usize,
    },
    /// It says to be longer than the stretch.
    Beyond,
    /// Its checksum is another one.
    Wrong {
        length: usize,
    },
}

impl Fragment {
    fn read(block: &[u8]) -> Self {
        let Some(&[c0, c1, c2, c3, low, high, kind]) = block.first_chunk::<HEADER_BYTES>() else {
            return Self::Beyond;
        };
        let length = HEADER_BYTES + usize::from(u16::from_be_bytes([high, low]));
        let Some(covered) = block.get(HEADER_BYTES - 1..length) else {
            return Self::Beyond;
        };
        let checksum = u32::from_be_bytes([c3, c2, c1, c0]);
        match masked(crc32c::crc32c(covered)) == checksum {
            true => Self::Whole { kind, length },
            false => Self::Wrong { length },
        }
    }
}

/// RocksDB's checksums are turned, so that one over data with checksums in it is as good.
pub(super) fn masked(checksum: u32) -> u32 {
    checksum.rotate_right(15).wrapping_add(0xa282_ead8)
}

/// Whether a sector of which `torn` is a part was never written: it has nothing but zeros
/// from there, or from its begin, to its end. A changed byte makes no such sector.
fn has_lost_sector(bytes: &[u8], torn: Range<usize>) -> bool {
    let sectors = torn.start / SECTOR_BYTES..torn.end.div_ceil(SECTOR_BYTES);
    sectors.into_iter().any(|sector| {
        let start = torn.start.max(sector * SECTOR_BYTES);
        let end = bytes.len().min((sector + 1) * SECTOR_BYTES);
        let lost = bytes.get(start..end).unwrap_or_default();
        !lost.is_empty() && lost.iter().all(|byte| *byte == 0)
    })
}
