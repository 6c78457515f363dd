//! About how much there is, where nobody counts.

use std::ops::Add;

/// About how much a part of a store holds: for a percentage, and for nothing that must be right.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Estimate {
    /// About how many rows.
    pub rows: u64,
    /// About how many bytes their keys and values have, if that is known.
    pub bytes: Option<u64>,
}

impl Add for Estimate {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        let both = self.bytes.zip(other.bytes);
        Self {
            rows: self.rows.saturating_add(other.rows),
            bytes: both.map(|(bytes, others)| bytes.saturating_add(others)),
        }
    }
}
