//! A group of three nodes whose stores misbehave on demand. Nobody stands for election by
//! itself, so that who leads is what a test says.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use kv_restore::{
    Admission, Dumper, Limiter, Options, PeerId, RestorerOptions, digest,
    raft::{RaftSnapshot, ReceiveError, Reference, Snapshots},
};
use openraft::{
    BasicNode, Config, Raft, RaftMetrics, ServerState, SnapshotPolicy,
    async_runtime::WatchReceiver,
    raft::SnapshotResponse,
    type_config::alias::{SnapshotMetaOf, SnapshotOf, VoteOf},
};
use pop_store::{
    MemStore, Store,
    testkit::{Call, FaultStore, Faults},
};

use super::{
    log::Log,
    machine::{APPLIED, Machine, ROWS, SEALS, Types},
    network::{Network, Node},
    way::{Deaf, Rows},
};
use crate::kit::count;

const LONG_ENOUGH: Option<Duration> = Some(Duration::from_secs(600));

pub(super) type Received = Result<SnapshotResponse<Types>, ReceiveError<Types>>;

pub(super) struct Member {
    pub(super) raft: Raft<Types, Machine>,
    pub(super) snapshots: Snapshots<Types>,
    pub(super) store: FaultStore<MemStore>,
    pub(super) faults: Faults,
    pub(super) log: Log,
}

impl Member {
    pub(super) fn metrics(&self) -> RaftMetrics<Types> {
        self.raft.metrics().borrow_watched().clone()
    }

    pub(super) fn vote(&self) -> VoteOf<Types> {
        self.metrics().vote
    }

    pub(super) fn applied(&self) -> u64 {
        self.metrics().last_applied.map_or(0, |it| it.index())
    }

    pub(super) fn begins(&self) -> u64 {
        self.faults.call_count(Call::BeginReplace)
    }

    pub(super) async fn current(&self) -> SnapshotOf<Types, RaftSnapshot> {
        self.snapshots.current().await.unwrap().unwrap()
    }

    /// What a leader of this vote would have it do.
    pub(super) fn receives(
        &self,
        vote: VoteOf<Types>,
        meta: &SnapshotMetaOf<Types>,
        reference: &Reference,
    ) -> impl Future<Output = Received> + Send + 'static {
        let (raft, snapshots) = (self.raft.clone(), self.snapshots.clone());
        let (meta, reference) = (meta.clone(), reference.clone());
        async move { snapshots.receive(&raft, vote, meta, reference).await }
    }

    /// Throws away the log up to what is applied.
    pub(super) async fn compact(&self) {
        let wait = self.raft.wait(LONG_ENOUGH);
        let applied = self.metrics().last_applied.unwrap();
        self.raft.trigger().snapshot().await.unwrap();
        wait.snapshot(applied, "built").await.unwrap();
        let trigger = self.raft.trigger();
        trigger.purge_log(applied.index()).await.unwrap();
        wait.purged(Some(applied), "purged").await.unwrap();
    }

    /// Waits until Raft has given up, here.
    pub(super) async fn has_ended(&self) {
        let wait = self.raft.wait(LONG_ENOUGH);
        let ended = wait.metrics(|it| it.running_state.is_err(), "it should have ended");
        ended.await.unwrap();
    }
}

pub(super) struct Group {
    pub(super) network: Network,
    pub(super) rows: Arc<Rows>,
    pub(super) members: BTreeMap<u64, Member>,
    pub(super) leader: u64,
    written: usize,
    numbers: Arc<AtomicU64>,
}

impl Group {
    /// Three nodes that are equal, led by the first.
    pub(super) async fn of_three() -> Self {
        let mut group = Self {
            network: Network::default(),
            rows: Arc::new(Rows::new()),
            members: BTreeMap::new(),
            leader: 1,
            written: 0,
            numbers: Arc::default(),
        };
        for id in 1..=3 {
            let store = MemStore::new(&[ROWS, SEALS, APPLIED]);
            group.start(id, store, Log::default()).await;
        }
        let nodes = (1..=3).map(|id| (id, BasicNode::default()));
        let nodes: BTreeMap<_, _> = nodes.collect();
        group.of(1).raft.initialize(nodes).await.unwrap();
        group.elect(1).await;
        group.write(5).await;
        group.agrees().await;
        group
    }

    /// The third node was cut off, and the others have thrown away what it lacks.
    pub(super) async fn with_a_laggard() -> Self {
        let mut group = Self::of_three().await;
        group.network.cut(3);
        group.write(30).await;
        group.two_agree().await;
        group.of(1).compact().await;
        group.of(2).compact().await;
        group
    }

    pub(super) fn of(&self, id: u64) -> &Member {
        &self.members[&id]
    }

