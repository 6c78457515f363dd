//! What one scan of a snapshot returns, in one piece of memory.

use bytes::BytesMut;

use crate::{Entry, Scan};

// What a page of a few entries takes at first.
const PAGE_BYTES: usize = 16 << 10;

/// Gathers entries without an allocation for each. One entry keeps all of them in memory:
/// this is for readers who let go of them together, as the reader of a snapshot does.
pub(super) struct Page<'a> {
    scan: &'a Scan,
    bytes: BytesMut,
    // Where the key and the value of each entry end.
    ends: Vec<(usize, usize)>,
}

impl<'a> Page<'a> {
    pub(super) fn new(scan: &'a Scan) -> Self {
        Self {
            scan,
            bytes: BytesMut::with_capacity(PAGE_BYTES),
            ends: Vec::new(),
        }
    }

    /// Whether a limit of the scan is reached.
    pub(super) fn is_full(&self) -> bool {
        let is_begun = !self.ends.is_empty();
        self.ends.len() >= self.scan.entries_max
            || is_begun && self.bytes.len() >= self.scan.bytes_max
    }

    pub(super) fn add(&mut self, key: &[u8], value: &[u8]) {
        self.bytes.extend_from_slice(key);
        let key_end = self.bytes.len();
        self.bytes.extend_from_slice(value);
        self.ends.push((key_end, self.bytes.len()));
    }

    pub(super) fn finish(self) -> Vec<Entry> {
        let mut rest = self.bytes.freeze();
        let mut start = 0;
        let entry = |(key_end, end): (usize, usize)| {
            let key = rest.split_to(key_end - start);
            let value = rest.split_to(end - key_end);
            start = end;
            Entry { key, value }
        };
        self.ends.into_iter().map(entry).collect()
    }
}
