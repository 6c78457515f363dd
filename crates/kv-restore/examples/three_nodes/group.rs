//! A group of three nodes, each with a store that fails when it is told to. Nobody stands for
//! election by itself, so that each run goes the same way; every wait has a bound.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use kv_restore::{
    Admission, Digest, Dumper, Limiter, Options, PeerId, RestorerOptions, digest,
    transport::LocalTransport,
};
use openraft::{
    BasicNode, Config, Raft, RaftMetrics, SnapshotPolicy, async_runtime::WatchReceiver,
};
use pop_store::{
    MemStore, Store,
    testkit::{FaultStore, Faults},
};

use super::{
    Result,
    log::Log,
    machine::{APPLIED, Machine, ROWS, SEALS, Types},
    network::{Network, Node},
};

/// Whoever needs longer than this is stuck.
const STUCK_AFTER: Duration = Duration::from_secs(20);

/// One node, as its process has it.
pub(crate) struct Member {
    raft: Raft<Types, Machine>,
    store: FaultStore<MemStore>,
    log: Log,
    /// What its store is to do wrong.
    pub(crate) faults: Faults,
}

/// The nodes 1, 2 and 3.
pub(crate) struct Group {
    pub(crate) network: Network,
    // Rows go their own way. Here it leads through memory; `transport::framed` makes it of
    // any stream between machines.
    rows: LocalTransport,
    members: BTreeMap<u64, Member>,
    leader: u64,
    numbers: Arc<AtomicU64>,
}

impl Member {
    pub(crate) fn metrics(&self) -> RaftMetrics<Types> {
        self.raft.metrics().borrow_watched().clone()
    }

    /// Waits until its Raft looks so.
    pub(crate) async fn is(
        &self,
        what: &str,
        looks: impl Fn(&RaftMetrics<Types>) -> bool + Send,
    ) -> Result<()> {
        let wait = self.raft.wait(Some(STUCK_AFTER));
        wait.metrics(looks, what).await?;
        Ok(())
    }

    /// How many rows it has, and their digest.
    pub(crate) async fn content(&self) -> Result<Digest> {
        let view = self.store.inner().snapshot().await?;
        Ok(digest(view.as_ref(), &[ROWS]).await?)
    }
}

impl Group {
    /// Starts three nodes without content, led by the first.
    pub(crate) async fn start() -> Result<Self> {
        let mut group = Self {
            network: Network::default(),
            rows: LocalTransport::new(PeerId::new("a node")),
            members: BTreeMap::new(),
            leader: 1,
            numbers: Arc::default(),
        };
        for id in 1..=3 {
            let store = MemStore::new(&[ROWS, SEALS, APPLIED]);
            group.add(id, store, Log::default()).await?;
        }
        let nodes = (1..=3).map(|id| (id, BasicNode::default()));
        let nodes: BTreeMap<_, _> = nodes.collect();
        group.of(1)?.raft.initialize(nodes).await?;
        group.elect(1).await?;
        Ok(group)
    }

    /// A node.
    pub(crate) fn of(&self, id: u64) -> Result<&Member> {
        let member = self.members.get(&id);
        Ok(member.ok_or_else(|| format!("node {id} does not run"))?)
    }

