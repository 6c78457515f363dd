//! Where a running broker gives out its data: `tcp://HOST:PORT` or `tls://HOST:PORT`.

use std::{fmt, str::FromStr};

/// The data port of a broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceUrl {
    /// Whether it is spoken to through TLS.
    pub tls: bool,
    /// A name or an address, without the brackets of IPv6.
    pub host: String,
    /// The port.
    pub port: u16,
}

/// What is no such URL.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is no data port: give tcp://HOST:PORT or tls://HOST:PORT, as the broker's --data-listen says"
)]
pub struct InvalidUrl(pub String);

impl FromStr for SourceUrl {
    type Err = InvalidUrl;

    fn from_str(text: &str) -> Result<Self, InvalidUrl> {
        let invalid = || InvalidUrl(text.to_owned());
        let (scheme, rest) = text.split_once("://").ok_or_else(invalid)?;
        let tls = match scheme {
            "tcp" => false,
            "tls" => true,
            _ => return Err(invalid()),
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let (host, port) = rest.rsplit_once(':').ok_or_else(invalid)?;
        let inner = host.strip_prefix('[').and_then(|it| it.strip_suffix(']'));
        let bare = inner.is_none() && host.contains([':', '[', ']', '/', '@']);
        let host = inner.unwrap_or(host);
        let port = port.parse().ok().filter(|port| *port > 0);
        match port {
            Some(port) if !host.is_empty() && !bare => Ok(Self {
                tls,
                host: host.to_owned(),
                port,
            }),
            _ => Err(invalid()),
        }
    }
}

impl fmt::Display for SourceUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls { "tls" } else { "tcp" };
        match self.host.contains(':') {
            true => write!(f, "{scheme}://[{}]:{}", self.host, self.port),
            false => write!(f, "{scheme}://{}:{}", self.host, self.port),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_comes_back_as_it_was_written() {
        for text in [
            "tcp://127.0.0.1:8083",
            "tls://broker.example:1",
            "tls://[::1]:8083",
        ] {
            assert_eq!(text.parse::<SourceUrl>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn what_is_no_url_is_told_what_one_is() {
        for text in [
            "",
            "tcp://",
            "127.0.0.1:8083",
            "http://a:1",
            "tcp://a",
            "tcp://a:0",
            "tcp://:1",
            "tcp://a:b",
            "tcp://::1:8083",
            "tcp://a:1/path",
            "tcp://me@a:1",
            "tcp://a:99999",
        ] {
            let error = text.parse::<SourceUrl>().unwrap_err().to_string();
            assert!(error.contains("tls://HOST:PORT"), "{error}");
        }
    }
}
