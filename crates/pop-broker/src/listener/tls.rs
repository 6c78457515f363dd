//! The certificate of the port.

use std::{io, path::Path, sync::Arc};

use rustls::{
    ServerConfig,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem, pem::PemObject},
};
use tokio_rustls::TlsAcceptor;

use super::TlsChoice;

/// What brings TLS connections through their handshake; none where TLS is off.
pub(super) fn acceptor(choice: &TlsChoice) -> io::Result<Option<TlsAcceptor>> {
    let (chain, key) = match choice {
        TlsChoice::Off => return Ok(None),
        TlsChoice::SelfSigned => self_signed()?,
        TlsChoice::Pem { certificate, key } => from_files(certificate, key)?,
    };
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(unusable)?
        // Clients authenticate by their requests, not by certificates.
        .with_no_client_auth()
        .with_single_cert(chain, key);
    let mut config = config.map_err(|error| match choice {
        TlsChoice::Pem { certificate, key } => unusable(format!(
            "{} and {} can't be used together: {error}",
            certificate.display(),
            key.display()
        )),
        _ => unusable(error),
    })?;
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(Some(TlsAcceptor::from(Arc::new(config))))
}

type Pair = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

/// A new pair. Whoever checks certificates can't use it, and those who take any get
/// encryption.
fn self_signed() -> io::Result<Pair> {
    let names = ["localhost", "127.0.0.1", "::1"].map(String::from);
    let pair = rcgen::generate_simple_self_signed(names).map_err(unusable)?;
    let key = PrivateKeyDer::try_from(pair.signing_key.serialize_der()).map_err(unusable)?;
    Ok((vec![pair.cert.der().clone()], key))
}

fn from_files(certificate: &Path, key: &Path) -> io::Result<Pair> {
    let unreadable = |path: &Path, what: &str, error: pem::Error| {
        let path = path.display();
        unusable(match error {
            pem::Error::Io(error) => format!("{what} {path} can't be read: {error}"),
            pem::Error::NoItemsFound => format!("{path} has no {what} in PEM form"),
            error => format!("{what} {path} is not PEM: {error}"),
        })
    };
    let chain = CertificateDer::pem_file_iter(certificate).and_then(Iterator::collect);
    let chain: Vec<_> = chain.map_err(|error| unreadable(certificate, "certificate", error))?;
    if chain.is_empty() {
        let nothing = pem::Error::NoItemsFound;
        return Err(unreadable(certificate, "certificate", nothing));
    }
    let key =
        PrivateKeyDer::from_pem_file(key).map_err(|error| unreadable(key, "private key", error))?;
    Ok((chain, key))
}

// Not the kind of the file's error: the caller tells by the kind that a port is in use.
fn unusable(why: impl ToString) -> io::Error {
    io::Error::other(format!("TLS: {}", why.to_string()))
}