    async fn add(&mut self, id: u64, store: MemStore, log: Log) -> Result<()> {
        let name = PeerId::new(format!("node {id}"));
        // Small chunks, so that a transfer has a middle.
        let bounds = Options::default().with_chunk_bytes(4 << 10);
        let dumper = Dumper::new(bounds.clone(), Admission::new(4), Limiter::none());
        self.rows.add(name.clone(), dumper.clone());
        // Numbers that don't come twice; a server draws them at random.
        let numbers = Arc::clone(&self.numbers);
        let chance = Arc::new(move || numbers.fetch_add(1, Ordering::Relaxed));
        let faults = Faults::none();
        // Any other store will do.
        let store = FaultStore::crashable(store, faults.clone());
        let machine = Machine::new(
            Arc::new(store.clone()),
            name,
            dumper,
            Arc::new(self.rows.clone()),
            RestorerOptions::new(Admission::new(2), chance).with_session(bounds),
        );
        let snapshots = machine.snapshots();
        let config = Config {
            enable_elect: false,
            snapshot_policy: SnapshotPolicy::Never,
            max_in_snapshot_log_to_keep: 0,
            ..Config::default()
        };
        let config = Arc::new(config.validate()?);
        let raft = Raft::new(id, config, self.network.of(id), log.clone(), machine).await?;
        let node = Node {
            raft: raft.clone(),
            snapshots,
        };
        self.network.add(id, node);
        let member = Member {
            raft,
            store,
            log,
            faults,
        };
        self.members.insert(id, member);
        Ok(())
    }

    /// The power of a node fails: what is not synced is lost.
    pub(crate) async fn kill(&mut self, id: u64) -> Result<(MemStore, Log)> {
        self.network.cut(id);
        let member = self.members.remove(&id);
        let member = member.ok_or_else(|| format!("node {id} does not run"))?;
        let left = member.store.crash(0);
        // It may have ended by itself.
        let _ = member.raft.shutdown().await;
        Ok((left, member.log))
    }

    /// Starts a node with what was left of it.
    pub(crate) async fn restart(&mut self, id: u64, (store, log): (MemStore, Log)) -> Result<()> {
        self.add(id, store, log).await?;
        self.network.heal(id);
        Ok(())
    }

    /// Makes a node the leader.
    pub(crate) async fn elect(&mut self, id: u64) -> Result<()> {
        self.leader = id;
        let member = self.of(id)?;
        let leads = |it: &RaftMetrics<Types>| {
            it.current_leader == Some(id) && it.last_quorum_acked.is_some()
        };
        // Others wait a while before they give up the leader that they had.
        for _ in 0..20 {
            member.raft.trigger().elect(false).await?;
            let wait = member.raft.wait(Some(Duration::from_secs(1)));
            if wait.metrics(leads, "elected").await.is_ok() {
                return Ok(());
            }
        }
        Err(format!("node {id} was not elected").into())
    }

    /// Has the group agree on so many entries more.
    pub(crate) async fn write(&self, count: usize) -> Result<()> {
        let leader = self.of(self.leader)?;
        for _ in 0..count {
            let number = self.numbers.fetch_add(1, Ordering::Relaxed);
            let entry = format!("key {number}={}", "value ".repeat(10));
            leader.raft.client_write(entry).await?;
        }
        Ok(())
    }

    /// Throws away the log of a node up to what it has applied.
    pub(crate) async fn compact(&self, id: u64) -> Result<()> {
        let member = self.of(id)?;
        let applied = member.metrics().last_applied;
        member.raft.trigger().snapshot().await?;
        let built = |it: &RaftMetrics<Types>| it.snapshot >= applied;
        member.is("a snapshot is built", built).await?;
        let index = applied.map_or(0, |it| it.index());
        member.raft.trigger().purge_log(index).await?;
        let purged = |it: &RaftMetrics<Types>| it.purged >= applied;
        member.is("the log is purged", purged).await
    }

    /// Waits until these nodes have applied all that the leader has.
    ///
    /// # Errors
    ///
    /// If one of them is stuck.
    pub(crate) async fn agree(&self, ids: &[u64]) -> Result<()> {
        let leader = self.of(self.leader)?;
        let all =
            |it: &RaftMetrics<Types>| it.last_applied.map(|it| it.index()) == it.last_log_index;
        leader.is("all applied at the leader", all).await?;
        let last = leader.metrics().last_applied;
        for id in ids {
            let caught_up = |it: &RaftMetrics<Types>| it.last_applied >= last;
            let member = self.of(*id)?;
            let what = format!("node {id} catches up");
            member.is(&what, caught_up).await?;
        }
        Ok(())
    }
}
