//! A data port without a socket, and the peers that come to it.

use std::{
    net::SocketAddr,
    sync::{Arc, atomic::AtomicU64, atomic::Ordering},
    time::Duration,
};

use async_trait::async_trait;
use futures::future::join_all;
use kv_restore::{
    PeerId, SnapshotRef, StreamId, Target,
    transport::{Channel, Transport, TransportError, framed},
};
use parking_lot::Mutex;
use pop_model::{GroupName, Namespace, TopicName};
use pop_store::{MemStore, Store};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use super::super::{
    Access, DataOptions, DataService,
    door::Door,
    hello::{self, Ask, Hello, Reply, Say},
};
use crate::{
    Broker, BrokerOptions, NewMessage, OpenStore, ReceiveRequest,
    heard::Heard,
    space::{KEYSPACES, SEALS},
    transfer::{self, CopyOptions, copy},
};

/// What a pipe holds that nobody reads: a small window.
const PIPE_BYTES: usize = 4 << 10;
/// A hundred peers come in this many waves.
const WAVES: usize = 2;

/// Opens what is there, under a new handle each time.
#[derive(Debug)]
struct Opener(Mutex<MemStore>);

#[async_trait]
impl OpenStore for Opener {
    async fn open(&self) -> pop_store::Result<Arc<dyn Store>> {
        let mut store = self.0.lock();
        *store = store.crash(usize::MAX);
        Ok(Arc::new(store.clone()))
    }
}

pub(super) struct Rig {
    pub(super) service: DataService,
    pub(super) heard: Heard,
    broker: Broker,
    door: Arc<Door>,
}

impl Rig {
    pub(super) async fn new() -> Self {
        Self::with(Access::default(), DataOptions::default(), None).await
    }

    pub(super) async fn with(
        access: Access,
        options: DataOptions,
        tls: Option<TlsAcceptor>,
    ) -> Self {
        let heard = Heard::listen();
        let seed = AtomicU64::new(1);
        let mut broker = BrokerOptions::new(Arc::new(move |secret: &mut [u8]| {
            let seed = seed.fetch_add(1, Ordering::Relaxed).to_be_bytes();
            secret
                .iter_mut()
                .zip(seed.into_iter().cycle())
                .for_each(|(to, from)| *to = from);
        }));
        broker.catalog.queues = 1;
        let store = Opener(Mutex::new(MemStore::new(&KEYSPACES)));
        let broker = Broker::open(Arc::new(store), broker).await.unwrap();
        let service = DataService::new(broker.clone(), access, options);
        let stop = CancellationToken::new();
        let door = Arc::new(Door {
            service: service.clone(),
            tls,
            stop,
        });
        Self {
            service,
            heard,
            broker,
            door,
        }
    }

    /// Sends so many messages of 100 KiB.
    pub(super) async fn fill(&self, messages: usize) {
        for _ in 0..messages {
            self.send(100 << 10).await;
        }
    }

    async fn send(&self, bytes: usize) {
        let topic = TopicName::user(&Namespace::default(), "orders").unwrap();
        let message = NewMessage::new("id", vec![7; bytes].into());
        let sent = self.broker.send(&topic, vec![message]).await.unwrap();
        sent.into_iter().for_each(|it| drop(it.unwrap()));
    }

    /// Connects, as a peer whose address ends with this number.
    pub(super) fn dial(&self, number: u8) -> DuplexStream {
        self.try_dial(number).expect("there is room")
    }

    pub(super) fn try_dial(&self, number: u8) -> Option<DuplexStream> {
        dial(&self.door, number)
    }

    /// Has a hundred such peers come, fifty at a time.
    pub(super) async fn hundred(&self, peer: impl AsyncFn(DuplexStream)) {
        for _ in 0..WAVES {
            let peers = (0..50).map(|number| peer(self.dial(number)));
            join_all(peers).await;
            self.rest().await;
        }
    }

