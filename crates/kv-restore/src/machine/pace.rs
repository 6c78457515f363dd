//! The minimum rate: what a peer must bring in the time that it is waited for.

use std::time::Duration;

use super::Now;

/// Counts bytes against time, and only the time in which the peer is waited for.
#[derive(Debug)]
pub(super) struct Pace {
    min: u64,
    span: Duration,
    waited: Duration,
    since: Option<Now>,
    bytes: u64,
}

impl Pace {
    pub(super) fn new(min: u64, span: Duration) -> Self {
        Self {
            min,
            span,
            waited: Duration::ZERO,
            since: None,
            bytes: 0,
        }
    }

    /// Says whether the peer is waited for from here on.
    pub(super) fn run(&mut self, now: Now, waiting: bool) {
        if let Some(since) = self.since.take() {
            self.waited += now.saturating_sub(since);
        }
        self.since = waiting.then_some(now);
    }

    pub(super) fn got(&mut self, bytes: u64) {
        self.bytes = self.bytes.saturating_add(bytes);
    }

    /// When a span of waiting will be over.
    pub(super) fn due(&self) -> Option<Now> {
        let since = self.since.filter(|_| self.min > 0)?;
        Some(since + self.span.saturating_sub(self.waited))
    }

    /// Looks at the span if it is over, and begins the next one.
    pub(super) fn is_too_slow(&mut self, now: Now) -> bool {
        self.run(now, self.since.is_some());
        if self.min == 0 || self.waited < self.span {
            return false;
        }
        let wanted = u128::from(self.min) * self.waited.as_millis() / 1_000;
        let slow = u128::from(self.bytes) < wanted;
        (self.waited, self.bytes) = (Duration::ZERO, 0);
        slow
    }
}
