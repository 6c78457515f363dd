//! The port that clients connect to: plaintext and TLS on one, told apart by their first
//! byte, because the clients of some languages use TLS unless told otherwise and those of
//! others never do.
//!
//! A connection reaches the gRPC server once it has said that it speaks HTTP/2. Until then
//! it is a task of its own with a time limit, so a peer that is slow or silent holds up
//! nobody.

mod connection;
mod tls;

use std::{fmt, io, net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use pop_proto::v2::messaging_service_server::{MessagingService, MessagingServiceServer};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore, mpsc},
    time::timeout,
};
use tokio_rustls::TlsAcceptor;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::transport::Server;

use connection::Connection;
pub(crate) use connection::Peer;

/// How long a peer may take until it has said that it speaks HTTP/2, TLS included.
const HANDSHAKE_TIME_MAX: Duration = Duration::from_secs(10);
/// How long connections may take to end after the shutdown began.
const DRAIN_TIME_MAX: Duration = Duration::from_secs(5);
/// How many connections there may be, those in their handshake included: enough for
/// thousands of clients, and below the file descriptors that servers usually have.
const CONNECTIONS_MAX: usize = 16_384;
/// How many connections wait for the server to take them over; it does so at once.
const OPENED_MAX: usize = 64;
/// The streams of one connection: a push consumer keeps one for each queue it polls.
const STREAMS_MAX: u32 = 1_024;
/// HTTP/2 lets 64 KiB be on the way unless told otherwise, which makes a body of 4 MiB
/// wait for 64 round trips.
const STREAM_WINDOW_BYTES: u32 = 1 << 20;
/// Four streams at full speed.
const CONNECTION_WINDOW_BYTES: u32 = 4 << 20;
/// How often a silent connection is asked whether it is still there, and for how long.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(30);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(10);
/// Clients cancel long polls in bursts, for instance when they shut down; the usual 20
/// would end their connection as an attack.
const RESET_STREAMS_PENDING_MAX: usize = 256;

/// Whether clients may use TLS. Plaintext is always understood.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum TlsChoice {
    /// They may not.
    Off,
    /// With a certificate made at the start: enough for the clients that take any
    /// certificate, which are those that use TLS unless told otherwise.
    #[default]
    SelfSigned,
    /// With a certificate from files, in PEM form.
    Pem {
        /// The certificate, followed by those that it was signed with.
        certificate: PathBuf,
        /// Its private key.
        key: PathBuf,
    },
}

/// Why no more connections are served.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The gRPC server failed.
    #[error("the gRPC server failed")]
    Transport(#[from] tonic::transport::Error),
    /// It ended although nobody asked it to.
    #[error("the gRPC server ended by itself: start the broker again")]
    Ended,
}

/// A bound port.
pub struct Listener {
    socket: TcpListener,
    address: SocketAddr,
    tls: Option<TlsAcceptor>,
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listener")
            .field("address", &self.address)
            .field("tls", &self.tls.is_some())
            .finish_non_exhaustive()
    }
}

impl Listener {
    /// Binds a port; port 0 takes a free one.
    ///
    /// # Errors
    ///
    /// An address that can't be had, which keeps its [`io::ErrorKind`], or a certificate
    /// that can't be used. The message says what to do.
    pub async fn bind(address: SocketAddr, tls: TlsChoice) -> io::Result<Self> {
        let tls = tls::acceptor(&tls)?;
        let bound = async {
            let socket = TcpListener::bind(address).await?;
            let address = socket.local_addr()?;
            io::Result::Ok((socket, address))
        };
        let (socket, address) = bound.await.map_err(|error| not_bound(address, &error))?;
        Ok(Self {
            socket,
            address,
            tls,
        })
    }

