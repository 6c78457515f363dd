//! Names of topics and groups: checked once, then passed around as they are.
//!
//! User names follow RocketMQ's rules. Internal topics (`%RETRY%group+topic`,
//! `%DLQ%group`) use characters that user names can't have, so that each internal name
//! stands for exactly one pair and can be read back. A group of another namespace than
//! its topic is written with its own: `%RETRY%namespace/group+topic`.

use std::{fmt, sync::Arc};

use crate::limits;

const RETRY_PREFIX: &str = "%RETRY%";
const DEAD_LETTER_PREFIX: &str = "%DLQ%";
const SYSTEM_PREFIX: &str = "rmq_sys_";
// Not a user character, so the first one in a retry name splits it.
const RETRY_SEPARATOR: char = '+';
// Nor is this one, so the first one before the separator ends a namespace.
const NAMESPACE_SEPARATOR: char = '/';

/// A name that was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// Nothing there.
    #[error("{what} name is empty: give it at least one character")]
    Empty {
        /// What was to be named.
        what: &'static str,
    },
    /// Longer than allowed.
    #[error("{what} name has {bytes} bytes, at most {bytes_max} are allowed")]
    TooLong {
        /// What was to be named.
        what: &'static str,
        /// How long it is.
        bytes: usize,
        /// How long it may be.
        bytes_max: usize,
    },
    /// A character that is not allowed.
    #[error(
        "{what} name has the character {character:?} at byte {at}: only a-z, A-Z, 0-9, '_', '-', '%' and '|' are allowed"
    )]
    Character {
        /// What was to be named.
        what: &'static str,
        /// The first character that is not allowed.
        character: char,
        /// Where it stands.
        at: usize,
    },
    /// A control character in a name that may have any other.
    #[error("{what} name has the control character {character:?} at byte {at}: none is allowed")]
    Control {
        /// What was to be named.
        what: &'static str,
        /// The first control character.
        character: char,
        /// Where it stands.
        at: usize,
    },
    /// A name that only the broker may use.
    #[error(
        "{what} name {name:?} is reserved: names that start with {prefix} belong to the broker"
    )]
    Reserved {
        /// What was to be named.
        what: &'static str,
        /// The name.
        name: String,
        /// What makes it reserved.
        prefix: &'static str,
    },
}

/// A namespace: part of every name, empty unless somebody separates tenants.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Namespace(Arc<str>);

impl Namespace {
    /// Checks a namespace; the empty one is the default.
    ///
    /// # Errors
    ///
    /// A character or length that names may not have.
    pub fn new(name: &str) -> Result<Self, NameError> {
        if !name.is_empty() {
            check_user("namespace", name, limits::NAMESPACE_BYTES_MAX)?;
        }
        Ok(Self(name.into()))
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

macro_rules! qualified {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name {
            namespace: Namespace,
            name: Arc<str>,
        }

        impl $name {
            /// The namespace it lives in.
            #[must_use]
            pub fn namespace(&self) -> &Namespace {
                &self.namespace
            }

            /// The name inside its namespace.
            #[must_use]
            pub fn name(&self) -> &str {
                &self.name
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                if !self.namespace.0.is_empty() {
                    write!(f, "{}/", self.namespace.0)?;
                }
                f.write_str(&self.name)
            }
        }
    };
}

qualified! {
    /// A topic's name.
    TopicName
}
qualified! {
    /// A consumer group's name.
    GroupName
}

/// What a topic's name says that it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TopicNameKind {
    /// Made by a user.
    User,
    /// How the deliveries to retry of one group and topic appear to the outside.
    Retry {
        /// The group.
        group: GroupName,
        /// The topic whose messages are retried.
        topic: TopicName,
    },
    /// Where messages of a group go after their last attempt.
    DeadLetter {
        /// The group.
        group: GroupName,
    },
    /// Another topic of the broker's own.
    Internal,
}

impl TopicName {
    /// A topic that a user may make: `a-z A-Z 0-9 _ - % |`, 1 to 127 of them, and no
    /// reserved prefix.
    ///
    /// # Errors
    ///
    /// What is wrong with the name.
    pub fn user(namespace: &Namespace, name: &str) -> Result<Self, NameError> {
        check_user("topic", name, limits::TOPIC_NAME_BYTES_MAX)?;
        for prefix in [RETRY_PREFIX, DEAD_LETTER_PREFIX, SYSTEM_PREFIX] {
            if name.starts_with(prefix) {
                return Err(NameError::Reserved {
                    what: "topic",
                    name: name.into(),
                    prefix,
                });
            }
        }
        Ok(Self::unchecked(namespace, name))
    }

    /// A topic of the broker's own: any text without control characters, up to 384 bytes.
    ///
    /// # Errors
    ///
    /// What is wrong with the name.
    pub fn internal(namespace: &Namespace, name: &str) -> Result<Self, NameError> {
        check_length("topic", name, limits::INTERNAL_NAME_BYTES_MAX)?;
        match name
            .char_indices()
            .find(|(_, character)| character.is_control())
        {
            Some((at, character)) => Err(NameError::Control {
                what: "topic",
                character,
                at,
            }),
            None => Ok(Self::unchecked(namespace, name)),
        }
    }

