//! How often a seeded run goes wrong, and how one call's fault is drawn.

use std::time::Duration;

use super::script::{Call, Effect, Fault};
use crate::testkit::Random;

/// How often a seeded run draws each fault, in calls of 10,000.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Odds {
    /// Refusals.
    pub refuse: u64,
    /// Failures in doubt, of writes and publishes; half of them have had their effect.
    pub in_doubt: u64,
    /// Delays.
    pub delay: u64,
    /// The longest delay.
    pub delay_max: Duration,
    /// Calls that hang.
    pub hang: u64,
    /// Panics.
    pub panic: u64,
    /// Power cuts, at writes and publishes.
    pub crash: u64,
}

impl Odds {
    /// Nothing goes wrong.
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    /// Sets how many of 10,000 calls are refused.
    #[must_use]
    pub fn with_refuse(mut self, per_10_000: u64) -> Self {
        self.refuse = per_10_000;
        self
    }

    /// Sets how many of 10,000 writes and publishes fail in doubt.
    #[must_use]
    pub fn with_in_doubt(mut self, per_10_000: u64) -> Self {
        self.in_doubt = per_10_000;
        self
    }

    /// Sets how many of 10,000 calls are late, and by how much at most.
    #[must_use]
    pub fn with_delay(mut self, per_10_000: u64, delay_max: Duration) -> Self {
        self.delay = per_10_000;
        self.delay_max = delay_max;
        self
    }

    /// Sets how many of 10,000 calls hang.
    #[must_use]
    pub fn with_hang(mut self, per_10_000: u64) -> Self {
        self.hang = per_10_000;
        self
    }

    /// Sets how many of 10,000 calls panic.
    #[must_use]
    pub fn with_panic(mut self, per_10_000: u64) -> Self {
        self.panic = per_10_000;
        self
    }

    /// Sets how many of 10,000 writes and publishes end in a power cut.
    #[must_use]
    pub fn with_crash(mut self, per_10_000: u64) -> Self {
        self.crash = per_10_000;
        self
    }

    /// Draws for one call. One number from the seed decides, so that a fault more in one
    /// place doesn't shift all that follow.
    pub(super) fn draw(&self, call: Call, random: &mut Random) -> Option<Fault> {
        let mut own = Random::new(random.next_u64());
        let mut ticket = own.below(10_000);
        let mut drawn = |share: u64| {
            let hit = ticket < share;
            ticket = if hit { u64::MAX } else { ticket - share };
            hit
        };
        let kinds = [
            (true, self.refuse),
            (call.commits(), self.in_doubt),
            (true, self.delay),
            (true, self.hang),
            (true, self.panic),
            (call.commits(), self.crash),
        ];
        let kind = kinds
            .into_iter()
            .position(|(possible, share)| drawn(share) && possible)?;
        let effect = if own.chance(1, 2) {
            Effect::Happened
        } else {
            Effect::DidNotHappen
        };
        Some(match kind {
            0 => Fault::Refuse,
            1 => Fault::InDoubt(effect),
            2 => {
                let micros = u64::try_from(self.delay_max.as_micros()).unwrap_or(u64::MAX);
                Fault::Delay(Duration::from_micros(own.below(micros.max(1))))
            }
            3 => Fault::Hang(effect),
            4 => Fault::Panic(effect),
            _ => Fault::Crash {
                effect,
                keep: if own.chance(1, 4) {
                    usize::MAX
                } else {
                    own.index(32)
                },
            },
        })
    }
}
