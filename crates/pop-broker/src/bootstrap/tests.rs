//! What a bootstrap may write over, and what not: nothing may be lost that nobody gave up.

use std::{
    net::Ipv4Addr,
    sync::atomic::{AtomicU64, Ordering},
};

use async_trait::async_trait;
use kv_restore::Limiter;
use parking_lot::Mutex;
use pop_model::{Namespace, TopicName};
use pop_store::MemStore;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::{
    Broker, BrokerOptions, NewMessage,
    data::{Access, Credentials, DataOptions, DataPort, DataService},
    owner::{
        Filling,
        tests::{seal, store_with},
    },
    space::KEYSPACES,
    transfer::place::totals,
};

/// Opens what is there, under a new handle each time.
#[derive(Debug)]
struct Folder(Mutex<MemStore>);

impl Folder {
    fn new() -> Self {
        Self(Mutex::new(MemStore::new(&KEYSPACES)))
    }

    async fn totals(&self) -> Digest {
        let store = self.open().await.unwrap();
        totals(store.as_ref(), &Limiter::none(), |_| {})
            .await
            .unwrap()
    }

    async fn standing(&self) -> Standing {
        owner::standing(&self.open().await.unwrap()).await.unwrap()
    }
}

#[async_trait]
impl OpenStore for Folder {
    async fn open(&self) -> pop_store::Result<Arc<dyn Store>> {
        let mut store = self.0.lock();
        *store = store.crash(usize::MAX);
        Ok(Arc::new(store.clone()))
    }
}

fn entropy() -> Entropy {
    static DRAWN: AtomicU64 = AtomicU64::new(1);
    Arc::new(|bytes: &mut [u8]| {
        let drawn = DRAWN.fetch_add(1, Ordering::Relaxed).to_be_bytes();
        for (to, from) in bytes.iter_mut().zip(drawn.into_iter().cycle()) {
            *to = from;
        }
    })
}

/// A broker with a message, and its data port.
async fn source(folder: Folder) -> (Broker, Arc<Source>) {
    let mut options = BrokerOptions::new(entropy());
    options.catalog.queues = 1;
    let broker = Broker::open(Arc::new(folder), options).await.unwrap();
    let topic = TopicName::user(&Namespace::default(), "orders").unwrap();
    let message = NewMessage::new("id", "coffee".into());
    let sent = broker.send(&topic, vec![message]).await.unwrap();
    sent.into_iter().for_each(|it| drop(it.unwrap()));
    let access = Access::default();
    let port = DataPort::bind((Ipv4Addr::LOCALHOST, 0).into(), &access).await;
    let port = port.unwrap();
    let url = format!("tcp://{}", port.local_addr()).parse().unwrap();
    let service = DataService::new(broker.clone(), access, DataOptions::default());
    tokio::spawn(port.serve(service, CancellationToken::new()));
    (broker, Source::new(url, &Credentials::default()).unwrap())
}

fn options(handover: bool, replace: bool) -> BootstrapOptions {
    BootstrapOptions {
        handover: handover.then(|| "here".to_owned()),
        replace,
        rate: ByteRate(None),
        entropy: entropy(),
    }
}

async fn fetch(
    source: &Arc<Source>,
    to: &Folder,
    handover: bool,
    replace: bool,
) -> Result<Bootstrapped, BootstrapError> {
    bootstrap(source, to, &options(handover, replace), |_| {}).await
}

/// A folder that waits for the receipt of snapshot 7.
async fn awaiting() -> Folder {
    let store = MemStore::new(&KEYSPACES);
    store_with(&store, &seal(7, 1, Some(Receipt([9; 16])))).await;
    Folder(Mutex::new(store))
}

