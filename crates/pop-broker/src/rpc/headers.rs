//! Who calls, as the request's headers say.

use std::time::Duration;

use pop_model::{GroupName, NameError, Namespace, TopicName};
use pop_proto::v2::{Code, Resource};
use tonic::metadata::MetadataMap;

use super::status::Refusal;
use crate::BrokerError;

/// The client's language, where it makes a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Language {
    /// Says `HTTP`. Understands exponential back-off only, in units of its own.
    Node,
    /// The published crate 5.0.0 panics on a status number that is newer than itself.
    RustPublished,
    /// Nothing to mind.
    Other,
}

/// The caller of one request.
#[derive(Clone, Debug)]
pub(super) struct Caller {
    pub(super) language: Language,
    /// The namespace of names that have none of their own.
    namespace: String,
    /// How long the caller waits for an answer.
    pub(super) time_left: Option<Duration>,
}

impl Caller {
    /// Reads the headers. Only the client id is insisted on, as the reference server does;
    /// dates and versions are not looked at, since clients disagree about their form.
    pub(super) fn of(headers: &MetadataMap) -> Result<Self, Refusal> {
        let text = |name: &str| {
            headers
                .get(name)
                .and_then(|value| value.to_str().ok())
                .unwrap_or_default()
        };
        if text("x-mq-client-id").is_empty() {
            return Err(Refusal::new(
                Code::ClientIdRequired,
                "the header x-mq-client-id is missing",
            ));
        }
        let language = match (text("x-mq-language"), text("x-mq-client-version")) {
            ("HTTP", _) => Language::Node,
            ("RUST", "5.0.0") => Language::RustPublished,
            _ => Language::Other,
        };
        Ok(Self {
            language,
            namespace: text("x-mq-namespace").into(),
            time_left: timeout(text("grpc-timeout")),
        })
    }

    /// A topic that is sent to.
    pub(super) fn topic_to_write(
        &self,
        topic: Option<&Resource>,
    ) -> Result<TopicName, BrokerError> {
        self.name(topic, TopicName::user)
            .map_err(BrokerError::TopicName)
    }

    /// A topic that is read: also one of the broker's own.
    pub(super) fn topic(&self, topic: Option<&Resource>) -> Result<TopicName, BrokerError> {
        self.name(topic, TopicName::readable)
            .map_err(BrokerError::TopicName)
    }

    /// A group.
    pub(super) fn group(&self, group: Option<&Resource>) -> Result<GroupName, BrokerError> {
        self.name(group, GroupName::user)
            .map_err(BrokerError::GroupName)
    }

    /// Node.js leaves the namespace out of half of its requests, and in the header of all.
    fn name<T>(
        &self,
        resource: Option<&Resource>,
        check: impl FnOnce(&Namespace, &str) -> Result<T, NameError>,
    ) -> Result<T, NameError> {
        let (namespace, name) = match resource {
            Some(resource) if resource.resource_namespace.is_empty() => {
                (self.namespace.as_str(), resource.name.as_str())
            }
            Some(resource) => (resource.resource_namespace.as_str(), resource.name.as_str()),
            None => (self.namespace.as_str(), ""),
        };
        check(&Namespace::new(namespace)?, name)
    }
}

/// Reads a `grpc-timeout`: up to eight digits and a unit. Java's is 60 years on Telemetry.
fn timeout(text: &str) -> Option<Duration> {
    let unit = text.chars().next_back()?;
    let count: u64 = text.strip_suffix(unit)?.parse().ok()?;
    let seconds = |each: u64| Some(Duration::from_secs(count.saturating_mul(each)));
    match unit {
        'H' => seconds(3_600),
        'M' => seconds(60),
        'S' => seconds(1),
        'm' => Some(Duration::from_millis(count)),
        'u' => Some(Duration::from_micros(count)),
        'n' => Some(Duration::from_nanos(count)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeout_has_digits_and_a_unit_and_anything_else_is_none() {
        assert_eq!(timeout("23S"), Some(Duration::from_secs(23)));
        assert_eq!(timeout("500m"), Some(Duration::from_millis(500)));
        assert_eq!(
            timeout("31535999M"),
            Some(Duration::from_secs(31_535_999 * 60))
        );
        assert_eq!(
            timeout("18446744073709551615H"),
            Some(Duration::from_secs(u64::MAX))
        );
        for garbage in [
            "",
            "S",
            "-1S",
            "1x",
            "1.5S",
            "é",
            "99999999999999999999999S",
        ] {
            assert_eq!(timeout(garbage), None, "{garbage:?}");
        }
    }

    #[test]
    fn a_name_without_a_namespace_gets_that_of_the_header() {
        let mut headers = MetadataMap::new();
        assert_eq!(
            Caller::of(&headers).unwrap_err().code(),
            Code::ClientIdRequired
        );
        headers.insert("x-mq-client-id", "c".parse().unwrap());
        headers.insert("x-mq-namespace", "tenant".parse().unwrap());
        let caller = Caller::of(&headers).unwrap();
        let resource = |namespace: &str| Resource {
            resource_namespace: namespace.into(),
            name: "t".into(),
        };
        assert_eq!(
            caller.topic(Some(&resource(""))).unwrap().to_string(),
            "tenant/t"
        );
        assert_eq!(
            caller.topic(Some(&resource("other"))).unwrap().to_string(),
            "other/t"
        );
        assert!(caller.topic(None).is_err());
    }
}
