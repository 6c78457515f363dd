//! A source, a target that misbehaves on demand, and a way between them that does, too.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use kv_restore::{
    Admission, Digest, Dumper, Epoch, ErrorKind, Limiter, Offer, Options, Outcome, PeerId,
    RestoreError, Restorer, RestorerOptions, Session, SnapshotId, SnapshotRef, StreamId, Target,
    digest,
    transport::{Channel, LocalTransport, Transport, TransportError},
};
use parking_lot::Mutex;
use pop_store::{
    Durability, Keyspace, MemStore, Scan, Store, WriteBatch,
    testkit::{Call, Effect, Fault, FaultStore, Faults},
};
use tokio::runtime::Runtime;

pub(crate) const A: Keyspace = Keyspace::new("a");
pub(crate) const B: Keyspace = Keyspace::new("b");
pub(crate) const SEALS: Keyspace = Keyspace::new("seals");

/// A runtime with simulated time on which whoever yields is next after a single step of
/// another task.
pub(crate) fn in_steps() -> Runtime {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_time().start_paused(true).event_interval(1);
    runtime.build().unwrap()
}

/// What happens to a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    None,
    /// It is refused at once.
    Refused,
    /// The code of the transport panics.
    Panics,
    /// It fails later.
    FailsLater,
    /// It is there, and nobody speaks.
    Silent,
}

/// A local transport in front of which something may go wrong.
pub(crate) struct Way {
    inner: LocalTransport,
    trouble: Mutex<BTreeMap<PeerId, Trouble>>,
    // Keeps the far ends of silent channels open.
    silent: Mutex<Vec<Channel>>,
    pub(crate) connects: AtomicU64,
}

impl Way {
    pub(crate) fn set(&self, peer: &PeerId, trouble: Trouble) {
        self.trouble.lock().insert(peer.clone(), trouble);
    }
}

#[async_trait]
impl Transport for Way {
    async fn connect(&self, peer: &PeerId, stream: StreamId) -> Result<Channel, TransportError> {
        self.connects.fetch_add(1, Ordering::Relaxed);
        let trouble = self.trouble.lock().get(peer).copied();
        let broken = || TransportError::Broken("injected".into());
        match trouble.unwrap_or(Trouble::None) {
            Trouble::None => self.inner.connect(peer, stream).await,
            Trouble::Refused => Err(broken()),
            Trouble::Panics => panic!("the transport panics: injected"),
            Trouble::FailsLater => {
                tokio::time::sleep(Duration::from_secs(3)).await;
                Err(broken())
            }
            Trouble::Silent => {
                let (ours, theirs) = kv_restore::transport::pair();
                self.silent.lock().push(theirs);
                Ok(ours)
            }
        }
    }
}

pub(crate) struct World {
    pub(crate) source: MemStore,
    pub(crate) target: FaultStore<MemStore>,
    pub(crate) faults: Faults,
    pub(crate) way: Arc<Way>,
    pub(crate) dumper: Dumper,
    /// The dumper's room.
    pub(crate) dumping: Admission,
    pub(crate) restorer: Restorer,
    pub(crate) admission: Admission,
    pub(crate) limiter: Limiter,
    offers: Mutex<Vec<Offer>>,
    // Handles of sessions that have ended: who holds one must not get it again.
    ended: Mutex<Vec<Session>>,
}

/// How many sessions a dumper reads for at once.
pub(crate) const DUMPS_MAX: usize = 4;

pub(crate) fn leader() -> PeerId {
    PeerId::new("leader")
}

pub(crate) fn other() -> PeerId {
    PeerId::new("other")
}

impl World {
    pub(crate) fn new() -> Self {
        let options = Options::default().with_chunk_bytes(1_000);
        Self::with(options.with_checkpoint_bytes(2_000), |it| it)
    }

    pub(crate) fn with(
        session: Options,
        set: impl FnOnce(RestorerOptions) -> RestorerOptions,
    ) -> Self {
        Self::in_room(session, Admission::new(2), set)
    }

    /// With room that it shares with other ones.
    pub(crate) fn in_room(
        session: Options,
        admission: Admission,
        set: impl FnOnce(RestorerOptions) -> RestorerOptions,
    ) -> Self {
        let source = MemStore::new(&[A, B]);
        let faults = Faults::none();
        let target = MemStore::new(&[A, B, SEALS]);
        let target = FaultStore::crashable(target, faults.clone());
        let limiter = Limiter::none();
        let dumping = Admission::new(DUMPS_MAX);
        let dumper = Dumper::new(session.clone(), dumping.clone(), limiter.clone());
        let inner = LocalTransport::new(PeerId::new("follower"));
        inner.add(leader(), dumper.clone());
        inner.add(other(), dumper.clone());
        let way = Arc::new(Way {
            inner,
            trouble: Mutex::default(),
            silent: Mutex::default(),
            connects: AtomicU64::new(0),
        });
        let numbers = AtomicU64::new(1);
        let chance = Arc::new(move || numbers.fetch_add(1, Ordering::Relaxed));
        let options = RestorerOptions::new(admission.clone(), chance).with_session(session);
        let restorer = Restorer::new(
            Target::new(Arc::new(target.clone())).with_seals(SEALS),
            Arc::clone(&way) as Arc<dyn Transport>,
            set(options),
            tokio::runtime::Handle::current(),
        );
        Self {
            source,
            target,
            faults,
            way,
            dumper,
            dumping,
            restorer,
            admission,
            limiter,
            offers: Mutex::default(),
            ended: Mutex::default(),
        }
    }

