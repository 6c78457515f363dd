//! The ways between the nodes: rows that are cut off, and a server that does not hear that its
//! client is gone.

use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use kv_restore::{
    PeerId, StreamId,
    frame::Frame,
    raft::RaftSnapshot,
    transport::{Channel, FrameRx, LocalTransport, Transport, TransportError},
};
use openraft::{
    BasicNode, OptionalSend, RaftNetworkFactory, RaftNetworkV2,
    errors::{RPCError, ReplicationClosed, StreamingError},
    network::RPCOption,
    raft::{
        AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, VoteRequest, VoteResponse,
    },
    type_config::alias::{SnapshotOf, VoteOf},
};
use parking_lot::Mutex;

use super::{
    machine::Types,
    network::{Link, Links},
};

/// How rows travel.
pub(super) struct Rows {
    pub(super) local: LocalTransport,
    pub(super) connects: AtomicU64,
    cut_after: Mutex<Option<u32>>,
}

impl Rows {
    pub(super) fn new() -> Self {
        Self {
            local: LocalTransport::new(PeerId::new("a node")),
            connects: AtomicU64::new(0),
            cut_after: Mutex::new(None),
        }
    }

    /// Cuts the next connection off after some frames.
    pub(super) fn cut_after(&self, frames: u32) {
        *self.cut_after.lock() = Some(frames);
    }
}

#[async_trait]
impl Transport for Rows {
    async fn connect(&self, peer: &PeerId, stream: StreamId) -> Result<Channel, TransportError> {
        self.connects.fetch_add(1, Ordering::Relaxed);
        let Channel { tx, rx } = self.local.connect(peer, stream).await?;
        let rx: Box<dyn FrameRx> = match self.cut_after.lock().take() {
            Some(left) => Box::new(Cut { rx, left }),
            None => rx,
        };
        Ok(Channel { tx, rx })
    }
}

struct Cut {
    rx: Box<dyn FrameRx>,
    left: u32,
}

#[async_trait]
impl FrameRx for Cut {
    async fn recv(&mut self) -> Result<Option<Frame>, TransportError> {
        if self.left == 0 {
            return Err(TransportError::Broken("injected".into()));
        }
        self.left -= 1;
        self.rx.recv().await
    }
}

/// Links to servers that go on for clients that are gone.
pub(super) struct Deaf(pub(super) Links);

pub(super) struct DeafLink(Link);

impl RaftNetworkFactory<Types> for Deaf {
    type Network = DeafLink;

    async fn new_client(&mut self, to: u64, node: &BasicNode) -> DeafLink {
        DeafLink(self.0.new_client(to, node).await)
    }
}

impl RaftNetworkV2<Types> for DeafLink {
    type SnapshotData = RaftSnapshot;

    async fn append_entries(
        &mut self,
        request: AppendEntriesRequest<Types>,
        option: RPCOption,
    ) -> Result<AppendEntriesResponse<Types>, RPCError<Types>> {
        self.0.append_entries(request, option).await
    }

    async fn vote(
        &mut self,
        request: VoteRequest<Types>,
        option: RPCOption,
    ) -> Result<VoteResponse<Types>, RPCError<Types>> {
        self.0.vote(request, option).await
    }

    async fn full_snapshot(
        &mut self,
        vote: VoteOf<Types>,
        snapshot: SnapshotOf<Types, RaftSnapshot>,
        cancel: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        option: RPCOption,
    ) -> Result<SnapshotResponse<Types>, StreamingError<Types>> {
        let mut link = self.0.clone();
        let served = tokio::spawn(async move {
            let never = std::future::pending();
            link.full_snapshot(vote, snapshot, never, option).await
        });
        tokio::select! {
            answer = served => answer.unwrap(),
            closed = cancel => Err(closed.into()),
        }
    }
}
