//! Reading fields one after another, never past the end.

use bytes::Bytes;

use super::CodecError;

/// A cursor over encoded bytes. Slices of the input are shared, not copied.
#[derive(Debug)]
pub struct Reader {
    what: &'static str,
    rest: Bytes,
}

impl Reader {
    /// Reads `bytes` as the fields of `what`, the name that errors carry.
    #[must_use]
    pub fn new(what: &'static str, bytes: Bytes) -> Self {
        Self { what, rest: bytes }
    }

    /// The name that errors carry.
    #[must_use]
    pub fn what(&self) -> &'static str {
        self.what
    }

    /// Takes the next `len` bytes.
    ///
    /// # Errors
    ///
    /// [`CodecError::Truncated`].
    pub fn take(&mut self, len: usize) -> Result<Bytes, CodecError> {
        if len > self.rest.len() {
            return Err(CodecError::Truncated { what: self.what });
        }
        Ok(self.rest.split_to(len))
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], CodecError> {
        let what = self.what;
        let bytes = self.take(N)?;
        bytes
            .as_ref()
            .try_into()
            .map_err(|_| CodecError::Truncated { what })
    }

    /// Takes N bytes as they are.
    ///
    /// # Errors
    ///
    /// [`CodecError::Truncated`].
    pub fn raw<const N: usize>(&mut self) -> Result<[u8; N], CodecError> {
        self.array()
    }

    /// Takes one byte.
    ///
    /// # Errors
    ///
    /// [`CodecError::Truncated`].
    pub fn u8(&mut self) -> Result<u8, CodecError> {
        self.array().map(u8::from_be_bytes)
    }

    /// Takes two bytes.
    ///
    /// # Errors
    ///
    /// [`CodecError::Truncated`].
    pub fn u16(&mut self) -> Result<u16, CodecError> {
        self.array().map(u16::from_be_bytes)
    }

    /// Takes four bytes.
    ///
    /// # Errors
    ///
    /// [`CodecError::Truncated`].
    pub fn u32(&mut self) -> Result<u32, CodecError> {
        self.array().map(u32::from_be_bytes)
    }

    /// Takes eight bytes.
    ///
    /// # Errors
    ///
    /// [`CodecError::Truncated`].
    pub fn u64(&mut self) -> Result<u64, CodecError> {
        self.array().map(u64::from_be_bytes)
    }

    /// Takes eight bytes of a signed number.
    ///
    /// # Errors
    ///
    /// [`CodecError::Truncated`].
    pub fn i64(&mut self) -> Result<i64, CodecError> {
        self.array().map(i64::from_be_bytes)
    }

    /// Takes one byte that is 0 or 1.
    ///
    /// # Errors
    ///
    /// [`CodecError::Truncated`], or [`CodecError::Field`] for another value.
    pub fn flag(&mut self, field: &'static str) -> Result<bool, CodecError> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(self.bad(field)),
        }
    }

    /// Takes a length of four bytes and that many bytes.
    ///
    /// # Errors
    ///
    /// [`CodecError::Truncated`].
    pub fn bytes(&mut self) -> Result<Bytes, CodecError> {
        let what = self.what;
        let len = usize::try_from(self.u32()?).map_err(|_| CodecError::Truncated { what })?;
        self.take(len)
    }

    /// Takes a length of four bytes and that many bytes of UTF-8.
    ///
    /// # Errors
    ///
    /// [`CodecError::Truncated`], or [`CodecError::Field`] where it is not UTF-8.
    pub fn text(&mut self, field: &'static str) -> Result<String, CodecError> {
        let bytes = self.bytes()?;
        String::from_utf8(bytes.into()).map_err(|_| self.bad(field))
    }

    /// Takes a flag and, if it is set, a field.
    ///
    /// # Errors
    ///
    /// Those of the flag and of the field.
    pub fn option<T>(
        &mut self,
        field: &'static str,
        read: impl FnOnce(&mut Self) -> Result<T, CodecError>,
    ) -> Result<Option<T>, CodecError> {
        if self.flag(field)? {
            read(self).map(Some)
        } else {
            Ok(None)
        }
    }

    /// Takes self-delimiting text as [`write_text`](super::key::write_text) writes it.
    ///
    /// # Errors
    ///
    /// [`CodecError::Truncated`], or [`CodecError::Field`].
    pub fn key_text(&mut self, field: &'static str) -> Result<String, CodecError> {
        let mut text = Vec::new();
        loop {
            match self.u8()? {
                0 => match self.u8()? {
                    0 => break,
                    0xFF => text.push(0),
                    _ => return Err(self.bad(field)),
                },
                byte => text.push(byte),
            }
        }
        String::from_utf8(text).map_err(|_| self.bad(field))
    }

    /// Whether everything was taken.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// The error for a field whose value has no meaning.
    #[must_use]
    pub fn bad(&self, field: &'static str) -> CodecError {
        CodecError::Field {
            what: self.what,
            field,
        }
    }

    /// Ends the reading: nothing may be left.
    ///
    /// # Errors
    ///
    /// [`CodecError::Trailing`].
    pub fn finish(self) -> Result<(), CodecError> {
        match self.rest.len() {
            0 => Ok(()),
            bytes => Err(CodecError::Trailing {
                what: self.what,
                bytes,
            }),
        }
    }
}
