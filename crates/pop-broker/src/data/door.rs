//! Who comes in at the data port: so many at once, each with a task of its own, and nobody
//! before it has said who it is and what it wants.

use std::{io, net::SocketAddr};

use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use super::{
    DataService, Duplex, Stream,
    hello::{self, Hello, Opening},
    limits::{CONNECTIONS_MAX, HELLO_BYTES_MAX, HELLO_TIME_MAX},
    stats::{Turned, count},
};

/// The way in.
pub(super) struct Door {
    pub(super) service: DataService,
    pub(super) tls: Option<TlsAcceptor>,
    /// Ends every connection.
    pub(super) stop: CancellationToken,
}

/// Whoever did not get to its words.
enum NoWords {
    /// It went without having said anything, as who only looks whether the port is there.
    Nothing,
    /// It speaks another version, and is told so.
    Version(Stream, u32),
    Other(Turned, io::Error),
}

impl Door {
    /// Lets a connection in, if there is room.
    pub(super) fn admit(&self, stream: impl Duplex, peer: SocketAddr) -> Option<JoinHandle<()>> {
        let service = self.service.clone();
        count(&service.counters().connections);
        let Ok(permit) = service.room().try_acquire_owned() else {
            let text = format!("{CONNECTIONS_MAX} connections are open already");
            service.turned_away(peer, Turned::NoRoom, &text);
            return None;
        };
        let (tls, stop) = (self.tls.clone(), self.stop.clone());
        Some(tokio::spawn(async move {
            let _permit = permit;
            tokio::select! {
                () = stop.cancelled() => {}
                () = open(service, stream, peer, tls) => {}
            }
        }))
    }
}

/// Brings a connection through its first words. Until they are heard it costs a task and a
/// few hundred bytes, and for at most so long, however they come.
async fn open(
    service: DataService,
    stream: impl Duplex,
    peer: SocketAddr,
    tls: Option<TlsAcceptor>,
) {
    let words = tokio::time::timeout(HELLO_TIME_MAX, first_words(stream, tls));
    let words = words.await.unwrap_or_else(|_| {
        let text = format!("nothing whole within {HELLO_TIME_MAX:?}");
        let late = io::Error::new(io::ErrorKind::TimedOut, text);
        Err(NoWords::Other(Turned::Silent, late))
    });
    match words {
        Ok((stream, hello)) => service.answer(stream, peer, hello).await,
        Err(NoWords::Version(stream, version)) => {
            service.refuse_version(stream, peer, version).await;
        }
        Err(NoWords::Nothing) => tracing::debug!(%peer, "a data connection was opened and closed"),
        Err(NoWords::Other(why, error)) => service.turned_away(peer, why, &error.to_string()),
    }
}

async fn first_words(
    stream: impl Duplex,
    tls: Option<TlsAcceptor>,
) -> Result<(Stream, Hello), NoWords> {
    let mut stream: Stream = match tls {
        None => Box::new(stream),
        Some(tls) => {
            let shaken = tls.accept(stream).await;
            Box::new(shaken.map_err(|error| NoWords::Other(Turned::Tls, error))?)
        }
    };
    let broken = |error: io::Error| {
        let nonsense = error.kind() == io::ErrorKind::InvalidData;
        let why = if nonsense {
            Turned::Nonsense
        } else {
            Turned::Cut
        };
        NoWords::Other(why, error)
    };
    match hello::opening(&mut stream).await.map_err(broken)? {
        Opening::Ours => {
            let hello = hello::read(&mut stream, HELLO_BYTES_MAX);
            let hello = hello.await.map_err(broken)?;
            Ok((stream, hello))
        }
        Opening::Version(version) => Err(NoWords::Version(stream, version)),
        Opening::Nothing => Err(NoWords::Nothing),
        Opening::Nonsense => Err(broken(io::Error::new(
            io::ErrorKind::InvalidData,
            "it does not begin as what this port speaks",
        ))),
    }
}
