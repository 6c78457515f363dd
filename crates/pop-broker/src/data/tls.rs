//! TLS of the data port, on both ends.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use rustls::{
    ClientConfig, RootCertStore, ServerConfig,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem, pem::PemObject},
    server::WebPkiClientVerifier,
};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::PortTls;

/// What one end shows to the other, in PEM form.
#[derive(Clone, Debug)]
pub struct Identity {
    /// The certificate, followed by those that it was signed with.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

/// How a peer knows the port, and what it shows.
#[derive(Clone, Debug)]
pub struct ClientTls {
    /// Who may have signed the certificate of the port, in PEM form.
    pub ca: PathBuf,
    /// What is shown to the port, if it asks.
    pub identity: Option<Identity>,
}

/// Files that can't be used.
#[derive(Clone, Debug, thiserror::Error)]
#[error("TLS: {0}")]
pub struct TlsError(String);

pub(super) fn acceptor(tls: &PortTls) -> Result<TlsAcceptor, TlsError> {
    let provider = Arc::new(ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider));
    let builder = builder.with_safe_default_protocol_versions();
    let builder = builder.map_err(unusable)?;
    let builder = match &tls.client_ca {
        None => builder.with_no_client_auth(),
        Some(ca) => {
            let roots = Arc::new(roots(ca)?);
            let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider).build();
            builder.with_client_cert_verifier(verifier.map_err(unusable)?)
        }
    };
    let (chain, key) = tls.identity.read()?;
    let config = builder.with_single_cert(chain, key);
    let config = config.map_err(|error| tls.identity.do_not_fit(&error))?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

pub(super) fn connector(tls: &ClientTls) -> Result<TlsConnector, TlsError> {
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder = builder.with_safe_default_protocol_versions();
    let builder = builder.map_err(unusable)?;
    let builder = builder.with_root_certificates(roots(&tls.ca)?);
    let config = match &tls.identity {
        None => builder.with_no_client_auth(),
        Some(identity) => {
            let (chain, key) = identity.read()?;
            let config = builder.with_client_auth_cert(chain, key);
            config.map_err(|error| identity.do_not_fit(&error))?
        }
    };
    Ok(TlsConnector::from(Arc::new(config)))
}

impl Identity {
    fn read(&self) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), TlsError> {
        let key = PrivateKeyDer::from_pem_file(&self.key);
        let key = key.map_err(|error| unreadable(&self.key, "private key", error))?;
        Ok((certificates(&self.certificate)?, key))
    }

    fn do_not_fit(&self, error: &rustls::Error) -> TlsError {
        let (certificate, key) = (self.certificate.display(), self.key.display());
        unusable(format!(
            "{certificate} and {key} can't be used together: {error}"
        ))
    }
}

fn roots(path: &Path) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        let added = roots.add(certificate);
        added.map_err(|error| unusable(format!("{}: {error}", path.display())))?;
    }
    Ok(roots)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect);
    let read: Vec<_> = read.map_err(|error| unreadable(path, "certificate", error))?;
    match read.is_empty() {
        true => Err(unreadable(path, "certificate", pem::Error::NoItemsFound)),
        false => Ok(read),
    }
}

fn unreadable(path: &Path, what: &str, error: pem::Error) -> TlsError {
    let path = path.display();
    unusable(match error {
        pem::Error::Io(error) => format!("{what} {path} can't be read: {error}"),
        pem::Error::NoItemsFound => format!("{path} has no {what} in PEM form"),
        error => format!("{what} {path} is not PEM: {error}"),
    })
}

fn unusable(why: impl ToString) -> TlsError {
    TlsError(why.to_string())
}
