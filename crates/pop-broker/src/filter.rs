//! Which messages a receive wants.

use pop_model::Message;

use crate::BrokerError;

/// A tag expression: `*`, or tags separated by `||`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Filter {
    /// Every message.
    All,
    /// Messages with one of these tags.
    Tags(Vec<String>),
}

impl Filter {
    /// More tags than this are a mistake.
    const TAGS_MAX: usize = 1_024;

    /// Reads a tag expression; an empty one is `*`.
    ///
    /// # Errors
    ///
    /// [`BrokerError::Filter`].
    pub fn tags(expression: &str) -> Result<Self, BrokerError> {
        let trimmed = expression.trim();
        if trimmed.is_empty() || trimmed == "*" {
            return Ok(Self::All);
        }
        let wrong = |problem| BrokerError::Filter {
            expression: expression.chars().take(200).collect(),
            problem,
        };
        let tags: Vec<String> = trimmed
            .split("||")
            .map(|tag| tag.trim().to_owned())
            .collect();
        if tags.len() > Self::TAGS_MAX {
            return Err(wrong("too many tags"));
        }
        if tags.iter().any(|tag| tag.is_empty() || tag.contains('|')) {
            return Err(wrong("separate tags with '||'"));
        }
        if tags.iter().any(|tag| tag.chars().any(char::is_control)) {
            return Err(wrong("a tag has no control characters"));
        }
        Ok(Self::Tags(tags))
    }

    /// Whether a message is wanted.
    #[must_use]
    pub fn matches(&self, message: &Message) -> bool {
        match self {
            Self::All => true,
            Self::Tags(tags) => message.tag.as_ref().is_some_and(|tag| tags.contains(tag)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_expression_is_star_or_tags_between_double_bars() {
        assert_eq!(Filter::tags("").unwrap(), Filter::All);
        assert_eq!(Filter::tags(" * ").unwrap(), Filter::All);
        assert_eq!(
            Filter::tags("a || b||c").unwrap(),
            Filter::Tags(["a", "b", "c"].map(String::from).into())
        );
        for wrong in ["a |", "||", "a || ", "a | b", "a\u{7} || b"] {
            assert!(Filter::tags(wrong).is_err(), "{wrong:?}");
        }
    }
}
