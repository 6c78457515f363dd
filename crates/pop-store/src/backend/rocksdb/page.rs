//! What one scan of a snapshot returns, in one piece of memory.

use bytes::{Bytes, BytesMut};

use crate::{Rows, Scan};

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
    /// A page of `scan`, after the page `before` of the same walk if there is one.
    pub(super) fn new(scan: &'a Scan, before: Option<Spent>) -> Self {
        // A page like the last one, unless this scan asks for less.
        let before = before.filter(|it| it.rows / 2 <= scan.entries_max);
        let before = before.filter(|it| it.bytes.len() / 2 <= scan.bytes_max);
        let (bytes, rows) = before.map_or((None, 0), |it| (it.bytes.into(), it.rows));
        Self {
            scan,
            bytes: bytes.map_or_else(|| BytesMut::with_capacity(PAGE_BYTES), again),
            // The last row goes over the limit of bytes.
            ends: Vec::with_capacity(rows + rows / 16),
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

    pub(super) fn finish(self) -> Rows {
        let mut rows = Rows::within(self.bytes.freeze(), self.ends.len());
        let mut start = 0;
        for (key_end, end) in self.ends {
            let fits = rows.push(start, key_end - start, end - key_end);
            debug_assert!(fits, "its ends are within it");
            start = end;
        }
        rows
    }
}

/// What a page was, for the next one.
pub(super) struct Spent {
    bytes: Bytes,
    rows: usize,
}

impl Spent {
    pub(super) fn of(page: &Rows) -> Self {
        Self {
            bytes: page.bytes().clone(),
            rows: page.len(),
        }
    }
}

/// Takes the memory of a page again that nobody reads any more: it is several times faster
/// than fresh one, which the system hands out page by page and clears.
fn again(spent: Bytes) -> BytesMut {
    let length = spent.len();
    match spent.try_into_mut() {
        Ok(mut bytes) if bytes.capacity() / 2 <= length => {
            bytes.clear();
            bytes
        }
        _ => BytesMut::with_capacity(length + length / 16),
    }
}
