//! Reading numbers and bytes from a buffer that may end anywhere.

use bytes::{Buf, BufMut, Bytes, BytesMut};

use pop_store::Estimate;

use super::FrameError;
use crate::Digest;

#[derive(Debug)]
pub(crate) struct Reader(Bytes);

impl Reader {
    pub(crate) fn new(bytes: Bytes) -> Self {
        Self(bytes)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, FrameError> {
        self.0.try_get_u8().map_err(|_| FrameError::Truncated)
    }

    pub(crate) fn u16(&mut self) -> Result<u16, FrameError> {
        self.0.try_get_u16().map_err(|_| FrameError::Truncated)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, FrameError> {
        self.0.try_get_u32().map_err(|_| FrameError::Truncated)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, FrameError> {
        self.0.try_get_u64().map_err(|_| FrameError::Truncated)
    }

    pub(crate) fn u128(&mut self) -> Result<u128, FrameError> {
        self.0.try_get_u128().map_err(|_| FrameError::Truncated)
    }

    /// So many bytes, shared with the buffer.
    pub(crate) fn take(&mut self, length: u32) -> Result<Bytes, FrameError> {
        let length = usize::try_from(length).map_err(|_| FrameError::Truncated)?;
        if length > self.0.len() {
            return Err(FrameError::Truncated);
        }
        Ok(self.0.split_to(length))
    }

    /// Bytes that were written with [`put_bytes`].
    pub(crate) fn bytes(&mut self) -> Result<Bytes, FrameError> {
        let length = self.u32()?;
        self.take(length)
    }

    pub(crate) fn text(&mut self) -> Result<String, FrameError> {
        let bytes = self.bytes()?;
        String::from_utf8(bytes.to_vec()).map_err(|_| FrameError::Invalid("text is not UTF-8"))
    }

    pub(crate) fn option<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<T, FrameError>,
    ) -> Result<Option<T>, FrameError> {
        match self.flag()? {
            false => Ok(None),
            true => read(self).map(Some),
        }
    }

    pub(crate) fn flag(&mut self) -> Result<bool, FrameError> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(FrameError::Invalid("a flag is 0 or 1")),
        }
    }

    pub(crate) fn digest(&mut self) -> Result<Digest, FrameError> {
        Ok(Digest {
            sum: self.u128()?,
            rows: self.u64()?,
            bytes: self.u64()?,
        })
    }

    pub(crate) fn estimate(&mut self) -> Result<Estimate, FrameError> {
        Ok(Estimate {
            rows: self.u64()?,
            bytes: self.option(Self::u64)?,
        })
    }

    /// All that is left.
    pub(crate) fn rest(&self) -> Bytes {
        self.0.clone()
    }

    /// Nothing may be left.
    pub(crate) fn end(&self) -> Result<(), FrameError> {
        if self.0.is_empty() {
            return Ok(());
        }
        Err(FrameError::Invalid("bytes after the end"))
    }
}

pub(crate) fn put_bytes(into: &mut BytesMut, bytes: &[u8]) {
    into.put_u32(u32::try_from(bytes.len()).unwrap_or(u32::MAX));
    into.put_slice(bytes);
}

pub(crate) fn put_option<T>(
    into: &mut BytesMut,
    value: Option<&T>,
    put: impl FnOnce(&mut BytesMut, &T),
) {
    into.put_u8(u8::from(value.is_some()));
    if let Some(value) = value {
        put(into, value);
    }
}

pub(crate) fn put_estimate(into: &mut BytesMut, estimate: &Estimate) {
    into.put_u64(estimate.rows);
    put_option(into, estimate.bytes.as_ref(), |into, it| into.put_u64(*it));
}

pub(crate) fn put_digest(into: &mut BytesMut, digest: &Digest) {
    into.put_u128(digest.sum);
    into.put_u64(digest.rows);
    into.put_u64(digest.bytes);
}
