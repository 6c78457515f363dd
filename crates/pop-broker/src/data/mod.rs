//! The data port: where another process fetches what this broker has.
//!
//! Whoever may connect gets every message, so the port is off unless it is asked for, and
//! anywhere but on this machine it wants a token or a certificate.
//!
//! A peer says hello, is told what it asked for or why not, and goes on: as a session of
//! `kv-restore` that fetches rows, or as the holder of a snapshot, which is kept as long as
//! its holder is there. `source` is the other end.

mod access;
mod door;
mod handover;
mod hello;
mod hold;
mod limits;
mod pins;
mod port;
mod rate;
mod serve;
mod source;
mod stats;
mod tls;
mod token;
mod url;

#[cfg(test)]
mod tests;

pub use access::{Access, AccessError, PortTls};
pub use port::DataPort;
pub use rate::{ByteRate, InvalidRate};
pub use serve::{DataOptions, DataService};
pub use source::{Credentials, Held, Source, SourceError};
pub use stats::DataStats;
pub use tls::{ClientTls, Identity, TlsError};
pub use token::{Token, TokenError};
pub use url::{InvalidUrl, SourceUrl};

use tokio::io::{AsyncRead, AsyncWrite};

/// A connection, with or without TLS.
trait Duplex: AsyncRead + AsyncWrite + Send + Unpin + 'static {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin + 'static> Duplex for T {}
type Stream = Box<dyn Duplex>;
