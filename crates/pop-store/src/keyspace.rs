//! The name of an ordered key space inside a store.

use std::{cmp::Ordering, fmt};

/// One ordered map of bytes to bytes inside a store.
///
/// A store holds the keyspaces that it was opened with; naming another one is
/// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid).
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Keyspace(&'static str);

impl Keyspace {
    /// The longest name, in bytes: backends add a generation and may store it as a file name.
    pub const NAME_BYTES_MAX: usize = 32;

    /// Names a keyspace: 1 to 32 of `a-z`, `0-9` and `_`.
    ///
    /// # Panics
    ///
    /// On any other name. Used in a `const`, that is a compile error.
    #[must_use]
    pub const fn new(name: &'static str) -> Self {
        let bytes = name.as_bytes();
        assert!(
            !bytes.is_empty() && bytes.len() <= Self::NAME_BYTES_MAX,
            "a keyspace name has 1 to 32 bytes"
        );
        let mut rest = bytes;
        while let Some((byte, tail)) = rest.split_first() {
            assert!(
                byte.is_ascii_lowercase() || byte.is_ascii_digit() || *byte == b'_',
                "a keyspace name has only a-z, 0-9 and _"
            );
            rest = tail;
        }
        Self(name)
    }

    /// The name as it was given.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.0
    }
}

impl PartialOrd for Keyspace {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Keyspace {
    fn cmp(&self, other: &Self) -> Ordering {
        // Sorting a group compares a name with itself, nearly always.
        if std::ptr::eq(self.0, other.0) {
            return Ordering::Equal;
        }
        self.0.cmp(other.0)
    }
}

impl fmt::Debug for Keyspace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Keyspace({})", self.0)
    }
}

impl fmt::Display for Keyspace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}
