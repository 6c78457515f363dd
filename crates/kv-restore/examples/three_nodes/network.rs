//! The way between nodes of one process. A node can be cut off, or hear late of what was
//! agreed on.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use kv_restore::raft::{RaftSnapshot, Snapshots};
use openraft::{
    BasicNode, OptionalSend, Raft, RaftNetworkFactory, RaftNetworkV2,
    errors::{RPCError, ReplicationClosed, StreamingError, Unreachable},
    network::RPCOption,
    raft::{
        AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, VoteRequest, VoteResponse,
    },
    type_config::alias::{LogIdOf, SnapshotOf, VoteOf},
};
use parking_lot::Mutex;

use super::machine::{Machine, Types};

/// Where messages to a node arrive.
#[derive(Clone)]
pub(crate) struct Node {
    /// Its Raft.
    pub(crate) raft: Raft<Types, Machine>,
    /// Its snapshots.
    pub(crate) snapshots: Snapshots<Types>,
}

/// All nodes, by their number. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct Network {
    nodes: Arc<Mutex<BTreeMap<u64, Node>>>,
    cut: Arc<Mutex<BTreeSet<u64>>>,
    told: Arc<Mutex<BTreeMap<u64, Option<LogIdOf<Types>>>>>,
}

impl Network {
    /// Lets a node be reached.
    pub(crate) fn add(&self, id: u64, node: Node) {
        self.nodes.lock().insert(id, node);
    }

    /// Cuts a node off.
    pub(crate) fn cut(&self, id: u64) {
        self.cut.lock().insert(id);
    }

    /// Undoes that.
    pub(crate) fn heal(&self, id: u64) {
        self.cut.lock().remove(&id);
    }

    /// Lets a node have all entries, and hear of no agreement on those behind `upto`.
    pub(crate) fn tell_up_to(&self, id: u64, upto: Option<LogIdOf<Types>>) {
        self.told.lock().insert(id, upto);
    }

    /// Undoes that.
    pub(crate) fn tell_all(&self, id: u64) {
        self.told.lock().remove(&id);
    }

    /// What a node sends with.
    #[must_use]
    pub(crate) fn of(&self, from: u64) -> Links {
        let network = self.clone();
        Links { network, from }
    }

    fn reach(&self, from: u64, to: u64) -> Result<Node, Unreachable<Types>> {
        let cut = self.cut.lock();
        let node = self.nodes.lock().get(&to).cloned();
        let node = node.filter(|_| !cut.contains(&from) && !cut.contains(&to));
        node.ok_or_else(|| Unreachable::from_string(format!("no way from {from} to {to}")))
    }
}

/// Makes the links of a node.
pub(crate) struct Links {
    network: Network,
    from: u64,
}

/// The link from one node to another.
#[derive(Clone)]
pub(crate) struct Link {
    network: Network,
    from: u64,
    to: u64,
}

impl RaftNetworkFactory<Types> for Links {
    type Network = Link;

    async fn new_client(&mut self, to: u64, _: &BasicNode) -> Link {
        let (network, from) = (self.network.clone(), self.from);
        Link { network, from, to }
    }
}

impl RaftNetworkV2<Types> for Link {
    type SnapshotData = RaftSnapshot;

    async fn append_entries(
        &mut self,
        mut request: AppendEntriesRequest<Types>,
        _: RPCOption,
    ) -> Result<AppendEntriesResponse<Types>, RPCError<Types>> {
        if let Some(told) = self.network.told.lock().get(&self.to) {
            request.leader_commit = request.leader_commit.min(*told);
        }
        let node = self.network.reach(self.from, self.to)?;
        let answer = node.raft.append_entries(request).await;
        Ok(answer.map_err(|it| Unreachable::new(&it))?)
    }

    async fn vote(
        &mut self,
        request: VoteRequest<Types>,
        _: RPCOption,
    ) -> Result<VoteResponse<Types>, RPCError<Types>> {
        let node = self.network.reach(self.from, self.to)?;
        let answer = node.raft.vote(request).await;
        Ok(answer.map_err(|it| Unreachable::new(&it))?)
    }

    async fn full_snapshot(
        &mut self,
        vote: VoteOf<Types>,
        snapshot: SnapshotOf<Types, RaftSnapshot>,
        cancel: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        _: RPCOption,
    ) -> Result<SnapshotResponse<Types>, StreamingError<Types>> {
        let node = self.network.reach(self.from, self.to)?;
        // Between processes these three are what is sent. No clock bounds the answer: the
        // session has its own, for whoever is silent or slow.
        let (meta, reference) = (snapshot.meta.clone(), snapshot.snapshot.reference().clone());
        let answer = node.snapshots.receive(&node.raft, vote, meta, reference);
        tokio::select! {
            answer = answer => Ok(answer.map_err(|it| Unreachable::new(&it))?),
            closed = cancel => Err(closed.into()),
        }
    }
}
