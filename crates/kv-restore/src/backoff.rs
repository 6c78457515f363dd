//! How long to wait before trying again.

use std::time::Duration;

use crate::{ErrorKind, RestoreError, Retry};

/// Doubling pauses with jitter, up to a cap.
///
/// ```
/// use std::time::Duration;
/// use kv_restore::Backoff;
///
/// let mut backoff = Backoff::default();
/// // The caller brings the chance; a pause is between half of its step and all of it.
/// assert_eq!(backoff.next(0), Duration::from_millis(50));
/// assert_eq!(backoff.next(u64::MAX), Duration::from_millis(200));
/// ```
#[derive(Clone, Debug)]
pub struct Backoff {
    first: Duration,
    cap: Duration,
    step: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self::new(Duration::from_millis(100), Duration::from_secs(30))
    }
}

impl Backoff {
    /// Pauses from `first` up to `cap`.
    #[must_use]
    pub fn new(first: Duration, cap: Duration) -> Self {
        Self {
            first,
            cap,
            step: first,
        }
    }

    /// The next pause. `random` is any number, each time another.
    pub fn next(&mut self, random: u64) -> Duration {
        let step = self.step;
        self.step = step.saturating_mul(2).min(self.cap);
        let half = step / 2;
        let part = u32::try_from(random >> 32).unwrap_or(u32::MAX);
        half + half.mul_f64(f64::from(part) / f64::from(u32::MAX))
    }

    /// The pause after this failure, or `None` if trying again can't help.
    pub fn after(&mut self, error: &RestoreError, random: u64) -> Option<Duration> {
        match error.retry() {
            Retry::Now => Some(Duration::ZERO),
            // Somebody has to free some first.
            Retry::Later if error.kind() == ErrorKind::NoSpace => Some(self.cap),
            Retry::Later => Some(self.next(random)),
            Retry::NewerSnapshot | Retry::Never => None,
        }
    }

    /// Begins anew, after a success.
    pub fn reset(&mut self) {
        self.step = self.first;
    }
}
