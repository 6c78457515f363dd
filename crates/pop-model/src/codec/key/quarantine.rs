//! The key of a record that is put away until somebody looks.

use bytes::{BufMut, Bytes};

use super::{StoredKey, expect_code, prefix_range};
use crate::codec::{CodecError, reader::Reader};

/// A record that could not be worked on, kept until somebody looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct QuarantineKey {
    /// The order in which records were put away.
    pub sequence: u64,
}

impl QuarantineKey {
    const CODE: u8 = 0x0A;

    /// Everything in quarantine.
    #[must_use]
    pub fn range() -> (Bytes, Bytes) {
        prefix_range(vec![Self::CODE])
    }
}

impl StoredKey for QuarantineKey {
    const WHAT: &'static str = "quarantine key";

    fn write(&self, out: &mut Vec<u8>) {
        out.push(Self::CODE);
        out.put_u64(self.sequence);
    }

    fn read(reader: &mut Reader) -> Result<Self, CodecError> {
        expect_code(reader, Self::CODE)?;
        Ok(Self {
            sequence: reader.u64()?,
        })
    }
}