    pub(super) async fn start(&mut self, id: u64, store: MemStore, log: Log) {
        let mut bounds = Options::default().with_chunk_bytes(300);
        bounds.open_within = Duration::from_secs(5);
        bounds.commit_within = Duration::from_secs(10);
        let name = PeerId::new(format!("node {id}"));
        let dumper = Dumper::new(bounds.clone(), Admission::new(4), Limiter::none());
        self.rows.local.add(name.clone(), dumper.clone());
        let numbers = Arc::clone(&self.numbers);
        let chance = Arc::new(move || numbers.fetch_add(1, Ordering::Relaxed));
        let faults = Faults::none();
        let store = FaultStore::crashable(store, faults.clone());
        let machine = Machine::new(
            Arc::new(store.clone()),
            name,
            dumper,
            Arc::clone(&self.rows) as _,
            RestorerOptions::new(Admission::new(2), chance).with_session(bounds),
        );
        let snapshots = machine.snapshots();
        let config = Config {
            enable_elect: false,
            heartbeat_interval: 500,
            election_timeout_min: 1_500,
            election_timeout_max: 3_000,
            snapshot_policy: SnapshotPolicy::Never,
            max_in_snapshot_log_to_keep: 0,
            ..Config::default()
        };
        let config = Arc::new(config.validate().unwrap());
        let links = Deaf(self.network.of(id));
        let raft = Raft::new(id, config, links, log.clone(), machine);
        let raft = raft.await.unwrap();
        let node = Node {
            raft: raft.clone(),
            snapshots: snapshots.clone(),
        };
        self.network.add(id, node);
        let member = Member {
            raft,
            snapshots,
            store,
            faults,
            log,
        };
        self.members.insert(id, member);
    }

    /// The process of a node ends: what is not synced is lost, and its log is not. Who
    /// waits for rows of it does not hear of that.
    pub(super) async fn kill(&mut self, id: u64) -> (MemStore, Log) {
        let member = self.members.remove(&id).unwrap();
        self.network.cut(id);
        let store = member.store.crash(0);
        // It may have ended by itself.
        let _ = member.raft.shutdown().await;
        (store, member.log)
    }

    pub(super) async fn restart(&mut self, id: u64) {
        let (store, log) = self.kill(id).await;
        self.start(id, store, log).await;
        self.network.heal(id);
    }

    /// Makes a node the leader, of a term that all know or will.
    pub(super) async fn elect(&mut self, id: u64) {
        self.leader = id;
        let terms = self.members.values().map(|it| it.metrics().current_term);
        let term = terms.max().unwrap();
        let raft = &self.of(id).raft;
        for _ in 0..20 {
            raft.trigger().elect(false).await.unwrap();
            let wait = raft.wait(Some(Duration::from_secs(4)));
            let leads = |it: &RaftMetrics<Types>| {
                // It takes entries once a quorum has answered it.
                let answered = it.last_quorum_acked.is_some();
                it.state == ServerState::Leader && it.current_term >= term && answered
            };
            if wait.metrics(leads, "elected").await.is_ok() {
                return;
            }
        }
        panic!("node {id} was not elected: {:?}", self.of(id).metrics());
    }

    pub(super) async fn write(&mut self, count: usize) {
        let raft = self.of(self.leader).raft.clone();
        for _ in 0..count {
            self.written += 1;
            let entry = format!("{}={}", self.written, "x".repeat(self.written % 97));
            raft.client_write(entry).await.unwrap();
        }
    }

    /// Whether a node comes to where the leader is, by itself.
    pub(super) async fn catches_up(&self, id: u64) -> bool {
        let last = self.of(self.leader).metrics().last_applied;
        let wait = self.of(id).raft.wait(Some(Duration::from_secs(40)));
        let last = last.map(|it| it.index());
        wait.applied_index_at_least(last, "equal").await.is_ok()
    }

    /// All nodes come to the content of the leader, which is all that was written.
    pub(super) async fn agrees(&self) {
        self.agree(self.members.values()).await;
    }

    pub(super) async fn two_agree(&self) {
        self.agree([self.of(1), self.of(2)]).await;
    }

    async fn agree(&self, members: impl IntoIterator<Item = &Member>) {
        let leader = self.of(self.leader);
        let last = leader.raft.wait(LONG_ENOUGH);
        let last = last.metrics(
            |it| it.last_applied.map(|it| it.index()) == it.last_log_index,
            "",
        );
        let last = last.await.unwrap().last_log_index;
        let content = content(leader).await;
        assert_eq!(count(leader.store.inner(), ROWS).await, self.written);
        for member in members {
            let wait = member.raft.wait(LONG_ENOUGH);
            wait.applied_index_at_least(last, "equal").await.unwrap();
            assert_eq!(self::content(member).await, content);
        }
    }
}

pub(super) async fn content(member: &Member) -> kv_restore::Digest {
    let view = member.store.inner().snapshot().await.unwrap();
    digest(view.as_ref(), &[ROWS]).await.unwrap()
}
