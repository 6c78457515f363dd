//! A number of bytes a second, as an operator types it.

use std::str::FromStr;

/// Bytes a second; 0 is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Rate(pub(super) u64);

impl FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is no rate: say bytes a second, such as 500K, 20M or 1G");
        let (number, unit) = match text.char_indices().last() {
            Some((end, 'K' | 'k')) => (text.get(..end), 1 << 10),
            Some((end, 'M' | 'm')) => (text.get(..end), 1 << 20),
            Some((end, 'G' | 'g')) => (text.get(..end), 1 << 30),
            _ => (Some(text), 1),
        };
        let number: u64 = number.and_then(|it| it.parse().ok()).ok_or_else(wrong)?;
        number
            .checked_mul(unit)
            .filter(|rate| *rate > 0)
            .map(Self)
            .ok_or_else(wrong)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_a_number_with_or_without_a_unit() {
        let rates = [
            ("500", 500),
            ("500K", 500 << 10),
            ("20m", 20 << 20),
            ("1G", 1 << 30),
        ];
        for (text, rate) in rates {
            assert_eq!(text.parse(), Ok(Rate(rate)));
        }
        for text in [
            "",
            "K",
            "0",
            "-1",
            "1.5M",
            "20 M",
            "20MB",
            "99999999999G",
            "é",
        ] {
            assert!(text.parse::<Rate>().is_err(), "{text}");
        }
    }
}