    /// Waits until everybody is gone, and looks at what is left: nothing.
    pub(super) async fn rest(&self) {
        for _ in 0..400 {
            let stats = self.service.stats();
            if (stats.open, stats.running, stats.pins) == (0, 0, 0) {
                return;
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        panic!("something is left: {:?}", self.service.stats());
    }

    /// How many were turned away for this.
    pub(super) fn turned(&self, why: &str) -> u64 {
        let stats = self.service.stats();
        stats.turned_away.get(why).copied().unwrap_or_default()
    }

    /// Whoever was turned away for this is named in the log, and does not fill it.
    #[track_caller]
    pub(super) fn is_said(&self, why: &str) {
        let why = format!("why=\"{why}\"");
        let said = self
            .heard
            .lines(&["turned a peer away", "peer=10.0.0.", &why]);
        assert!((1..=20).contains(&said.len()), "{why}: {said:?}");
    }

    /// Whether the port and the broker do what they are there for.
    pub(super) async fn serves(&self) {
        self.send(10).await;
        self.copies().await;
        let topic = TopicName::user(&Namespace::default(), "orders").unwrap();
        let group = GroupName::user(&Namespace::default(), "billing").unwrap();
        let request = ReceiveRequest::new(group, topic, Duration::from_secs(30));
        assert!(!self.broker.receive(request).await.unwrap().is_empty());
        self.rest().await;
    }

    /// The same, while others are still there.
    pub(super) async fn serves_beside(&self) {
        self.send(10).await;
        self.copies().await;
    }

    /// Makes a copy of everything, as a peer that keeps the rules.
    async fn copies(&self) {
        self.copy_while(async {}).await;
    }

    /// The same; something happens between its snapshot and its rows.
    pub(super) async fn copy_while(&self, something: impl Future<Output = ()>) -> Arc<dyn Store> {
        let mut wire = self.dial(200);
        say(&mut wire, Ask::Snapshot { wanted: None }, None).await;
        let at = snapshot(&mut wire).await;
        something.await;
        let door: Arc<dyn Transport> = Arc::new(Through(Arc::clone(&self.door)));
        let source = transfer::Source::remote(at, PeerId::new("source"), door, Box::new(()));
        let store: Arc<dyn Store> = Arc::new(MemStore::new(&KEYSPACES));
        let target = Target::new(Arc::clone(&store)).with_seals(SEALS);
        let options = CopyOptions::new(Arc::new(|| 7));
        copy(&source, target, &options, |_| {}).await.unwrap();
        hello::write(&mut wire, &Say::Done).await.unwrap();
        store
    }
}

fn dial(door: &Door, number: u8) -> Option<DuplexStream> {
    let (ours, theirs) = duplex(PIPE_BYTES);
    let peer = SocketAddr::from(([10, 0, 0, number], 4_000));
    door.admit(theirs, peer).map(|_| ours)
}

/// Sessions over pipes.
struct Through(Arc<Door>);

#[async_trait]
impl Transport for Through {
    async fn connect(&self, _: &PeerId, _: StreamId) -> Result<Channel, TransportError> {
        let mut wire = dial(&self.0, 201).expect("there is room");
        say(&mut wire, Ask::Fetch, None).await;
        assert_eq!(hear(&mut wire).await, Reply::Ready);
        let (read, write) = tokio::io::split(wire);
        Ok(framed(read, write))
    }
}

/// Says hello.
pub(super) async fn say(wire: &mut (impl AsyncWriteExt + Unpin), ask: Ask, token: Option<&str>) {
    let token = token.map(str::to_owned);
    wire.write_all(&hello::opening_bytes()).await.unwrap();
    hello::write(wire, &Hello { token, ask }).await.unwrap();
}

pub(super) async fn hear(wire: &mut (impl AsyncReadExt + Unpin)) -> Reply {
    hello::read(wire, 256 << 10).await.unwrap()
}

pub(super) async fn snapshot(wire: &mut DuplexStream) -> SnapshotRef {
    match hear(wire).await {
        Reply::Snapshot(reference) => reference.read().unwrap(),
        other => panic!("it should have been a snapshot: {other:?}"),
    }
}

/// Waits until the port has nothing more to say.
pub(super) async fn closed(wire: &mut (impl AsyncReadExt + Unpin)) {
    let mut rest = Vec::new();
    // A break is an end, too.
    drop(wire.read_to_end(&mut rest).await);
    assert!(rest.is_empty(), "{}", String::from_utf8_lossy(&rest));
}
