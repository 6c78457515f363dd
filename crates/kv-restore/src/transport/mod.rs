//! How frames get to the other side: in process, or over any stream of bytes.
//!
//! A session has a channel of its own, so that a fault in one can't reach another.

mod framed;
mod local;

use async_trait::async_trait;

use crate::{ErrorKind, Failure, PeerId, StreamId, frame::Frame, frame::FrameError};

pub use framed::framed;
pub use local::{LocalTransport, pair};

/// Opens channels to peers.
///
/// # Contract
///
/// Frames arrive in the order in which they were sent, or the channel breaks. Who and what
/// the peer is, the transport vouches for.
#[async_trait]
pub trait Transport: Send + Sync + 'static {
    /// Opens the channel of a session.
    ///
    /// # Errors
    ///
    /// If the peer can't be reached.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves no channel.
    async fn connect(&self, peer: &PeerId, stream: StreamId) -> Result<Channel, TransportError>;
}

/// The sending half of a channel.
#[async_trait]
pub trait FrameTx: Send + 'static {
    /// Sends a frame; waits while the other side does not take any.
    ///
    /// # Errors
    ///
    /// If the frame is not on its way, or nobody knows whether it is. The channel counts as
    /// broken from then on: nothing more is sent on it, and a receiver connects anew.
    ///
    /// # Cancel safety
    ///
    /// None is needed: who drops the future drops the channel with it.
    async fn send(&mut self, frame: Frame) -> Result<(), TransportError>;
}

/// The receiving half of a channel.
#[async_trait]
pub trait FrameRx: Send + 'static {
    /// The next frame; `None` when the other side has closed the channel.
    ///
    /// # Errors
    ///
    /// If the channel broke, also in the middle of a frame; [`TransportError::Frame`] for what
    /// is none. Nothing more is asked for after that, nor after a `None`.
    ///
    /// # Cancel safety
    ///
    /// None is needed: who drops the future drops the channel with it.
    async fn recv(&mut self) -> Result<Option<Frame>, TransportError>;
}

/// Both halves of a channel. Dropping them closes it.
pub struct Channel {
    /// Towards the peer.
    pub tx: Box<dyn FrameTx>,
    /// From the peer.
    pub rx: Box<dyn FrameRx>,
}

impl std::fmt::Debug for Channel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Channel").finish_non_exhaustive()
    }
}

/// A channel that failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TransportError {
    /// The peer can't be reached, or the connection broke.
    #[error("{0}")]
    Broken(String),
    /// What came is no frame.
    #[error(transparent)]
    Frame(#[from] FrameError),
}

impl From<std::io::Error> for TransportError {
    fn from(error: std::io::Error) -> Self {
        Self::Broken(error.to_string())
    }
}

impl From<TransportError> for Failure {
    fn from(error: TransportError) -> Self {
        match error {
            TransportError::Broken(detail) => Self::new(ErrorKind::Transport, detail),
            TransportError::Frame(error) => error.into(),
        }
    }
}
