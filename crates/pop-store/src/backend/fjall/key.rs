//! Keys as fjall takes them: it has no empty key.

use std::borrow::Cow;

use bytes::Bytes;

/// Puts a zero byte before a key that is empty or begins with one. That keeps the order,
/// costs nothing for all other keys, and frees the empty key for nothing else.
pub(super) fn encode(key: &[u8]) -> Cow<'_, [u8]> {
    match key.first() {
        None | Some(0) => Cow::Owned([&[0], key].concat()),
        Some(_) => Cow::Borrowed(key),
    }
}

/// The key that [`encode`] made.
pub(super) fn decode(stored: &[u8]) -> Bytes {
    Bytes::copy_from_slice(stored.strip_prefix(&[0]).unwrap_or(stored))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_keep_their_order_and_read_back() {
        let keys: [&[u8]; 7] = [b"", b"\0", b"\0\0", b"\0a", b"\x01", b"\x01\0", b"a"];
        for pair in keys.windows(2) {
            assert!(encode(pair[0]) < encode(pair[1]), "{pair:?}");
        }
        for key in keys {
            assert_eq!(decode(&encode(key)), key);
            assert!(!encode(key).is_empty());
        }
    }
}