// Mutants: a copy of anything is nobody's; the snapshot of the note is not looked at; what was
// there before is not noted.
#[tokio::test]
async fn a_copy_that_came_from_elsewhere_is_not_written_over() {
    let (_first, first) = source(Folder::new()).await;
    let (_second, second) = source(Folder::new()).await;
    let to = Folder::new();
    fetch(&first, &to, false, false).await.unwrap();
    // Never served, it comes again from where it was.
    fetch(&first, &to, false, false).await.unwrap();
    // Also after one that was killed before its rows had come.
    let store = to.open().await.unwrap();
    for killed in [11, 12] {
        let rows = owner::Rows::read(&store).await.unwrap();
        let filling = rows.filling(SnapshotId(killed), first.url().to_string());
        owner::note_filling(store.as_ref(), &filling).await.unwrap();
    }
    fetch(&first, &to, false, false).await.unwrap();
    let before = to.totals().await;
    for handover in [false, true] {
        let refused = fetch(&second, &to, handover, false).await.unwrap_err();
        assert!(matches!(refused, BootstrapError::NotEmpty), "{refused}");
    }
    assert_eq!(to.totals().await, before);
    fetch(&second, &to, false, true).await.unwrap();
    // Something else came in between, as by `restore`; its rows are those of before.
    let store = to.open().await.unwrap();
    let other = Filling {
        snapshot: SnapshotId(3),
        before: None,
        from: second.url().to_string(),
    };
    owner::note_filling(store.as_ref(), &other).await.unwrap();
    let refused = fetch(&second, &to, false, false).await.unwrap_err();
    assert!(matches!(refused, BootstrapError::NotEmpty), "{refused}");
}

// Mutants: whoever refuses is taken to serve on; a copy is made over what waits.
#[tokio::test]
async fn what_waits_for_its_receipt_is_kept_from_a_source_that_does_not_know_of_it() {
    let (broker, other) = source(Folder::new()).await;
    let to = awaiting().await;
    let refused = fetch(&other, &to, true, false).await.unwrap_err();
    let text = refused.to_string();
    assert!(matches!(refused, BootstrapError::NotTakenBack { snapshot, .. } if snapshot.0 == 7));
    assert!(text.contains("does not know of that handover"), "{text}");
    let refused = fetch(&other, &to, false, false).await.unwrap_err();
    assert!(matches!(refused, BootstrapError::Awaiting { snapshot } if snapshot.0 == 7));
    assert!(matches!(to.standing().await, Standing::Awaiting { seal, .. } if seal.snapshot.0 == 7));
    // It was asked, and goes on.
    broker.core().unwrap();
    // An operator gives it up.
    fetch(&other, &to, true, true).await.unwrap();
    assert!(matches!(to.standing().await, Standing::Own(_)));
}

// Mutants: the source forgets which handover it began; it knows the last one only.
#[tokio::test]
async fn what_waits_for_its_receipt_comes_again_from_a_source_that_took_it_back() {
    let folder = Folder::new();
    let store = folder.open().await.unwrap();
    // As by a handover that its source was killed in, and one after it whose rows did not come.
    for begun in [7, 8] {
        let noted = owner::note_begun(store.as_ref(), SnapshotId(begun)).await;
        noted.unwrap();
    }
    let (_broker, source) = source(folder).await;
    let to = awaiting().await;
    fetch(&source, &to, true, false).await.unwrap();
    assert!(matches!(to.standing().await, Standing::Own(_)));
}

// Mutant: it is noted after the peer was told of its snapshot, or not at all.
#[tokio::test]
async fn a_handover_is_remembered_before_anybody_is_told_of_it() {
    let (broker, source) = source(Folder::new()).await;
    let held = source.handover("there").await.unwrap();
    let at = held.at.clone();
    let busy = source.receipt(&at).await.unwrap_err();
    assert!(matches!(busy, SourceError::Refused { busy: true, .. }));
    drop(held);
    let mut health = broker.health();
    let serves = health.wait_for(|it| matches!(it, crate::Health::Serving));
    serves.await.unwrap();
    let taken_back = source.receipt(&at).await.unwrap_err();
    assert!(
        matches!(taken_back, SourceError::TakenBack(_)),
        "{taken_back}"
    );
}
