//! The port: HTTP/2 in plain text and under TLS on the same one, told apart by the first
//! byte, since the official clients of some languages use TLS unless told otherwise.

use std::{
    io,
    net::SocketAddr,
    path::PathBuf,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use pop_proto::v2::messaging_service_server::MessagingServiceServer;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream},
    sync::{Semaphore, mpsc},
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Server, server::Connected};

use crate::rpc::Messaging;

/// The first byte of a TLS connection: a handshake record.
const TLS_HANDSHAKE: u8 = 0x16;
/// How long a peer may take until its first byte and its handshake are there.
const HANDSHAKE_TIME_MAX: Duration = Duration::from_secs(10);
/// How many peers may be in that state at a time; more wait in the system's queue.
const HANDSHAKES_MAX: usize = 1_024;
/// How long a stop waits for running calls.
const DRAIN_TIME_MAX: Duration = Duration::from_secs(10);

/// Whether and how TLS is offered, beside plain text.
#[derive(Clone, Debug)]
pub enum TlsChoice {
    /// Plain text only.
    Off,
    /// With a certificate that is made at the start and that nobody can verify. It is what
    /// the Java and Go clients, which accept any, need by default.
    SelfSigned,
    /// With a certificate of the operator's, in PEM.
    Pem {
        /// The file with the certificate chain.
        certificate: PathBuf,
        /// The file with its private key.
        key: PathBuf,
    },
}

/// A port that is bound and not yet served.
#[derive(Debug)]
pub struct Listener {
    listener: TcpListener,
    address: SocketAddr,
    tls: Option<Tls>,
}

#[derive(Clone)]
struct Tls(TlsAcceptor);

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tls")
    }
}

impl Listener {
    /// Binds a port and readies TLS.
    ///
    /// # Errors
    ///
    /// A port that is taken or not allowed, a certificate or key that can't be used; the
    /// text says what to do.
    pub async fn bind(address: SocketAddr, tls: TlsChoice) -> io::Result<Self> {
        let tls = acceptor(tls)?.map(Tls);
        let listener = TcpListener::bind(address).await.map_err(|error| {
            let text = match error.kind() {
                io::ErrorKind::AddrInUse => {
                    format!("{address} is in use: stop what listens there, or choose another address (--listen)")
                }
                _ => format!("can't listen on {address}: {error}"),
            };
            io::Error::new(error.kind(), text)
        })?;
        Ok(Self {
            address: listener.local_addr()?,
            listener,
            tls,
        })
    }

    /// The address that is bound, with the port that the system chose for port 0.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `shutdown` completes and running calls are done, or 10 s after it.
    ///
    /// # Errors
    ///
    /// A failure of the server itself; one of a peer ends that peer's connection.
    pub async fn serve(
        self,
        service: MessagingServiceServer<Messaging>,
        shutdown: impl Future<Output = ()> + Send + 'static,
    ) -> Result<(), tonic::transport::Error> {
        let (ready, incoming) = mpsc::channel(64);
        let accepting = tokio::spawn(accept(self.listener, self.tls, ready));
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let server = Server::builder()
            .tcp_nodelay(true)
            // Each push consumer holds a receive a queue and telemetry on one connection.
            .max_concurrent_streams(1_024)
            .initial_stream_window_size(1 << 20)
            .initial_connection_window_size(4 << 20)
            .http2_keepalive_interval(Some(Duration::from_secs(30)))
            .http2_keepalive_timeout(Some(Duration::from_secs(10)))
            // Clients cancel long polls by resetting them.
            .http2_max_pending_accept_reset_streams(Some(256))
            .add_service(service)
            .serve_with_incoming_shutdown(ReceiverStream::new(incoming), async move {
                shutdown.await;
                accepting.abort();
                drop(stop);
            });
        let drained_too_long = async {
            // Completes when the sender is dropped: the stop has begun.
            let _stop_begun = stopped.await;
            tokio::time::sleep(DRAIN_TIME_MAX).await;
        };
        tokio::select! {
            outcome = server => outcome,
            () = drained_too_long => {
                tracing::warn!("some calls did not end; they are cut off");
                Ok(())
            }
        }
    }
}

/// Accepts peers; each makes its handshake on its own, so that a silent one delays no other.
async fn accept(listener: TcpListener, tls: Option<Tls>, ready: mpsc::Sender<io::Result<Peer>>) {
    let handshakes = Arc::new(Semaphore::new(HANDSHAKES_MAX));
    loop {
        let Ok(permit) = Arc::clone(&handshakes).acquire_owned().await else {
            return;
        };
        let socket = match listener.accept().await {
            Ok((socket, _)) => socket,
            Err(error) => {
                // Out of descriptors, for instance: others may close theirs.
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let (tls, ready) = (tls.clone(), ready.clone());
        tokio::spawn(async move {
            match tokio::time::timeout(HANDSHAKE_TIME_MAX, handshake(socket, tls)).await {
                Ok(Ok(peer)) => drop(ready.send(Ok(peer)).await),
                Ok(Err(error)) => tracing::debug!(%error, "a peer's handshake failed"),
                Err(_) => tracing::debug!("a peer was silent and is dropped"),
            }
            drop(permit);
        });
    }
}

async fn handshake(socket: TcpStream, tls: Option<Tls>) -> io::Result<Peer> {
    socket.set_nodelay(true)?;
    let mut first = [0];
    socket.peek(&mut first).await?;
    match tls {
        Some(Tls(acceptor)) if first == [TLS_HANDSHAKE] => {
            let stream = acceptor.accept(socket).await?;
            Ok(Peer::Tls(Box::new(stream)))
        }
        _ => Ok(Peer::Plain(socket)),
    }
}

fn acceptor(choice: TlsChoice) -> io::Result<Option<TlsAcceptor>> {
    let (certificates, key) = match choice {
        TlsChoice::Off => return Ok(None),
        TlsChoice::SelfSigned => self_signed()?,
        TlsChoice::Pem { certificate, key } => {
            let certificates = CertificateDer::pem_file_iter(&certificate)
                .and_then(Iterator::collect)
                .map_err(|error| {
                    unusable(&format!("certificate {}", certificate.display()), &error)
                })?;
            let key = PrivateKeyDer::from_pem_file(&key)
                .map_err(|error| unusable(&format!("private key {}", key.display()), &error))?;
            (certificates, key)
        }
    };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_no_client_auth()
        .with_single_cert(certificates, key)
        .map_err(|error| unusable("certificate and key", &error))?;
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(Some(TlsAcceptor::from(Arc::new(config))))
}

fn unusable(what: &str, error: &dyn std::fmt::Display) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidInput,
        format!("the TLS {what} can't be used: {error}: give PEM files that belong together"),
    )
}

fn self_signed() -> io::Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)> {
    let names = [
        "localhost".to_owned(),
        "127.0.0.1".to_owned(),
        "::1".to_owned(),
    ];
    let made = rcgen::generate_simple_self_signed(names).map_err(io::Error::other)?;
    let key =
        PrivateKeyDer::try_from(made.signing_key.serialize_der()).map_err(io::Error::other)?;
    Ok((vec![made.cert.der().clone()], key))
}

/// A connection whose kind is known.
#[derive(Debug)]
enum Peer {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Connected for Peer {
    type ConnectInfo = ();

    fn connect_info(&self) -> Self::ConnectInfo {}
}

impl AsyncRead for Peer {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(context, buffer),
            Self::Tls(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for Peer {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(context, bytes),
            Self::Tls(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(context),
            Self::Tls(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(context),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}
