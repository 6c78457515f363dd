//! What a call tells beside its request: who asks, in which language, until when.
//!
//! Only the client id is insisted on. Dates are not looked at, since three clients send
//! local time as if it were UTC.

use std::{net::SocketAddr, time::Duration};

use pop_model::{GroupName, NameError, Namespace, TopicName};
use pop_proto::v2::{Code, Resource};
use tokio_util::sync::CancellationToken;
use tonic::{Request, metadata::MetadataMap};

use super::status::Refusal;
use crate::{BrokerError, listener::Peer};

/// The clients that need something of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Language {
    Go,
    /// Calls itself `HTTP`.
    Node,
    Rust,
    Other,
}

/// Who calls, and how.
#[derive(Clone, Debug)]
pub(super) struct Caller {
    /// The client's name for itself.
    pub(super) id: String,
    pub(super) language: Language,
    /// The Rust client 5.0.0 panics on a status number that it does not know.
    pub(super) old_codes_only: bool,
    namespace: String,
    /// How long the client waits for the answer, if it said so.
    pub(super) deadline: Option<Duration>,
    /// The address that the client connected to.
    pub(super) local: Option<SocketAddr>,
    /// Cancelled when the server is on its way out.
    pub(super) closing: CancellationToken,
}

impl Caller {
    pub(super) fn of<T>(request: &Request<T>) -> Self {
        let headers = request.metadata();
        let language = match text(headers, "x-mq-language") {
            "GO" => Language::Go,
            "HTTP" => Language::Node,
            "RUST" => Language::Rust,
            _ => Language::Other,
        };
        let version = text(headers, "x-mq-client-version");
        let peer = request.extensions().get::<Peer>();
        Self {
            id: text(headers, "x-mq-client-id").trim().to_owned(),
            language,
            old_codes_only: language == Language::Rust && version == "5.0.0",
            namespace: text(headers, "x-mq-namespace").to_owned(),
            deadline: timeout(text(headers, "grpc-timeout")),
            local: peer.map(|peer| peer.local),
            closing: peer.map_or_else(CancellationToken::new, |peer| peer.closing.clone()),
        }
    }

    /// Whether the caller said who it is.
    pub(super) fn identified(&self) -> Result<(), Refusal> {
        if !self.id.is_empty() {
            Ok(())
        } else {
            Err(Refusal::new(
                Code::ClientIdRequired,
                "the header x-mq-client-id is missing or empty",
            ))
        }
    }

    /// A topic that messages may be sent to.
    pub(super) fn user_topic(&self, resource: &Resource) -> Result<TopicName, Refusal> {
        self.name(resource, TopicName::user, BrokerError::TopicName)
    }

    /// A topic that messages may be received from.
    pub(super) fn readable_topic(&self, resource: &Resource) -> Result<TopicName, Refusal> {
        self.name(resource, TopicName::readable, BrokerError::TopicName)
    }

    /// A group.
    pub(super) fn group(&self, resource: &Resource) -> Result<GroupName, Refusal> {
        self.name(resource, GroupName::user, BrokerError::GroupName)
    }

    /// Checks a name in its namespace: the resource's, or the header's where the resource
    /// has none. One client names it in half of its requests only.
    fn name<N>(
        &self,
        resource: &Resource,
        check: impl FnOnce(&Namespace, &str) -> Result<N, NameError>,
        wrong: impl Fn(NameError) -> BrokerError,
    ) -> Result<N, Refusal> {
        let namespace = match resource.resource_namespace.as_str() {
            "" => &self.namespace,
            namespace => namespace,
        };
        let namespace = Namespace::new(namespace).map_err(&wrong)?;
        Ok(check(&namespace, &resource.name).map_err(wrong)?)
    }
}

fn text<'a>(headers: &'a MetadataMap, name: &str) -> &'a str {
    let value = headers.get(name).and_then(|value| value.to_str().ok());
    value.unwrap_or_default()
}

/// The value of `grpc-timeout`: up to eight digits and a unit. Clients send up to sixty
/// years on their telemetry streams.
fn timeout(value: &str) -> Option<Duration> {
    let (digits, unit) = value.split_at_checked(value.len().checked_sub(1)?)?;
    if digits.len() > 8 || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let count: u64 = digits.parse().ok()?;
    match unit {
        "H" => Some(Duration::from_secs(count * 60 * 60)),
        "M" => Some(Duration::from_secs(count * 60)),
        "S" => Some(Duration::from_secs(count)),
        "m" => Some(Duration::from_millis(count)),
        "u" => Some(Duration::from_micros(count)),
        "n" => Some(Duration::from_nanos(count)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeout_is_digits_and_a_unit_or_nothing() {
        assert_eq!(timeout("23S"), Some(Duration::from_secs(23)));
        assert_eq!(
            timeout("99999999H"),
            Some(Duration::from_secs(359_999_996_400))
        );
        assert_eq!(
            timeout("31535999M"),
            Some(Duration::from_secs(1_892_159_940))
        );
        assert_eq!(timeout("1u"), Some(Duration::from_micros(1)));
        for garbage in [
            "",
            "S",
            "-1S",
            "+1S",
            "1",
            "123456789S",
            "1x",
            "1é",
            "é",
            " 1S",
        ] {
            assert_eq!(timeout(garbage), None, "{garbage:?}");
        }
    }
}
