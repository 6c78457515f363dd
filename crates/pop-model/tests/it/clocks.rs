//! Lease time only goes forward, and a wrong date costs a day at most.

use std::time::Duration;

use pop_model::{Clock, LeaseTime, ManualClock, SystemClock, WallTime};
use proptest::{collection::vec, prelude::*};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
const YEARS_25: Duration = Duration::from_secs(25 * 365 * 24 * 60 * 60);

fn wall_as_lease() -> LeaseTime {
    let wall = SystemClock::resume(None).wall().as_unix_millis();
    LeaseTime::from_millis(wall.try_into().expect("the machine's date is after 1970"))
}

fn earlier(time: LeaseTime, by: Duration) -> LeaseTime {
    LeaseTime::from_millis(time.as_millis() - u64::try_from(by.as_millis()).unwrap())
}

// BR-N01: a broker ran with a clock 25 years ahead, and is started again with it put right.
#[test]
fn no_lease_waits_for_years_after_the_clock_was_put_right() {
    let ahead = wall_as_lease().saturating_add(YEARS_25);
    let deadline = ahead.saturating_add(Duration::from_secs(30));
    // Mutant: lease time follows the wall; the deadline is then 25 years away.
    let now = SystemClock::resume(Some(ahead)).lease();
    assert!(now >= ahead);
    assert!(deadline.saturating_since(now) <= Duration::from_secs(30));
}

#[test]
fn a_clock_that_is_set_years_ahead_moves_lease_time_by_a_day_at_most() {
    let mark = earlier(wall_as_lease(), YEARS_25);
    // Mutant: without the limit, every lease that is out is due at once.
    let now = SystemClock::resume(Some(mark)).lease();
    assert!(now >= mark.saturating_add(DAY));
    assert!(now < mark.saturating_add(DAY + Duration::from_secs(60 * 60)));
}

#[test]
fn time_that_passed_while_the_program_was_down_counts() {
    let wall = wall_as_lease();
    let mark = earlier(wall, Duration::from_secs(60));
    assert!(SystemClock::resume(Some(mark)).lease() >= wall);
    assert!(SystemClock::resume(None).lease() >= wall);
}

#[test]
fn lease_time_stays_at_the_end_of_its_range() {
    let clock = SystemClock::resume(Some(LeaseTime::from_millis(u64::MAX)));
    assert_eq!(clock.lease(), LeaseTime::from_millis(u64::MAX));
}

#[test]
fn the_system_clock_never_goes_back() {
    let clock = SystemClock::resume(None);
    let answers: Vec<_> = (0..10_000).map(|_| clock.lease()).collect();
    assert!(answers.is_sorted());
}

#[test]
fn manual_clocks_stand_still_until_moved_and_are_shared_by_clones() {
    let clock = ManualClock::new(LeaseTime::from_millis(7), WallTime::from_unix_millis(1_000));
    let clone = clock.clone();
    assert_eq!(clock.lease(), LeaseTime::from_millis(7));
    clone.advance(Duration::from_millis(5));
    assert_eq!(clock.lease(), LeaseTime::from_millis(12));
    assert_eq!(clock.wall(), WallTime::from_unix_millis(1_005));
}

#[test]
fn setting_the_wall_clock_leaves_lease_time_alone() {
    let clock = ManualClock::new(LeaseTime::from_millis(7), WallTime::default());
    for wall in [-5, i64::MAX, i64::MIN].map(WallTime::from_unix_millis) {
        clock.set_wall(wall);
        assert_eq!(clock.wall(), wall);
        assert_eq!(clock.lease(), LeaseTime::from_millis(7));
    }
}

proptest! {
    #[test]
    fn manual_lease_time_never_goes_back(
        start in any::<u64>(),
        wall in any::<i64>(),
        steps in vec(prop_oneof![0..10_u64, any::<u64>(), Just(u64::MAX)], 1..8),
    ) {
        let clock = ManualClock::new(
            LeaseTime::from_millis(start),
            WallTime::from_unix_millis(wall),
        );
        for step in steps {
            let before = (clock.lease(), clock.wall());
            clock.advance(Duration::from_millis(step));
            // Mutant: an addition that wraps around.
            prop_assert!(before.0 <= clock.lease());
            prop_assert!(before.1 <= clock.wall());
        }
    }

    #[test]
    fn a_deadline_is_never_earlier_than_asked(start in any::<u64>(), nanos in any::<u64>()) {
        let start = LeaseTime::from_millis(start);
        let duration = Duration::from_nanos(nanos);
        let deadline = start.saturating_add(duration);
        let waited = deadline.saturating_since(start);
        let at_the_end = deadline == LeaseTime::from_millis(u64::MAX);
        // Mutant: parts of a millisecond are cut off.
        prop_assert!(at_the_end || waited >= duration);
        prop_assert!(waited < duration + Duration::from_millis(1));
        prop_assert_eq!(start.saturating_since(deadline), Duration::ZERO);
    }
}
