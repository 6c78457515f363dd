//! Whether wall time can be trusted with the age of messages.
//!
//! Ages are differences of wall time, and people set wall time. Lease time only goes
//! forward, so that a jump shows as a change of the distance between the two.

use std::time::Duration;

use pop_model::{LeaseTime, WallTime};

/// A change of more than this between two looks is a jump.
const JUMP: Duration = Duration::from_secs(60 * 60);
/// After this long without another jump the new time is taken for right.
const STABLE: Duration = Duration::from_secs(24 * 60 * 60);

/// Wall time jumped, and nobody has said yet that it is right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClockJump {
    /// How far it is ahead of where it should be, in milliseconds; negative if behind.
    pub ahead_ms: i64,
    /// When it was noticed.
    pub since: LeaseTime,
}

/// Compares the two clocks from look to look.
#[derive(Debug, Default)]
pub(super) struct AgeClock {
    /// How far wall time was ahead of lease time when both were last trusted.
    trusted: Option<i64>,
    jump: Option<Jump>,
}

#[derive(Clone, Copy, Debug)]
struct Jump {
    ahead: i64,
    since: LeaseTime,
}

impl AgeClock {
    pub(super) fn restore(trusted: Option<i64>) -> Self {
        Self {
            trusted,
            jump: None,
        }
    }

    /// What to store, so that a jump over a restart shows, too.
    pub(super) fn trusted(&self) -> Option<i64> {
        self.trusted
    }

    pub(super) fn jump(&self) -> Option<ClockJump> {
        let jump = self.jump?;
        Some(ClockJump {
            ahead_ms: jump.ahead.saturating_sub(self.trusted?),
            since: jump.since,
        })
    }

    /// Looks at both clocks. Returns whether wall time may be trusted.
    pub(super) fn look(&mut self, wall: WallTime, lease: LeaseTime) -> bool {
        let ahead = ahead(wall, lease);
        // A slow drift is followed; whoever set the clock right again ends the alarm.
        if self.trusted.is_none_or(|trusted| is_near(trusted, ahead)) {
            self.trust(ahead);
            return true;
        }
        match &mut self.jump {
            Some(jump) if is_near(jump.ahead, ahead) => {
                jump.ahead = ahead;
                if lease.saturating_since(jump.since) < STABLE {
                    return false;
                }
                self.trust(ahead);
                true
            }
            _ => {
                let since = lease;
                self.jump = Some(Jump { ahead, since });
                false
            }
        }
    }

    /// Somebody says that wall time is right.
    pub(super) fn confirm(&mut self, wall: WallTime, lease: LeaseTime) {
        self.trust(ahead(wall, lease));
    }

    fn trust(&mut self, ahead: i64) {
        self.trusted = Some(ahead);
        self.jump = None;
    }
}

fn ahead(wall: WallTime, lease: LeaseTime) -> i64 {
    let lease = i64::try_from(lease.as_millis()).unwrap_or(i64::MAX);
    wall.as_unix_millis().saturating_sub(lease)
}

fn is_near(one: i64, other: i64) -> bool {
    u128::from(one.abs_diff(other)) <= JUMP.as_millis()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: i64 = 60 * 1_000;
    const HOUR: i64 = 60 * MINUTE;

    /// A clock that was trusted at lease time 0 and wall time 0.
    fn trusted() -> AgeClock {
        let mut clock = AgeClock::restore(None);
        assert!(clock.look(WallTime::default(), LeaseTime::ZERO));
        clock
    }

    fn look(clock: &mut AgeClock, wall: i64, lease: i64) -> bool {
        let lease = LeaseTime::from_millis(lease.cast_unsigned());
        clock.look(WallTime::from_unix_millis(wall), lease)
    }

    #[test]
    fn a_clock_that_goes_on_is_trusted() {
        let mut clock = trusted();
        assert!(look(&mut clock, MINUTE, MINUTE));
        // An hour at a time is within what is taken for drift, and is followed.
        // Mutant: what is compared with is the first look and not the last.
        for hour in 1..30 {
            assert!(look(&mut clock, MINUTE + hour * HOUR, MINUTE), "{hour}");
        }
    }

    #[test]
    fn a_jump_in_either_direction_stops_it() {
        for jump in [HOUR + 1, -HOUR - 1, 25 * 365 * 24 * HOUR] {
            let mut clock = trusted();
            // Mutant: only forward jumps count.
            assert!(!look(&mut clock, jump + MINUTE, MINUTE), "{jump}");
            assert_eq!(clock.jump().unwrap().ahead_ms, jump);
            assert!(!look(&mut clock, jump + 2 * MINUTE, 2 * MINUTE));
            // Set right again, all is well.
            assert!(look(&mut clock, 3 * MINUTE, 3 * MINUTE));
            assert_eq!(clock.jump(), None);
        }
    }

    #[test]
    fn a_day_without_another_jump_is_enough() {
        let mut clock = trusted();
        let jump = 5 * HOUR;
        assert!(!look(&mut clock, jump, 0));
        assert!(!look(&mut clock, jump + 24 * HOUR - 1, 24 * HOUR - 1));
        // Mutant: a second jump does not begin the day anew.
        assert!(!look(&mut clock, 3 * jump + 24 * HOUR, 24 * HOUR));
        assert!(!look(&mut clock, 3 * jump + 47 * HOUR, 47 * HOUR));
        assert!(look(&mut clock, 3 * jump + 48 * HOUR, 48 * HOUR));
    }

    #[test]
    fn a_word_is_enough() {
        let mut clock = trusted();
        assert!(!look(&mut clock, 5 * HOUR, 0));
        clock.confirm(WallTime::from_unix_millis(5 * HOUR), LeaseTime::ZERO);
        assert_eq!(clock.jump(), None);
        assert!(look(&mut clock, 5 * HOUR + MINUTE, MINUTE));
    }

    #[test]
    fn a_jump_over_a_restart_shows() {
        let mut clock = AgeClock::restore(trusted().trusted());
        // Mutant: a start trusts whatever it finds.
        assert!(!look(&mut clock, 5 * HOUR, MINUTE));
    }
}
