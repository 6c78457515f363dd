//! Durations and timestamps of the wire, which may hold anything.

use std::time::Duration;

use pop_model::WallTime;

const NANOS: i128 = 1_000_000_000;

/// A duration, if it is not negative.
pub(super) fn duration(wire: prost_types::Duration) -> Option<Duration> {
    let nanos = i128::from(wire.seconds) * NANOS + i128::from(wire.nanos);
    let nanos = u128::try_from(nanos).ok()?;
    let seconds = u64::try_from(nanos / 1_000_000_000).ok()?;
    let rest = u32::try_from(nanos % 1_000_000_000).ok()?;
    Some(Duration::new(seconds, rest))
}

pub(super) fn wire_duration(duration: Duration) -> prost_types::Duration {
    prost_types::Duration {
        seconds: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        nanos: i32::try_from(duration.subsec_nanos()).unwrap_or_default(),
    }
}

/// A moment; one that can't be written in milliseconds becomes the nearest that can.
pub(super) fn wall(wire: prost_types::Timestamp) -> WallTime {
    let nanos = i128::from(wire.seconds) * NANOS + i128::from(wire.nanos);
    let millis = nanos.div_euclid(1_000_000);
    let furthest = if millis < 0 { i64::MIN } else { i64::MAX };
    WallTime::from_unix_millis(i64::try_from(millis).unwrap_or(furthest))
}

pub(super) fn wire_wall(moment: WallTime) -> prost_types::Timestamp {
    let millis = moment.as_unix_millis();
    let nanos = millis.rem_euclid(1_000) * 1_000_000;
    prost_types::Timestamp {
        seconds: millis.div_euclid(1_000),
        nanos: i32::try_from(nanos).expect("less than a second"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds_and_nanos(seconds: i64, nanos: i32) -> prost_types::Duration {
        prost_types::Duration { seconds, nanos }
    }

    #[test]
    fn any_duration_is_read_or_negative() {
        assert_eq!(duration(seconds_and_nanos(1, 5)), Some(Duration::new(1, 5)));
        // Not normal, and clear all the same.
        assert_eq!(
            duration(seconds_and_nanos(1, -1)),
            Some(Duration::new(0, 999_999_999))
        );
        assert_eq!(duration(seconds_and_nanos(0, -1)), None);
        assert_eq!(duration(seconds_and_nanos(i64::MIN, i32::MIN)), None);
        let longest = duration(seconds_and_nanos(i64::MAX, i32::MAX)).unwrap();
        assert!(longest > Duration::from_secs(i64::MAX as u64));
    }

    #[test]
    fn any_moment_is_read_and_written_back() {
        for millis in [0, -1, 1_700_000_000_123, i64::MIN, i64::MAX] {
            let moment = WallTime::from_unix_millis(millis);
            assert_eq!(wall(wire_wall(moment)), moment);
        }
        for (seconds, nanos) in [(i64::MAX, i32::MAX), (i64::MIN, i32::MIN)] {
            let _ = wall(prost_types::Timestamp { seconds, nanos });
        }
    }
}
