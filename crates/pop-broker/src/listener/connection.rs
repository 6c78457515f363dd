//! One connection, from its first byte to its end.

use std::{
    io,
    net::SocketAddr,
    pin::Pin,
    task::{Context, Poll},
};

use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf},
    net::TcpStream,
    sync::OwnedSemaphorePermit,
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tonic::transport::server::Connected;

/// What every HTTP/2 client says first.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// The first byte of a TLS handshake; no HTTP/2 preface begins with it.
const TLS_HANDSHAKE: u8 = 0x16;

/// What a call knows of its connection.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    /// The address that the client connected to.
    pub(crate) local: SocketAddr,
    /// Cancelled when the server is on its way out: what waits ends.
    pub(crate) closing: CancellationToken,
}

/// A connection whose client has said that it speaks HTTP/2.
pub(super) struct Opened {
    stream: Stream,
    local: SocketAddr,
}

/// An opened connection as the gRPC server reads and writes it.
pub(super) struct Connection {
    stream: Stream,
    peer: Peer,
    /// How much of the preface, which is already read, the server has seen.
    preface_seen: usize,
    closed: Pin<Box<WaitForCancellationFutureOwned>>,
    _counted: OwnedSemaphorePermit,
}

enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

trait Duplex: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Duplex for T {}

impl Stream {
    fn duplex(&mut self) -> Pin<&mut dyn Duplex> {
        match self {
            Self::Plain(stream) => Pin::new(stream),
            Self::Tls(stream) => Pin::new(stream.as_mut()),
        }
    }
}

impl Connection {
    /// Brings a connection through its handshake. The caller limits the time.
    pub(super) async fn open(socket: TcpStream, tls: Option<&TlsAcceptor>) -> io::Result<Opened> {
        // Answers are small and must not wait for more to come.
        socket.set_nodelay(true)?;
        let local = socket.local_addr()?;
        let mut first = [0];
        if socket.peek(&mut first).await? == 0 {
            return Err(refused("the peer closed it before it said anything"));
        }
        let stream = match (first, tls) {
            ([TLS_HANDSHAKE], Some(tls)) => Stream::Tls(Box::new(tls.accept(socket).await?)),
            ([TLS_HANDSHAKE], None) => {
                return Err(refused(
                    "the peer speaks TLS, which is off: switch it on here, or off in the client",
                ));
            }
            _ => Stream::Plain(socket),
        };
        let mut opened = Opened { stream, local };
        opened.read_preface().await?;
        Ok(opened)
    }
}

impl Opened {
    async fn read_preface(&mut self) -> io::Result<()> {
        let mut read = [0; PREFACE.len()];
        let mut length = 0;
        // Looked at piece by piece: a peer that speaks something else may say less than
        // a whole preface and then wait for an answer.
        while let Some(room) = read.get_mut(length..).filter(|room| !room.is_empty()) {
            let count = self.stream.duplex().read(room).await?;
            if count == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            length += count;
            if read.get(..length) != PREFACE.get(..length) {
                return Err(refused("the peer speaks neither HTTP/2 nor TLS"));
            }
        }
        Ok(())
    }

    /// Makes it a connection of the server, as long as it holds its permit.
    pub(super) fn counted(
        self,
        permit: OwnedSemaphorePermit,
        closing: CancellationToken,
        closed: CancellationToken,
    ) -> Connection {
        Connection {
            stream: self.stream,
            peer: Peer {
                local: self.local,
                closing,
            },
            preface_seen: 0,
            closed: Box::pin(closed.cancelled_owned()),
            _counted: permit,
        }
    }
}

impl Connection {
    fn poll_open(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        match self.closed.as_mut().poll(cx) {
            Poll::Ready(()) => Err(io::ErrorKind::ConnectionAborted.into()),
            Poll::Pending => Ok(()),
        }
    }
}

impl Connected for Connection {
    type ConnectInfo = Peer;

    fn connect_info(&self) -> Peer {
        self.peer.clone()
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.poll_open(cx)?;
        let unseen = PREFACE.get(self.preface_seen..).unwrap_or_default();
        if unseen.is_empty() {
            return self.stream.duplex().poll_read(cx, buffer);
        }
        let seen = unseen.len().min(buffer.remaining());
        buffer.put_slice(unseen.get(..seen).unwrap_or_default());
        self.preface_seen += seen;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_open(cx)?;
        self.stream.duplex().poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_open(cx)?;
        self.stream.duplex().poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        match &self.stream {
            Stream::Plain(stream) => stream.is_write_vectored(),
            Stream::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_open(cx)?;
        self.stream.duplex().poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Not refused when closed: a TLS peer gets its goodbye if there is still time.
        self.stream.duplex().poll_shutdown(cx)
    }
}

fn refused(why: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}
