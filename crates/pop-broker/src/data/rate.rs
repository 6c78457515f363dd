//! How fast data may pass, as a person writes it.

use std::{fmt, str::FromStr};

/// Bytes a second; no limit if absent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteRate(pub Option<u64>);

/// What is no rate.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no rate: say bytes a second, such as 500K, 20M or 1G, or off for no limit")]
pub struct InvalidRate(pub String);

impl ByteRate {
    /// As the limiter takes it, for which 0 is no limit.
    #[must_use]
    pub fn bytes_per_second(self) -> u64 {
        self.0.unwrap_or(0)
    }
}

impl FromStr for ByteRate {
    type Err = InvalidRate;

    fn from_str(text: &str) -> Result<Self, InvalidRate> {
        if text == "off" {
            return Ok(Self(None));
        }
        let invalid = || InvalidRate(text.to_owned());
        let digits = text.find(|it: char| !it.is_ascii_digit());
        let (number, unit) = text.split_at(digits.unwrap_or(text.len()));
        let unit = match unit {
            "" | "B" => 1,
            "K" | "k" | "KiB" => 1 << 10,
            "M" | "m" | "MiB" => 1 << 20,
            "G" | "g" | "GiB" => 1 << 30,
            _ => return Err(invalid()),
        };
        let number: u64 = number.parse().map_err(|_| invalid())?;
        // None at all would be a transfer that never ends.
        let rate = number.checked_mul(unit).filter(|rate| *rate > 0);
        rate.map(|rate| Self(Some(rate))).ok_or_else(invalid)
    }
}

impl fmt::Display for ByteRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(rate) = self.0 else {
            return f.write_str("off");
        };
        for (unit, name) in [(1_u64 << 30, "G"), (1 << 20, "M"), (1 << 10, "K")] {
            if rate % unit == 0 {
                return write!(f, "{}{name}", rate / unit);
            }
        }
        write!(f, "{rate}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_a_number_and_a_unit() {
        for (text, bytes) in [
            ("64M", 64 << 20),
            ("1G", 1 << 30),
            ("500K", 500 << 10),
            ("7", 7),
            ("off", 0),
        ] {
            let rate: ByteRate = text.parse().unwrap();
            assert_eq!(rate.bytes_per_second(), bytes, "{text}");
            assert_eq!(rate.to_string(), text);
        }
        assert_eq!("20MiB".parse(), Ok(ByteRate(Some(20 << 20))));
        // Mutant: zero is taken, which the limiter reads as no limit.
        for text in [
            "",
            "0",
            "0MiB",
            "-1",
            "1.5MiB",
            "64MB",
            "64 M",
            "99999999999G",
            "MiB",
        ] {
            assert!(text.parse::<ByteRate>().is_err(), "{text}");
        }
    }
}
