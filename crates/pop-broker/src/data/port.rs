//! The socket of the data port: connections in, each a task of its own with bounds.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use super::{
    Access, DataService, Stream, hello,
    limits::{CONNECTIONS_MAX, HELLO_TIME_MAX},
    stats::count,
    tls,
};

/// A bound data port.
pub struct DataPort {
    socket: TcpListener,
    address: SocketAddr,
    tls: Option<TlsAcceptor>,
}

impl std::fmt::Debug for DataPort {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DataPort")
            .field("address", &self.address)
            .field("tls", &self.tls.is_some())
            .finish_non_exhaustive()
    }
}

impl DataPort {
    /// Binds the port; port 0 takes a free one.
    ///
    /// # Errors
    ///
    /// An address that can't be had keeps its [`io::ErrorKind`]; one that would be open to
    /// everybody, and files that can't be used, are of the kind `Other`.
    pub async fn bind(address: SocketAddr, access: &Access) -> io::Result<Self> {
        access.check(address).map_err(io::Error::other)?;
        let tls = access.tls.as_ref().map(tls::acceptor).transpose();
        let tls = tls.map_err(io::Error::other)?;
        let socket = TcpListener::bind(address).await?;
        let address = socket.local_addr()?;
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

    /// Serves until `stop`, and then ends every connection.
    ///
    /// # Cancel safety
    ///
    /// Dropped, it closes the port; connections end when the service is closed.
    pub async fn serve(self, service: DataService, stop: CancellationToken) {
        let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        loop {
            let accepted = tokio::select! {
                () = stop.cancelled() => break,
                accepted = self.socket.accept() => accepted,
            };
            let (socket, peer) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!(%error, "a data connection could not be accepted");
                    // Out of file descriptors, it would fail again at once.
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
            };
            count(&service.counters().connections);
            let Ok(permit) = Arc::clone(&room).try_acquire_owned() else {
                count(&service.counters().refused);
                tracing::debug!(%peer, "{CONNECTIONS_MAX} data connections are open; one more is refused");
                continue;
            };
            let (service, stop, tls) = (service.clone(), stop.clone(), self.tls.clone());
            tokio::spawn(async move {
                let _permit = permit;
                tokio::select! {
                    () = stop.cancelled() => {}
                    () = open(service, socket, peer, tls) => {}
                }
            });
        }
        service.close();
    }
}

/// Brings a connection through its first words. Until they are heard it costs a task and a
/// few hundred bytes, and for at most so long.
async fn open(service: DataService, socket: TcpStream, peer: SocketAddr, tls: Option<TlsAcceptor>) {
    let opening = async {
        socket.set_nodelay(true)?;
        let mut stream: Stream = match tls {
            None => Box::new(socket),
            Some(tls) => Box::new(tls.accept(socket).await?),
        };
        let opening = hello::opening(&mut stream).await?;
        io::Result::Ok((stream, opening))
    };
    match hello::within(HELLO_TIME_MAX, opening).await {
        Ok((stream, hello::Opening::Ours)) => service.answer(stream, peer).await,
        Ok((stream, hello::Opening::Version(version))) => {
            count(&service.counters().refused);
            service.refuse_version(stream, version).await;
        }
        Ok((_, hello::Opening::Nonsense)) => {
            count(&service.counters().refused);
            tracing::debug!(%peer, "what came to the data port is something else; it is closed");
        }
        Err(error) => {
            count(&service.counters().refused);
            tracing::debug!(%peer, %error, "a data connection did not get to its first words");
        }
    }
}