    /// A topic that a client may read: a user's, or a retry or dead-letter topic.
    ///
    /// # Errors
    ///
    /// What is wrong with the name.
    pub fn readable(namespace: &Namespace, name: &str) -> Result<Self, NameError> {
        // The prefix decides first: internal names may be longer than those of users.
        if name.starts_with(RETRY_PREFIX) || name.starts_with(DEAD_LETTER_PREFIX) {
            Self::internal(namespace, name)
        } else {
            Self::user(namespace, name)
        }
    }

    /// How the retries of `topic` for `group` appear to the outside, in the namespace of
    /// the topic.
    #[must_use]
    pub fn retry(group: &GroupName, topic: &Self) -> Self {
        let mut name = String::from(RETRY_PREFIX);
        // Two groups of one name in two namespaces must not share their retries.
        if group.namespace != topic.namespace {
            name.push_str(group.namespace.as_str());
            name.push(NAMESPACE_SEPARATOR);
        }
        name.push_str(&group.name);
        name.push(RETRY_SEPARATOR);
        name.push_str(&topic.name);
        Self::unchecked(&topic.namespace, &name)
    }

    /// Where messages of `group` go after their last attempt.
    #[must_use]
    pub fn dead_letter(group: &GroupName) -> Self {
        Self::unchecked(
            &group.namespace,
            &format!("{DEAD_LETTER_PREFIX}{}", group.name),
        )
    }

    /// What the name says that it is.
    #[must_use]
    pub fn kind(&self) -> TopicNameKind {
        if let Some(pair) = self.name.strip_prefix(RETRY_PREFIX)
            && let Some((group, topic)) = self.retry_pair(pair)
        {
            return TopicNameKind::Retry { group, topic };
        }
        if let Some(group) = self.name.strip_prefix(DEAD_LETTER_PREFIX)
            && let Ok(group) = GroupName::user(&self.namespace, group)
        {
            return TopicNameKind::DeadLetter { group };
        }
        match Self::user(&self.namespace, &self.name) {
            Ok(_) => TopicNameKind::User,
            Err(_) => TopicNameKind::Internal,
        }
    }

    /// The group and topic that [`TopicName::retry`] made `pair` of; `None` if it did not.
    fn retry_pair(&self, pair: &str) -> Option<(GroupName, Self)> {
        let (group, topic) = pair.split_once(RETRY_SEPARATOR)?;
        let group = match group.split_once(NAMESPACE_SEPARATOR) {
            Some((namespace, group)) => {
                let namespace = Namespace::new(namespace).ok()?;
                // One name for one pair: the topic's own namespace goes without saying.
                if namespace == self.namespace {
                    return None;
                }
                GroupName::user(&namespace, group).ok()?
            }
            None => GroupName::user(&self.namespace, group).ok()?,
        };
        let topic = (!topic.is_empty()).then(|| Self::unchecked(&self.namespace, topic))?;
        Some((group, topic))
    }

    /// A name that was checked before it was stored.
    pub(crate) fn unchecked(namespace: &Namespace, name: &str) -> Self {
        Self {
            namespace: namespace.clone(),
            name: name.into(),
        }
    }
}

impl GroupName {
    /// A group that a user may make: `a-z A-Z 0-9 _ - % |`, 1 to 120 of them.
    ///
    /// # Errors
    ///
    /// What is wrong with the name.
    pub fn user(namespace: &Namespace, name: &str) -> Result<Self, NameError> {
        check_user("group", name, limits::GROUP_NAME_BYTES_MAX)?;
        Ok(Self::unchecked(namespace, name))
    }

    /// A name that was checked before it was stored.
    pub(crate) fn unchecked(namespace: &Namespace, name: &str) -> Self {
        Self {
            namespace: namespace.clone(),
            name: name.into(),
        }
    }
}

impl Namespace {
    /// A namespace that was checked before it was stored.
    pub(crate) fn unchecked(name: &str) -> Self {
        Self(name.into())
    }
}

fn check_length(what: &'static str, name: &str, bytes_max: usize) -> Result<(), NameError> {
    if name.is_empty() {
        return Err(NameError::Empty { what });
    }
    if name.len() > bytes_max {
        return Err(NameError::TooLong {
            what,
            bytes: name.len(),
            bytes_max,
        });
    }
    Ok(())
}

fn check_user(what: &'static str, name: &str, bytes_max: usize) -> Result<(), NameError> {
    check_length(what, name, bytes_max)?;
    let allowed = |character: char| {
        character.is_ascii_alphanumeric() || matches!(character, '_' | '-' | '%' | '|')
    };
    match name
        .char_indices()
        .find(|(_, character)| !allowed(*character))
    {
        Some((at, character)) => Err(NameError::Character {
            what,
            character,
            at,
        }),
        None => Ok(()),
    }
}
