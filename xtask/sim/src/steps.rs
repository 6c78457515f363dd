//! Step numbers as the command line has them: `3,7,9-12`.

use std::{collections::BTreeSet, fmt::Write};

/// Reads step numbers.
///
/// # Errors
///
/// If they are not numbers and ranges separated by commas.
pub fn read(text: &str) -> Result<BTreeSet<u64>, String> {
    let mut steps = BTreeSet::new();
    for part in text.split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let number = |text: &str| {
            let number = text.trim().parse::<u64>();
            number.map_err(|_| format!("{part:?} is no step number and no range of them"))
        };
        steps.extend(number(first)?..=number(last)?);
    }
    Ok(steps)
}

/// Writes step numbers, as short as they go.
pub fn write(steps: &BTreeSet<u64>) -> String {
    let steps: Vec<u64> = steps.iter().copied().collect();
    let mut text = String::new();
    for range in steps.chunk_by(|left, right| left + 1 == *right) {
        if let (Some(first), Some(last)) = (range.first(), range.last()) {
            let comma = if text.is_empty() { "" } else { "," };
            // Writing to a string can't fail.
            let _ = if first == last {
                write!(text, "{comma}{first}")
            } else {
                write!(text, "{comma}{first}-{last}")
            };
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn step_numbers_are_read_as_they_are_written() {
        for text in ["", "3", "3,7,9-12", "0-1,5"] {
            assert_eq!(write(&read(text).unwrap()), text);
        }
        assert!(read("3,x").is_err());
    }
}
