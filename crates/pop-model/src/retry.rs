//! Delivery attempts and the two delays between them that are not to be mixed.

use std::time::Duration;

use crate::{Mutant, limits};

const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// How often a group gets a message, and how long it waits after a failure.
#[derive(Clone, Debug, PartialEq)]
pub struct RetryPolicy {
    delivery_attempts_max: u32,
    backoff: Backoff,
}

/// The delay after a failed attempt, as clients compute it too. Whole milliseconds of it
/// are stored.
#[derive(Clone, Debug, PartialEq)]
pub enum Backoff {
    /// One delay an attempt; the last one goes on for ever.
    Customized(Vec<Duration>),
    /// `initial` times `multiplier` to the power of the attempts before, up to `max`.
    Exponential {
        /// After the first attempt.
        initial: Duration,
        /// The longest delay.
        max: Duration,
        /// Growth from one attempt to the next.
        multiplier: f32,
    },
}

/// A retry policy that was refused.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum RetryPolicyError {
    /// No delivery at all, or more than can be meant.
    #[error("{0} delivery attempts: allow 1 (deliver once) to {max}", max = limits::DELIVERY_ATTEMPTS_MAX)]
    Attempts(u32),
    /// A customized back-off without a delay.
    #[error("customized back-off has no delay: give at least one")]
    NoDelay,
    /// An exponential back-off that does not grow.
    #[error("back-off multiplier {0}: give a finite number of at least 1")]
    Multiplier(f32),
}

impl RetryPolicy {
    /// Checks a policy.
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    pub fn new(delivery_attempts_max: u32, backoff: Backoff) -> Result<Self, RetryPolicyError> {
        if !(1..=limits::DELIVERY_ATTEMPTS_MAX).contains(&delivery_attempts_max) {
            return Err(RetryPolicyError::Attempts(delivery_attempts_max));
        }
        match &backoff {
            Backoff::Customized(delays) if delays.is_empty() => Err(RetryPolicyError::NoDelay),
            Backoff::Exponential { multiplier, .. }
                if !multiplier.is_finite() || *multiplier < 1.0 =>
            {
                Err(RetryPolicyError::Multiplier(*multiplier))
            }
            _ => Ok(Self {
                delivery_attempts_max,
                backoff,
            }),
        }
    }

    /// The last attempt that is delivered; after it comes the dead-letter topic.
    #[must_use]
    pub fn delivery_attempts_max(&self) -> u32 {
        self.delivery_attempts_max
    }

    /// The delays.
    #[must_use]
    pub fn backoff(&self) -> &Backoff {
        &self.backoff
    }

    /// The delay after the given attempt failed, 1 being the first. An attempt beyond
    /// the end of a table gets its last delay.
    #[must_use]
    pub fn delay_after(&self, attempt: u32) -> Duration {
        let before = attempt.saturating_sub(1);
        match &self.backoff {
            Backoff::Customized(delays) => {
                let index = usize::try_from(before).unwrap_or(usize::MAX);
                let delay = delays.get(index).or_else(|| delays.last());
                delay.copied().unwrap_or(Duration::ZERO)
            }
            Backoff::Exponential {
                initial,
                max,
                multiplier,
            } => {
                let factor = f64::from(*multiplier).powi(i32::try_from(before).unwrap_or(i32::MAX));
                let delay = Duration::try_from_secs_f64(initial.as_secs_f64() * factor);
                delay.map_or(*max, |delay| delay.min(*max))
            }
        }
    }
}

impl Default for RetryPolicy {
    /// What RocketMQ's server gives a group without a configuration: 16 retries, so 17
    /// attempts, after 1 s 5 s 10 s 30 s, 1 to 10 min, 20 min, 30 min, 1 h, 2 h.
    fn default() -> Self {
        let minutes = (1..=10).map(|minutes| seconds(minutes * 60));
        let delays = [1, 5, 10, 30].map(seconds).into_iter().chain(minutes);
        let delays = delays.chain([20 * 60, 30 * 60, 60 * 60, 2 * 60 * 60].map(seconds));
        Self {
            delivery_attempts_max: 17,
            backoff: Backoff::Customized(delays.collect()),
        }
    }
}

/// After how many failed revives a delivery goes to quarantine (RocketMQ's number).
pub const REVIVE_FAILURES_MAX: u32 = 16;

// RocketMQ's table: 10 s, 30 s, 1 to 10 min, 20 min, 30 min, 1 h, 2 h.
const REVIVE_FAILURE_BACKOFF_SECONDS: [u64; 16] = [
    10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1_200, 1_800, 3_600, 7_200,
];

/// How long a delivery waits after its revive failed, `failures` being the count with
/// this one. A count beyond the table gets the last delay.
#[must_use]
pub fn revive_failure_backoff(failures: u32) -> Duration {
    let index = usize::try_from(failures.saturating_sub(1)).unwrap_or(usize::MAX);
    if Mutant::BackoffPastTheTable.is_on() {
        let past = REVIVE_FAILURE_BACKOFF_SECONDS.get(index.saturating_add(1));
        return seconds(*past.expect("mutant: the table has no such entry"));
    }
    let delay = REVIVE_FAILURE_BACKOFF_SECONDS.get(index);
    seconds(*delay.unwrap_or(&7_200))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_policy_is_that_of_the_reference_server() {
        let policy = RetryPolicy::default();
        assert_eq!(policy.delivery_attempts_max(), 17);
        assert_eq!(policy.delay_after(1), seconds(1));
        assert_eq!(policy.delay_after(5), seconds(60));
        assert_eq!(policy.delay_after(18), seconds(7_200));
    }

    #[test]
    fn an_attempt_past_the_end_of_a_table_gets_its_last_delay() {
        // Mutant: indexing with the count, which the ancestor does, panics here.
        assert_eq!(RetryPolicy::default().delay_after(u32::MAX), seconds(7_200));
        assert_eq!(revive_failure_backoff(0), seconds(10));
        assert_eq!(revive_failure_backoff(1), seconds(10));
        assert_eq!(revive_failure_backoff(16), seconds(7_200));
        assert_eq!(revive_failure_backoff(u32::MAX), seconds(7_200));
    }

    #[test]
    fn exponential_delays_grow_up_to_their_maximum() {
        let backoff = Backoff::Exponential {
            initial: seconds(5),
            max: seconds(7_200),
            multiplier: 2.0,
        };
        let policy = RetryPolicy::new(17, backoff).unwrap();
        assert_eq!(policy.delay_after(1), seconds(5));
        assert_eq!(policy.delay_after(3), seconds(20));
        assert_eq!(policy.delay_after(u32::MAX), seconds(7_200));
    }

    #[test]
    fn a_policy_that_never_delivers_is_refused() {
        let delays = || Backoff::Customized(vec![seconds(1)]);
        assert_eq!(
            RetryPolicy::new(0, delays()),
            Err(RetryPolicyError::Attempts(0))
        );
        assert!(RetryPolicy::new(1, delays()).is_ok());
        assert_eq!(
            RetryPolicy::new(1, Backoff::Customized(vec![])),
            Err(RetryPolicyError::NoDelay)
        );
    }
}
