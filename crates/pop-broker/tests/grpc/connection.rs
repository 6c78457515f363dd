//! One port for plaintext and TLS, and peers that hold up nobody.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use pop_broker::{listener::TlsChoice, rpc::RpcOptions};
use rustls::{
    ClientConfig, DigitallySignedStruct, Error, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{CryptoProvider, ring},
    pki_types::{CertificateDer, ServerName, UnixTime},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional},
    net::{TcpListener, TcpStream},
};
use tokio_rustls::{TlsConnector, client::TlsStream};

use crate::support::{Client, Server, options, receive_some, send_ok, soon};

/// Takes any certificate, as the Java and Go clients do.
#[derive(Debug)]
struct AnyCertificate(CryptoProvider);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let known = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signature, known)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let known = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signature, known)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

async fn tls(address: SocketAddr) -> std::io::Result<TlsStream<TcpStream>> {
    let provider = ring::default_provider();
    let mut config = ClientConfig::builder_with_provider(Arc::new(provider.clone()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyCertificate(provider)))
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec()];
    // The Java client asks for this name, whatever it connects to.
    let name = ServerName::try_from("IPAuthority").unwrap();
    let socket = TcpStream::connect(address).await?;
    TlsConnector::from(Arc::new(config))
        .connect(name, socket)
        .await
}

/// A client whose bytes go through TLS on their way.
async fn tls_client(server: SocketAddr) -> Client {
    let relay = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", relay.local_addr().unwrap());
    tokio::spawn(async move {
        let (mut plain, _) = relay.accept().await.unwrap();
        let mut encrypted = tls(server).await.unwrap();
        drop(copy_bidirectional(&mut plain, &mut encrypted).await);
    });
    Client::connect(url).await.unwrap()
}

#[tokio::test]
async fn plaintext_and_tls_are_served_on_one_port() {
    let server = Server::start().await;
    let mut encrypted = tls_client(server.address).await;
    let mut plain = server.client().await;
    send_ok(&mut encrypted, "orders", "by TLS").await;
    send_ok(&mut plain, "bills", "in plaintext").await;
    assert_eq!(receive_some(&mut plain, "orders", "g").await.len(), 1);
    assert_eq!(receive_some(&mut encrypted, "bills", "g").await.len(), 1);
    let negotiated = tls(server.address).await.unwrap();
    assert_eq!(negotiated.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
}

#[tokio::test]
async fn a_certificate_from_files_is_the_one_that_clients_see() {
    let names = ["broker.example".to_owned()];
    let pair = rcgen::generate_simple_self_signed(names).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let (certificate, key) = (folder.path().join("c.pem"), folder.path().join("k.pem"));
    std::fs::write(&certificate, pair.cert.pem()).unwrap();
    std::fs::write(&key, pair.signing_key.serialize_pem()).unwrap();
    let choice = TlsChoice::Pem { certificate, key };
    let server = Server::start_with(options(1), RpcOptions::new(), choice).await;
    let connected = tls(server.address).await.unwrap();
    let seen = connected.get_ref().1.peer_certificates().unwrap();
    assert_eq!(seen, [pair.cert.der().clone()]);
}

#[tokio::test]
async fn where_tls_is_off_a_tls_client_is_refused_and_others_are_served() {
    let server = Server::start_with(options(1), RpcOptions::new(), TlsChoice::Off).await;
    soon(tls(server.address)).await.unwrap_err();
    send_ok(&mut server.client().await, "orders", "id").await;
}

/// P5. Mutant: bring a connection through its handshake before the next is accepted.
#[tokio::test]
async fn a_peer_that_says_nothing_or_half_of_it_holds_up_nobody() {
    let server = Server::start().await;
    let mut silent = Vec::new();
    for said in [
        &b""[..],
        &[0x16],
        &[0x16, 3, 1, 2],
        b"PRI * HT",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ] {
        for _ in 0..20 {
            let mut peer = TcpStream::connect(server.address).await.unwrap();
            peer.write_all(said).await.unwrap();
            silent.push(peer);
        }
    }
    let mut client = soon(server.client()).await;
    soon(send_ok(&mut client, "orders", "id")).await;
    let mut client = soon(tls_client(server.address)).await;
    soon(send_ok(&mut client, "orders", "id")).await;
}

#[tokio::test]
async fn a_peer_that_speaks_something_else_is_shown_the_door() {
    let server = Server::start().await;
    for said in [&b"GET / HTTP/1.1\r\n\r\n"[..], b"\0\0\0\0", b"PRI * HTTP/3"] {
        let mut peer = TcpStream::connect(server.address).await.unwrap();
        peer.write_all(said).await.unwrap();
        let mut answer = Vec::new();
        let read = soon(peer.read_to_end(&mut answer)).await;
        // Closed, or reset because it had said more than was looked at.
        assert!(read.is_err() || answer.is_empty());
    }
}

/// Time is the runtime's: it moves on by itself when everybody waits.
#[tokio::test(start_paused = true)]
async fn a_peer_that_stays_silent_is_shown_the_door_in_the_end() {
    let server = Server::start().await;
    for said in [&b""[..], &[0x16], b"PRI * HT"] {
        let mut peer = TcpStream::connect(server.address).await.unwrap();
        peer.write_all(said).await.unwrap();
        let mut answer = [0];
        let end = tokio::time::timeout(Duration::from_secs(60), peer.read(&mut answer));
        assert!(matches!(end.await.expect("closed"), Ok(0) | Err(_)));
    }
}

#[tokio::test]
async fn a_server_that_ended_listens_no_more() {
    let server = Server::start().await;
    let address = server.address;
    let idle = server.client().await;
    soon(server.stop()).await.unwrap();
    TcpStream::connect(address).await.unwrap_err();
    drop(idle);
}
