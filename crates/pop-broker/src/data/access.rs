//! Who may fetch: nobody has to say who it is on this machine, and somebody from elsewhere
//! has to.

use std::net::SocketAddr;

use super::{Identity, Token};
use std::path::PathBuf;

/// How the port knows a peer.
#[derive(Clone, Debug, Default)]
pub struct Access {
    /// What a peer has to know.
    pub token: Option<Token>,
    /// What the port speaks, plaintext if absent.
    pub tls: Option<PortTls>,
}

/// The TLS of the port.
#[derive(Clone, Debug)]
pub struct PortTls {
    /// What the port shows to a peer.
    pub identity: Identity,
    /// Peers must show a certificate that one of these signed, in PEM form.
    pub client_ca: Option<PathBuf>,
}

/// An address on which anybody could fetch everything.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "--data-listen {0} would give every message to whoever connects: give --data-token-file FILE, \
     or --data-tls-certificate, --data-tls-key and --data-tls-client-ca, or listen on 127.0.0.1"
)]
pub struct AccessError(pub SocketAddr);

impl Access {
    /// Refuses to open to everybody.
    ///
    /// # Errors
    ///
    /// If the address can be reached from elsewhere and a peer would not have to say who it
    /// is.
    pub fn check(&self, address: SocketAddr) -> Result<(), AccessError> {
        let mutual = self.tls.as_ref().is_some_and(|tls| tls.client_ca.is_some());
        match address.ip().is_loopback() || self.token.is_some() || mutual {
            true => Ok(()),
            false => Err(AccessError(address)),
        }
    }

    /// Whether a token would cross the network for everybody to read.
    #[must_use]
    pub fn is_readable(&self, address: SocketAddr) -> bool {
        !address.ip().is_loopback() && self.tls.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Mutant: TLS without a certificate of the client counts as mutual.
    #[test]
    fn only_this_machine_may_come_unknown() {
        let here: SocketAddr = "127.0.0.1:1".parse().unwrap();
        let everywhere: SocketAddr = "0.0.0.0:1".parse().unwrap();
        let tls = |client_ca: Option<&str>| Access {
            token: None,
            tls: Some(PortTls {
                identity: Identity {
                    certificate: "c".into(),
                    key: "k".into(),
                },
                client_ca: client_ca.map(PathBuf::from),
            }),
        };
        assert!(Access::default().check(here).is_ok());
        assert!(Access::default().check(everywhere).is_err());
        assert!(tls(None).check(everywhere).is_err());
        assert!(tls(Some("ca")).check(everywhere).is_ok());
    }

    // Mutants: what only looks like this machine is taken for it; a name of it is not known.
    #[test]
    fn an_address_is_this_machine_or_it_is_not() {
        for address in ["127.0.0.1:1", "127.8.0.9:1", "[::1]:1"] {
            assert!(Access::default().check(address.parse().unwrap()).is_ok());
        }
        for address in [
            "0.0.0.0:1",
            "[::]:1",
            "10.0.0.1:1",
            "192.168.0.1:1",
            "169.254.1.1:1",
            "128.0.0.1:1",
            "[fe80::1]:1",
            "[::ffff:0.0.0.0]:1",
            "[::ffff:10.0.0.1]:1",
            "[::2]:1",
        ] {
            let refused = Access::default().check(address.parse().unwrap());
            let text = refused.unwrap_err().to_string();
            assert!(
                text.contains(address) && text.contains("127.0.0.1"),
                "{text}"
            );
        }
    }

    // Mutant: a token is thought safe because it is there.
    #[test]
    fn what_crosses_the_network_without_tls_can_be_read() {
        let here = "127.0.0.1:1".parse().unwrap();
        let everywhere = "0.0.0.0:1".parse().unwrap();
        let access = Access::default();
        assert!(!access.is_readable(here) && access.is_readable(everywhere));
    }
}
