//! A promise that was not kept.

use std::fmt;

/// Which promise, and what was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Its number in the design, or what else should not have happened.
    pub promise: &'static str,
    /// What was seen.
    pub what: String,
}

impl Violation {
    /// A broken promise.
    pub fn new(promise: &'static str, what: impl Into<String>) -> Self {
        Self {
            promise,
            what: what.into(),
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.promise, self.what)
    }
}

impl std::error::Error for Violation {}

/// What a check comes to.
pub type Checked<T = ()> = Result<T, Violation>;
