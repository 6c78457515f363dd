//! How a command makes itself known at the data port of a broker.

use std::path::PathBuf;

use clap::Args;
use pop_broker::data::{ClientTls, Credentials, Identity, Token};

use super::{Exit, Failure};

/// What is shown to the data port of a running broker.
#[derive(Args, Clone, Debug, Default)]
pub(super) struct Remote {
    /// File with the token that the source wants, as its --data-token-file
    #[arg(long, value_name = "FILE", env = "POP_TOKEN_FILE")]
    token_file: Option<PathBuf>,

    /// Certificates in PEM that signed that of a tls:// source
    #[arg(long, value_name = "FILE", env = "POP_TLS_CA")]
    tls_ca: Option<PathBuf>,

    /// Certificate chain in PEM to show to a tls:// source
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_certificate: Option<PathBuf>,

    /// Its private key in PEM
    #[arg(long, value_name = "FILE", requires = "tls_certificate")]
    tls_key: Option<PathBuf>,
}

impl Remote {
    pub(super) fn credentials(&self) -> Result<Credentials, Failure> {
        let usage = |problem: &str| Failure::new(Exit::Usage, problem);
        let token = self.token_file.as_deref().map(Token::read).transpose();
        let identity = self.tls_certificate.clone().zip(self.tls_key.clone());
        let identity = identity.map(|(certificate, key)| Identity { certificate, key });
        let tls = match (&self.tls_ca, identity) {
            (Some(ca), identity) => {
                let ca = ca.clone();
                Some(ClientTls { ca, identity })
            }
            (None, None) => None,
            (None, Some(_)) => {
                return Err(usage(
                    "a certificate is given and none to know the source by: add --tls-ca FILE",
                ));
            }
        };
        Ok(Credentials {
            token: token.map_err(|error| usage(&error.to_string()))?,
            tls,
        })
    }
}
