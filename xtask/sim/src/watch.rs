//! Real time, which only says how fast a run was and when to give up.

use std::time::{Duration, Instant};

/// Measures real time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stopwatch(Instant);

impl Stopwatch {
    /// Starts it.
    #[expect(
        clippy::disallowed_methods,
        reason = "nothing that is simulated depends on it"
    )]
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    /// How long it has run.
    pub(crate) fn elapsed(self) -> Duration {
        self.0.elapsed()
    }
}
