//! The two clocks: lease time, which only goes forward, and wall time, which people set.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicI64, AtomicU64, Ordering},
    },
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use crate::Mutant;

/// A moment of lease time, in milliseconds. Deadlines use it and nothing else.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseTime(u64);

impl LeaseTime {
    /// The beginning.
    pub const ZERO: Self = Self(0);

    /// Takes milliseconds.
    #[must_use]
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis)
    }

    /// As milliseconds.
    #[must_use]
    pub const fn as_millis(self) -> u64 {
        self.0
    }

    /// This much later; parts of a millisecond are rounded up, so that nothing is early.
    #[must_use]
    pub fn saturating_add(self, duration: Duration) -> Self {
        let millis = duration.as_nanos().div_ceil(1_000_000);
        Self(
            self.0
                .saturating_add(u64::try_from(millis).unwrap_or(u64::MAX)),
        )
    }

    /// How long after `earlier` this is; zero if it is not.
    #[must_use]
    pub const fn saturating_since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

impl fmt::Display for LeaseTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ms", self.0)
    }
}

/// A moment of wall time, in milliseconds since 1970-01-01 UTC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WallTime(i64);

impl WallTime {
    /// Takes milliseconds since 1970-01-01 UTC.
    #[must_use]
    pub const fn from_unix_millis(millis: i64) -> Self {
        Self(millis)
    }

    /// As milliseconds since 1970-01-01 UTC.
    #[must_use]
    pub const fn as_unix_millis(self) -> i64 {
        self.0
    }
}

/// Where time comes from. The edge of a program makes one; everything else is given it.
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// Lease time now: never less than any earlier answer.
    fn lease(&self) -> LeaseTime;
    /// Wall time now: may step in either direction.
    fn wall(&self) -> WallTime;
}

/// The machine's clocks.
#[derive(Debug)]
pub struct SystemClock {
    started: Instant,
    base: LeaseTime,
}

impl SystemClock {
    /// Starts lease time where [`resumed_lease_time`] says.
    #[must_use]
    pub fn resume(mark: Option<LeaseTime>) -> Self {
        let base = resumed_lease_time(mark, wall_now());
        Self {
            started: monotonic_now(),
            base,
        }
    }
}

// A wall clock further ahead of the mark than this is taken to be wrong: leases then
// wait a day at most, and not the 25 years of a mistyped date.
const AHEAD_OF_MARK_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// Where lease time goes on after a start: at the stored high-water mark, or at the wall
/// clock where that is ahead of the mark by up to a day. Time that passed while the
/// program was down counts, a wrong date does not.
#[must_use]
pub fn resumed_lease_time(mark: Option<LeaseTime>, wall: WallTime) -> LeaseTime {
    let wall = LeaseTime(u64::try_from(wall.0).unwrap_or(0));
    match mark {
        Some(_) if Mutant::LeaseTimeGoesBack.is_on() => wall,
        Some(mark) => mark.max(wall.min(mark.saturating_add(AHEAD_OF_MARK_MAX))),
        None => wall,
    }
}

impl Clock for SystemClock {
    fn lease(&self) -> LeaseTime {
        let up = monotonic_now().saturating_duration_since(self.started);
        // Rounded down, against the rounding up of deadlines.
        LeaseTime(
            self.base
                .0
                .saturating_add(u64::try_from(up.as_millis()).unwrap_or(u64::MAX)),
        )
    }

    fn wall(&self) -> WallTime {
        wall_now()
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "this is the one place where the wall clock is read"
)]
fn wall_now() -> WallTime {
    let now = SystemTime::now();
    let millis = match now.duration_since(UNIX_EPOCH) {
        Ok(after) => i64::try_from(after.as_millis()).unwrap_or(i64::MAX),
        Err(before) => {
            i64::try_from(before.duration().as_millis()).map_or(i64::MIN, |millis| -millis)
        }
    };
    WallTime(millis)
}

#[expect(
    clippy::disallowed_methods,
    reason = "this is the one place where the monotonic clock is read"
)]
fn monotonic_now() -> Instant {
    Instant::now()
}

/// Clocks that stand still until somebody moves them. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct ManualClock {
    lease_ms: Arc<AtomicU64>,
    wall_ms: Arc<AtomicI64>,
}

impl ManualClock {
    /// Clocks that stand at these moments.
    #[must_use]
    pub fn new(lease: LeaseTime, wall: WallTime) -> Self {
        let clock = Self::default();
        clock.lease_ms.store(lease.0, Ordering::Release);
        clock.set_wall(wall);
        clock
    }

    /// Moves both clocks forward by the whole milliseconds of `by`. They stay at the end
    /// of their range rather than start again, since lease time never goes back.
    pub fn advance(&self, by: Duration) {
        let millis = u64::try_from(by.as_millis()).unwrap_or(u64::MAX);
        let lease = |lease: u64| Some(lease.saturating_add(millis));
        let wall = |wall: i64| Some(wall.saturating_add_unsigned(millis));
        let _ = (self.lease_ms).fetch_update(Ordering::AcqRel, Ordering::Acquire, lease);
        let _ = (self.wall_ms).fetch_update(Ordering::AcqRel, Ordering::Acquire, wall);
    }

    /// Sets the wall clock, in either direction; lease time stays.
    pub fn set_wall(&self, wall: WallTime) {
        self.wall_ms.store(wall.0, Ordering::Release);
    }
}

impl Clock for ManualClock {
    fn lease(&self) -> LeaseTime {
        LeaseTime(self.lease_ms.load(Ordering::Acquire))
    }

    fn wall(&self) -> WallTime {
        WallTime(self.wall_ms.load(Ordering::Acquire))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lease_time_resumes_at_the_mark_and_trusts_the_wall_for_a_day_at_most() {
        let wall = u64::try_from(wall_now().as_unix_millis()).unwrap();
        let day = 24 * 60 * 60 * 1_000;
        let resumed = |mark| SystemClock::resume(Some(LeaseTime(mark))).base.0;
        assert!(resumed(wall - 5_000) >= wall);
        assert_eq!(resumed(wall + day), wall + day);
        assert_eq!(resumed(wall - 9 * day), wall - 8 * day);
    }

    #[test]
    fn a_deadline_is_never_early() {
        let deadline = LeaseTime(1).saturating_add(Duration::from_nanos(1));
        assert_eq!(deadline, LeaseTime(2));
        assert_eq!(
            LeaseTime(1).saturating_add(Duration::MAX),
            LeaseTime(u64::MAX)
        );
    }
}
