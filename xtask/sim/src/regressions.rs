//! Runs that once found a fault. They run first.
//!
//! A seed means the same run only as long as the table of actions stays what it is; the
//! fault itself has a test of its own beside the code that it was in.

/// A run that once failed.
#[derive(Clone, Copy, Debug)]
pub struct Regression {
    /// What it is about.
    pub name: &'static str,
    /// Its seed.
    pub seed: u64,
    /// What was wrong.
    pub found: &'static str,
}

/// All of them, oldest first.
pub const REGRESSIONS: &[Regression] = &[Regression {
    name: "a hint lands between the scan of a pass and its end",
    seed: 116,
    found: "the floor passed the hint, and its delivery was never revived, not even after a \
            restart",
}];