    /// Old rows in the target, and a snapshot of other rows on offer.
    pub(crate) async fn filled() -> Self {
        let world = Self::new();
        world.fill(100).await;
        world
    }

    pub(crate) async fn fill(&self, rows: u32) {
        write(&self.target, 17, 1).await;
        write(&self.source, rows, 2).await;
        self.offer(1).await;
    }

    /// Offers what the source holds now.
    pub(crate) async fn offer(&self, id: u128) {
        let snapshot = self.source.snapshot().await.unwrap();
        let offer = self.dumper.offer(at(id, 0, 0), &self.source, snapshot);
        self.offers.lock().push(offer.unwrap());
    }

    pub(crate) fn offers(&self) -> Vec<Offer> {
        std::mem::take(&mut self.offers.lock())
    }

    pub(crate) fn restore(&self, at: SnapshotRef) -> Result<Session, RestoreError> {
        self.restorer.restore(at, &[leader()])
    }

    /// Asks for snapshot 1 of epoch 1 and waits for the end.
    pub(crate) async fn restored(&self) -> Outcome {
        let session = self.restore(at(1, 1, 10)).unwrap();
        self.ended.lock().push(session.clone());
        session.outcome().await
    }

    /// Asks for snapshot 1 to be installed in the store that a crash left.
    pub(crate) async fn restored_in(&self, store: MemStore) -> Outcome {
        self.asked_in(store, at(1, 1, 10)).await
    }

    /// Asks a restorer that knows nothing of what was before.
    pub(crate) async fn asked_in(&self, store: MemStore, request: SnapshotRef) -> Outcome {
        let restorer = Restorer::new(
            Target::new(Arc::new(store)).with_seals(SEALS),
            Arc::clone(&self.way) as Arc<dyn Transport>,
            RestorerOptions::new(Admission::new(1), Arc::new(|| 7)),
            tokio::runtime::Handle::current(),
        );
        let session = restorer.restore(request, &[leader()]).unwrap();
        session.outcome().await
    }

    pub(crate) async fn target_rows(&self) -> Digest {
        rows_of(self.target.inner()).await
    }

    pub(crate) async fn source_rows(&self) -> Digest {
        rows_of(&self.source).await
    }

    /// The target holds exactly what the source does.
    pub(crate) async fn same(&self) -> bool {
        self.source_rows().await == self.target_rows().await
    }

    pub(crate) fn begins(&self) -> u64 {
        self.faults.call_count(Call::BeginReplace)
    }

    /// Nothing of any session is left: no slot, no permit, no staging.
    pub(crate) async fn is_quiet(&self) {
        tokio::time::sleep(Duration::from_secs(120)).await;
        assert_eq!(self.restorer.live(), None);
        assert_eq!(self.admission.free(), 2);
        assert_eq!(self.dumper.running(), 0);
        drop(self.target.inner().begin_replace(&[A]).await.unwrap());
    }

    /// A retry makes a session of its own, and succeeds.
    pub(crate) async fn heals(&self, after: &RestoreError) {
        let begins = self.begins();
        let session = self.restore(at(1, 1, 10)).unwrap();
        assert_ne!(Some(session.id()), after.session());
        let installed = session.outcome().await.unwrap();
        assert!(!installed.already);
        assert_eq!(self.begins(), begins + 1);
        assert!(self.same().await);
        self.is_quiet().await;
    }
}

pub(crate) fn at(id: u128, epoch: u64, applied: u64) -> SnapshotRef {
    SnapshotRef::new("space", SnapshotId(id), &["a", "b"]).at(Epoch(epoch), applied)
}

pub(crate) async fn write(store: &dyn Store, rows: u32, salt: u8) {
    for row in 0..rows {
        let mut batch = WriteBatch::new();
        for keyspace in [A, B] {
            let value = vec![salt; usize::try_from(row % 97).unwrap()];
            let key = Bytes::copy_from_slice(&row.to_be_bytes());
            batch.put(keyspace, key, value.into());
        }
        store.write(batch, Durability::Synced).await.unwrap();
    }
}

pub(crate) async fn rows_of(store: &dyn Store) -> Digest {
    let snapshot = store.snapshot().await.unwrap();
    digest(snapshot.as_ref(), &[A, B]).await.unwrap()
}

pub(crate) async fn count(store: &dyn Store, keyspace: Keyspace) -> usize {
    let scan = Scan::all().with_entries_max(usize::MAX);
    store.scan(keyspace, scan).await.unwrap().len()
}

/// Waits until so many calls of the target hang.
pub(crate) async fn until_hung(world: &World, call: Call, effect: Effect) -> Session {
    world.faults.arm(call, 1, Fault::Hang(effect));
    let session = world.restore(at(1, 1, 10)).unwrap();
    world.faults.until_hung(1).await;
    session
}

#[track_caller]
pub(crate) fn failed(outcome: Outcome, kind: ErrorKind) -> RestoreError {
    let error = outcome.expect_err("it should have failed");
    assert_eq!(error.kind(), kind, "{error}");
    error
}
