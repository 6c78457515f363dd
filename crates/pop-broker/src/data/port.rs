//! The socket of the data port.

use std::{io, net::SocketAddr, time::Duration};

use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use super::{Access, DataService, door::Door, tls};

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
        let door = Door {
            service: service.clone(),
            tls: self.tls,
            stop,
        };
        loop {
            let accepted = tokio::select! {
                () = door.stop.cancelled() => break,
                accepted = self.socket.accept() => accepted,
            };
            let (socket, peer) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    service.not_accepted(&error);
                    // Out of file descriptors, it would fail again at once.
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
            };
            if let Err(error) = socket.set_nodelay(true) {
                tracing::debug!(%peer, %error, "a data connection was gone at once");
                continue;
            }
            door.admit(socket, peer);
        }
        service.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Mutant: only the command line looks, and whoever embeds the port opens it to everybody.
    #[tokio::test]
    async fn an_address_that_everybody_reaches_is_not_listened_on() {
        let address = "0.0.0.0:0".parse().unwrap();
        let refused = DataPort::bind(address, &Access::default()).await;
        let refused = refused.unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::Other);
        assert!(
            refused.to_string().contains("--data-token-file"),
            "{refused}"
        );
    }
}
