//! Channels between two ends in one process.

use std::{collections::HashMap, sync::Arc};

use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::{runtime::Handle, sync::mpsc};

use super::{Channel, FrameRx, FrameTx, Transport, TransportError};
use crate::{Dumper, PeerId, StreamId, frame::Frame};

// The window of a session bounds the bytes; this bounds the frames without any.
const FRAMES_MAX: usize = 64;

/// Two ends of a channel.
#[must_use]
pub fn pair() -> (Channel, Channel) {
    let (left_tx, right_rx) = mpsc::channel(FRAMES_MAX);
    let (right_tx, left_rx) = mpsc::channel(FRAMES_MAX);
    (channel(left_tx, left_rx), channel(right_tx, right_rx))
}

fn channel(tx: mpsc::Sender<Frame>, rx: mpsc::Receiver<Frame>) -> Channel {
    Channel {
        tx: Box::new(Tx(tx)),
        rx: Box::new(Rx(rx)),
    }
}

struct Tx(mpsc::Sender<Frame>);

struct Rx(mpsc::Receiver<Frame>);

#[async_trait]
impl FrameTx for Tx {
    async fn send(&mut self, frame: Frame) -> Result<(), TransportError> {
        let closed = |_| TransportError::Broken("the other end is gone".into());
        self.0.send(frame).await.map_err(closed)
    }
}

#[async_trait]
impl FrameRx for Rx {
    async fn recv(&mut self) -> Result<Option<Frame>, TransportError> {
        Ok(self.0.recv().await)
    }
}

/// Reaches the dumpers of this process by name.
///
/// A channel is served by a task on the runtime of tokio that connects it, as the tasks of a
/// [`Restorer`](crate::Restorer) do; off such a runtime nobody is reached.
#[derive(Clone, Debug)]
pub struct LocalTransport {
    name: PeerId,
    dumpers: Arc<Mutex<HashMap<PeerId, Dumper>>>,
}

impl LocalTransport {
    /// A transport of the end with this name; it reaches nobody yet.
    #[must_use]
    pub fn new(name: PeerId) -> Self {
        Self {
            name,
            dumpers: Arc::default(),
        }
    }

    /// Makes a dumper reachable.
    pub fn add(&self, peer: PeerId, dumper: Dumper) {
        self.dumpers.lock().insert(peer, dumper);
    }
}

#[async_trait]
impl Transport for LocalTransport {
    async fn connect(&self, peer: &PeerId, _: StreamId) -> Result<Channel, TransportError> {
        let dumper = self.dumpers.lock().get(peer).cloned();
        let dumper = dumper
            .ok_or_else(|| TransportError::Broken(format!("there is no {peer} in this process")))?;
        let runtime = Handle::try_current()
            .map_err(|_| TransportError::Broken("no runtime of tokio connects".into()))?;
        let (ours, theirs) = pair();
        let name = self.name.clone();
        runtime.spawn(async move { dumper.serve(&name, theirs).await });
        Ok(ours)
    }
}
