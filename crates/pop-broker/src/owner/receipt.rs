//! What proves that a source serves no more.
//!
//! A source draws a receipt when a handover begins and sends its digest along with the
//! snapshot. The receipt itself it tells only once its mark is synced. So whoever has it
//! knows that the source is retired, and who has nothing but the snapshot can't begin.

use data_encoding::HEXLOWER_PERMISSIVE;
use ring::digest::{SHA256, digest};

/// A receipt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Receipt(pub(crate) [u8; 16]);

impl Receipt {
    /// As people and messages pass it on.
    pub(crate) fn text(self) -> String {
        HEXLOWER_PERMISSIVE.encode(&self.0)
    }

    pub(crate) fn read(text: &str) -> Option<Self> {
        let bytes = HEXLOWER_PERMISSIVE.decode(text.trim().as_bytes()).ok()?;
        bytes.try_into().ok().map(Self)
    }

    /// What is known of it before it is told.
    pub(crate) fn digest(self) -> String {
        HEXLOWER_PERMISSIVE.encode(digest(&SHA256, &self.0).as_ref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_receipt_is_told_by_its_digest() {
        let receipt = Receipt([7; 16]);
        assert_eq!(Receipt::read(&receipt.text()), Some(receipt));
        assert_eq!(Receipt::read("07"), None);
        assert_ne!(receipt.digest(), Receipt([8; 16]).digest());
        assert_eq!(receipt.digest().len(), 64);
    }
}
