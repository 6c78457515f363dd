//! How long something is kept, as a person writes it.

use std::{fmt, str::FromStr, time::Duration};

/// A length of time, at least a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span(pub(crate) Duration);

/// A length of time, or for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Age(pub(crate) Option<Duration>);

impl FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?}: give a number and s, m, h or d, such as 10s or 7d");
        let unit = text.char_indices().last().ok_or_else(wrong)?;
        let (number, seconds) = match unit {
            (at, 's') => (text.get(..at), 1),
            (at, 'm') => (text.get(..at), 60),
            (at, 'h') => (text.get(..at), 60 * 60),
            (at, 'd') => (text.get(..at), 24 * 60 * 60),
            _ => return Err(wrong()),
        };
        let number: u64 = number.unwrap_or_default().parse().map_err(|_| wrong())?;
        // In milliseconds it is compared with wall time.
        let seconds = number.checked_mul(seconds).filter(|seconds| {
            *seconds > 0
                && seconds
                    .checked_mul(1_000)
                    .is_some_and(|ms| i64::try_from(ms).is_ok())
        });
        let seconds = seconds.ok_or_else(|| format!("{text:?}: out of range; give at least 1s"))?;
        Ok(Self(Duration::from_secs(seconds)))
    }
}

impl FromStr for Age {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "off" => Ok(Self(None)),
            _ => match text.parse() {
                Ok(Span(age)) => Ok(Self(Some(age))),
                Err(problem) => Err(format!("{problem}, or off")),
            },
        }
    }
}

impl fmt::Display for Age {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            None => f.write_str("off"),
            Some(age) => write!(f, "{}s", age.as_secs()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_age_is_a_number_and_a_unit() {
        let seconds = |text: &str| text.parse::<Age>().unwrap().0.map(|age| age.as_secs());
        assert_eq!(seconds("7d"), Some(7 * 86_400));
        assert_eq!(seconds("12h"), Some(43_200));
        assert_eq!(seconds("90m"), Some(5_400));
        assert_eq!(seconds("1s"), Some(1));
        assert_eq!(seconds("off"), None);
        assert!("off".parse::<Span>().is_err());
        // Mutant: zero is taken, and every message ends at once.
        for text in [
            "",
            "d",
            "7",
            "7 d",
            "0d",
            "-1d",
            "1.5h",
            "7w",
            "9999999999999999d",
            "é",
        ] {
            assert!(text.parse::<Age>().is_err(), "{text}");
            assert!(text.parse::<Span>().is_err(), "{text}");
        }
    }
}
