//! The configuration file. Everything in it is checked while its lines are still known, so
//! that an error can say where it is.

use std::{
    fs,
    path::{Path, PathBuf},
};

use pop_model::{Backoff, GroupName, Namespace, RetryPolicy, TopicName};
use serde::{Deserialize, Deserializer, de};

use super::choices::{Choices, Start, queues};
use crate::cli::{Exit, Failure};

/// A topic that is created if it is missing.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct TopicChoice {
    #[serde(deserialize_with = "topic_name")]
    name: TopicName,
    #[serde(default, deserialize_with = "namespace")]
    namespace: Namespace,
    #[serde(default, deserialize_with = "queues")]
    pub(crate) queues: Option<u32>,
}

/// A group that is created if it is missing.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct GroupChoice {
    #[serde(deserialize_with = "group_name")]
    name: GroupName,
    #[serde(default, deserialize_with = "namespace")]
    namespace: Namespace,
    #[serde(default, deserialize_with = "attempts")]
    delivery_attempts_max: Option<u32>,
    pub(crate) start: Option<Start>,
    #[serde(default)]
    pub(crate) fifo: bool,
}

impl TopicChoice {
    pub(crate) fn name(&self) -> TopicName {
        TopicName::user(&self.namespace, self.name.name())
            .expect("the name was checked when it was read, in another namespace")
    }
}

impl GroupChoice {
    pub(crate) fn name(&self) -> GroupName {
        GroupName::user(&self.namespace, self.name.name())
            .expect("the name was checked when it was read, in another namespace")
    }

    pub(crate) fn policy(&self) -> RetryPolicy {
        let default = RetryPolicy::default();
        match self.delivery_attempts_max {
            Some(attempts) => RetryPolicy::new(attempts, default.backoff().clone())
                .expect("the attempts were checked when they were read"),
            None => default,
        }
    }
}

impl Choices {
    /// Reads a configuration file.
    pub(crate) fn read(path: &Path) -> Result<Self, Failure> {
        let text = fs::read_to_string(path).map_err(|error| {
            let problem = format!(
                "configuration file {} can't be read: {error}",
                path.display()
            );
            Failure::new(Exit::Usage, problem)
        })?;
        let mut choices: Self = toml::from_str(&text).map_err(|error| {
            let problem = format!(
                "{}, {}: {}",
                path.display(),
                place(&text, error.span().map(|span| span.start)),
                error.message()
            );
            Failure::new(Exit::Usage, problem)
        })?;
        let folder = path.parent().unwrap_or(Path::new(""));
        for path in [
            &mut choices.data,
            &mut choices.tls_certificate,
            &mut choices.tls_key,
            &mut choices.data_token_file,
            &mut choices.data_tls_certificate,
            &mut choices.data_tls_key,
            &mut choices.data_tls_client_ca,
        ] {
            *path = path.take().map(|path: PathBuf| folder.join(path));
        }
        Ok(choices)
    }
}

/// The line, and its key if it has one, at a byte of the file.
fn place(text: &str, at: Option<usize>) -> String {
    let at = at.unwrap_or(text.len());
    let before = text.get(..at).unwrap_or(text);
    let number = before.matches('\n').count() + 1;
    let line = text.lines().nth(number - 1).unwrap_or_default();
    match line.split_once('=') {
        Some((key, _)) => format!("line {number}, key {}", key.trim()),
        None => format!("line {number}"),
    }
}

fn topic_name<'de, D: Deserializer<'de>>(deserializer: D) -> Result<TopicName, D::Error> {
    let name = String::deserialize(deserializer)?;
    TopicName::user(&Namespace::default(), &name).map_err(de::Error::custom)
}

fn group_name<'de, D: Deserializer<'de>>(deserializer: D) -> Result<GroupName, D::Error> {
    let name = String::deserialize(deserializer)?;
    GroupName::user(&Namespace::default(), &name).map_err(de::Error::custom)
}

fn namespace<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Namespace, D::Error> {
    let name = String::deserialize(deserializer)?;
    Namespace::new(&name).map_err(de::Error::custom)
}

fn attempts<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u32>, D::Error> {
    let attempts = u32::deserialize(deserializer)?;
    let backoff = Backoff::Customized(vec![std::time::Duration::ZERO]);
    RetryPolicy::new(attempts, backoff).map_err(de::Error::custom)?;
    Ok(Some(attempts))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_refused(text: &str, place: &str, problem: &str) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("broker.toml");
        fs::write(&path, text).unwrap();
        let error = Choices::read(&path).unwrap_err().to_string();
        let start = format!("{}, {place}: ", path.display());
        assert!(error.starts_with(&start), "{error}");
        assert!(error.contains(problem), "{error}");
        assert!(!error.contains('\n'), "{error}");
    }

    #[test]
    fn an_unknown_key_is_named_with_its_line() {
        check_refused("queues = 2\n\nqueus = 3\n", "line 3, key queus", "queus");
    }

    #[test]
    fn a_wrong_value_is_named_with_its_line() {
        check_refused("queues = 0", "line 1, key queues", "1 to 1024");
        check_refused("queues = \"four\"", "line 1, key queues", "invalid type");
        check_refused(
            "\nlisten = \"here\"",
            "line 2, key listen",
            "socket address",
        );
        check_refused("store = \"floppy\"", "line 1, key store", "floppy");
        check_refused("tls = \"on\"", "line 1, key tls", "self-signed");
        check_refused("retention = \"7\"", "line 1, key retention", "7d");
    }

    #[test]
    fn a_wrong_topic_or_group_is_named_with_its_line() {
        check_refused("[[topics]]\nname = \"a b\"", "line 2, key name", "' '");
        check_refused(
            "[[topics]]\nname = \"%RETRY%a\"",
            "line 2, key name",
            "%RETRY%",
        );
        let text = "[[groups]]\nname = \"a\"\ndelivery-attempts-max = 0";
        check_refused(
            text,
            "line 3, key delivery-attempts-max",
            "0 delivery attempts",
        );
    }

    #[test]
    fn what_is_no_toml_is_named_with_its_line() {
        check_refused("queues = 2\nwhat is this", "line 2", "");
    }

    #[test]
    fn a_relative_path_starts_at_the_folder_of_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("broker.toml");
        fs::write(&path, "data = \"messages\"").unwrap();
        let choices = Choices::read(&path).unwrap();
        assert_eq!(choices.data, Some(folder.path().join("messages")));
    }
}
