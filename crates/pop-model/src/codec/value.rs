//! The envelope of every stored value: `version, payload, crc32c`.

use bytes::{BufMut, Bytes};

use super::{CodecError, reader::Reader};

const VERSION_BYTES: usize = 1;
const CHECKSUM_BYTES: usize = 4;

/// A value as it is stored.
pub trait StoredValue: Sized {
    /// What errors call it.
    const WHAT: &'static str;
    /// The version that is written, and the only one that is read.
    const VERSION: u8 = 1;

    /// Appends the fields.
    fn write(&self, out: &mut Vec<u8>);

    /// Takes the fields; the caller checks that nothing is left.
    ///
    /// # Errors
    ///
    /// What is wrong with the bytes.
    fn read(reader: &mut Reader) -> Result<Self, CodecError>;

    /// About how many bytes the fields take, so that encoding allocates once.
    fn size_hint(&self) -> usize {
        96
    }

    /// The value in its envelope.
    #[must_use]
    fn encode(&self) -> Bytes {
        let mut out = Vec::with_capacity(VERSION_BYTES + self.size_hint() + CHECKSUM_BYTES);
        out.push(Self::VERSION);
        self.write(&mut out);
        let checksum = crc32c::crc32c(&out);
        out.put_u32(checksum);
        // Room to spare would cost a second allocation.
        out.into_boxed_slice().into()
    }

    /// Takes a value out of its envelope. Byte fields share `bytes`.
    ///
    /// # Errors
    ///
    /// The version before the checksum, the checksum before any field.
    fn decode(bytes: Bytes) -> Result<Self, CodecError> {
        let what = Self::WHAT;
        let payload_end = bytes
            .len()
            .checked_sub(CHECKSUM_BYTES)
            .filter(|end| *end >= VERSION_BYTES);
        let payload_end = payload_end.ok_or(CodecError::Truncated { what })?;
        let mut head = Reader::new(what, bytes.slice(..VERSION_BYTES));
        let version = head.u8()?;
        if version != Self::VERSION {
            return Err(CodecError::Version { what, version });
        }
        let found = Reader::new(what, bytes.slice(payload_end..)).u32()?;
        let computed = crc32c::crc32c(&bytes.slice(..payload_end));
        if found != computed {
            return Err(CodecError::Checksum {
                what,
                found,
                computed,
            });
        }
        let mut reader = Reader::new(what, bytes.slice(VERSION_BYTES..payload_end));
        let value = Self::read(&mut reader)?;
        reader.finish()?;
        Ok(value)
    }
}

/// Appends bytes with a length of four bytes before them.
///
/// # Panics
///
/// On 4 GiB or more, which no limit lets through.
pub fn write_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    out.put_u32(u32::try_from(bytes.len()).expect("limits keep every field below 4 GiB"));
    out.put_slice(bytes);
}

/// Appends a flag and, if there is one, the field.
pub fn write_option<T>(out: &mut Vec<u8>, field: Option<T>, write: impl FnOnce(&mut Vec<u8>, T)) {
    out.push(u8::from(field.is_some()));
    if let Some(field) = field {
        write(out, field);
    }
}