    /// Where it listens.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `shutdown` is done; then no connection is accepted any more, waiting
    /// receives and telemetry end, running calls are answered, and after a while what is
    /// still open is closed.
    ///
    /// # Errors
    ///
    /// [`ServeError`].
    ///
    /// # Cancel safety
    ///
    /// Dropped, it closes the port and every connection at once.
    pub async fn serve<S: MessagingService>(
        self,
        service: MessagingServiceServer<S>,
        shutdown: impl Future<Output = ()> + Send,
    ) -> Result<(), ServeError> {
        let closing = CancellationToken::new();
        let closed = CancellationToken::new();
        let _closed_when_dropped = closed.clone().drop_guard();
        let (opened, incoming) = mpsc::channel(OPENED_MAX);
        let acceptor = Acceptor {
            tls: self.tls,
            opened,
            closing: closing.clone(),
            closed: closed.clone(),
        };
        let accepting = tokio::spawn(acceptor.run(self.socket));
        let _not_longer_than_this = AbortOnDrop(accepting);
        let served = server()
            .add_service(service)
            .serve_with_incoming_shutdown(ReceiverStream::new(incoming), closing.cancelled());
        let mut served = std::pin::pin!(served);
        tokio::select! {
            outcome = &mut served => {
                outcome?;
                return Err(ServeError::Ended);
            }
            () = shutdown => closing.cancel(),
        }
        match timeout(DRAIN_TIME_MAX, &mut served).await {
            Ok(outcome) => Ok(outcome?),
            Err(_) => {
                tracing::warn!(
                    "some connections did not end within {DRAIN_TIME_MAX:?}; they are closed"
                );
                Ok(())
            }
        }
    }
}

fn server() -> Server {
    Server::builder()
        .max_concurrent_streams(STREAMS_MAX)
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .http2_keepalive_interval(Some(KEEPALIVE_INTERVAL))
        .http2_keepalive_timeout(Some(KEEPALIVE_TIMEOUT))
        .http2_max_pending_accept_reset_streams(Some(RESET_STREAMS_PENDING_MAX))
}

/// Takes connections from the port and brings them through their handshake.
struct Acceptor {
    tls: Option<TlsAcceptor>,
    opened: mpsc::Sender<io::Result<Connection>>,
    closing: CancellationToken,
    closed: CancellationToken,
}

impl Acceptor {
    async fn run(self, socket: TcpListener) {
        let this = Arc::new(self);
        let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        let mut full = false;
        loop {
            let accepted = tokio::select! {
                () = this.closing.cancelled() => return,
                accepted = socket.accept() => accepted,
            };
            match accepted {
                Ok((socket, remote)) => match Arc::clone(&room).try_acquire_owned() {
                    Ok(permit) => {
                        full = false;
                        tokio::spawn(Arc::clone(&this).open(socket, remote, permit));
                    }
                    // Said once, not at every connection of a flood.
                    Err(_) if full => {}
                    Err(_) => {
                        full = true;
                        tracing::warn!(%remote, "{CONNECTIONS_MAX} connections are open; more are refused until some end");
                    }
                },
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    // Out of file descriptors, it would fail again at once.
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }

    async fn open(
        self: Arc<Self>,
        socket: TcpStream,
        remote: SocketAddr,
        permit: OwnedSemaphorePermit,
    ) {
        let opening = Connection::open(socket, self.tls.as_ref());
        let outcome = tokio::select! {
            () = self.closing.cancelled() => return,
            outcome = timeout(HANDSHAKE_TIME_MAX, opening) => outcome,
        };
        match outcome {
            Ok(Ok(opened)) => {
                let connection = opened.counted(permit, self.closing.clone(), self.closed.clone());
                // Nobody takes it when the server is on its way out.
                drop(self.opened.send(Ok(connection)).await);
            }
            Ok(Err(error)) => tracing::debug!(%remote, %error, "a connection was refused"),
            Err(_) => tracing::debug!(%remote, "a connection said nothing; it is closed"),
        }
    }
}

struct AbortOnDrop(tokio::task::JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn not_bound(address: SocketAddr, error: &io::Error) -> io::Error {
    let advice = match error.kind() {
        io::ErrorKind::AddrInUse => {
            "it is in use, perhaps by another broker: stop that one, or choose another port"
        }
        io::ErrorKind::AddrNotAvailable => "it is not an address of this machine",
        io::ErrorKind::PermissionDenied => "this user may not use the port: choose one above 1023",
        _ => "the system refused",
    };
    io::Error::new(
        error.kind(),
        format!("can't listen on {address}: {advice} ({error})"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_port_in_use_is_named_with_what_to_do() {
        let first = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = first.local_addr().unwrap();
        let error = Listener::bind(address, TlsChoice::Off).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        let text = error.to_string();
        assert!(text.contains(&address.to_string()), "{text}");
        assert!(text.contains("choose another port"), "{text}");
    }

    #[tokio::test]
    async fn a_certificate_that_is_not_there_is_named() {
        let tls = TlsChoice::Pem {
            certificate: "/nowhere/broker.pem".into(),
            key: "/nowhere/broker.key".into(),
        };
        let address = "127.0.0.1:0".parse().unwrap();
        let error = Listener::bind(address, tls).await.unwrap_err().to_string();
        assert!(error.contains("/nowhere/broker.pem"), "{error}");
    }
}
