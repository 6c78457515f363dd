//! Between real stores: what has to outlive a process, and digests that don't depend on the
//! backend. `cargo xtask test` runs this once per backend.

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use async_trait::async_trait;
use bytes::Bytes;
use kv_restore::{
    Admission, Digest, Dumper, ErrorKind, Limiter, Offer, Options, Outcome, PeerId, Restorer,
    RestorerOptions, StreamId, Target,
    frame::{Body, Frame},
    transport::{Channel, FrameRx, LocalTransport, Transport, TransportError},
};
use parking_lot::Mutex;
use pop_store::{Durability, Keyspace, MemStore, Store, WriteBatch};
use tempfile::TempDir;

use crate::kit::{A, B, SEALS, at, failed, leader, rows_of};

pub(crate) const KEYSPACES: [Keyspace; 3] = [A, B, SEALS];
// Enough that each engine takes the way that it has for much.
const ROWS: u32 = 600;
const ROW_BYTES: usize = 16 << 10;

/// A way that counts the bytes of rows, and breaks when so many have passed.
struct Counted {
    inner: LocalTransport,
    passed: Arc<AtomicU64>,
    break_at: u64,
}

struct CountedRx {
    inner: Box<dyn FrameRx>,
    passed: Arc<AtomicU64>,
    break_at: u64,
}

#[async_trait]
impl Transport for Counted {
    async fn connect(&self, peer: &PeerId, stream: StreamId) -> Result<Channel, TransportError> {
        let Channel { tx, rx } = self.inner.connect(peer, stream).await?;
        let rx = Box::new(CountedRx {
            inner: rx,
            passed: Arc::clone(&self.passed),
            break_at: self.break_at,
        });
        Ok(Channel { tx, rx })
    }
}

#[async_trait]
impl FrameRx for CountedRx {
    async fn recv(&mut self) -> Result<Option<Frame>, TransportError> {
        let frame = self.inner.recv().await?;
        if let Some(Frame {
            body: Body::Chunk { rows, .. },
            ..
        }) = &frame
        {
            let bytes = u64::try_from(rows.len()).unwrap();
            if self.passed.fetch_add(bytes, Relaxed) + bytes > self.break_at {
                return Err(TransportError::Broken("cut".to_owned()));
            }
        }
        Ok(frame)
    }
}

pub(crate) struct Source {
    dumper: Dumper,
    _offer: Offer,
}

impl Source {
    pub(crate) async fn of(store: &dyn Store) -> Self {
        let dumper = Dumper::new(options(), Admission::new(2), Limiter::none());
        let snapshot = store.snapshot().await.unwrap();
        let offer = dumper.offer(at(1, 0, 0), store, snapshot).unwrap();
        Self {
            dumper,
            _offer: offer,
        }
    }

    /// Restores into `target` over a way that breaks after so many bytes; and how many passed.
    pub(crate) async fn restore(&self, target: &Arc<dyn Store>, break_at: u64) -> (Outcome, u64) {
        let inner = LocalTransport::new(PeerId::new("follower"));
        inner.add(leader(), self.dumper.clone());
        let passed = Arc::<AtomicU64>::default();
        let way = Counted {
            inner,
            passed: Arc::clone(&passed),
            break_at,
        };
        let restorer = Restorer::new(
            Target::new(Arc::clone(target)).with_seals(SEALS),
            Arc::new(way),
            RestorerOptions::new(Admission::new(1), Arc::new(|| 7)).with_session(options()),
            tokio::runtime::Handle::current(),
        );
        let session = restorer.restore(at(1, 1, 10), &[leader()]).unwrap();
        let outcome = session.outcome().await;
        restorer.close().await;
        (outcome, passed.load(Relaxed))
    }
}

fn options() -> Options {
    Options::default()
        .with_window_bytes(64 << 10)
        .with_chunk_bytes(32 << 10)
        .with_checkpoint_bytes(64 << 10)
}

fn noise(number: u32, length: usize) -> Bytes {
    let mut state = u64::from(number) + 1;
    let byte = |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005) + 1;
        state.to_be_bytes()[0]
    };
    (0..length).map(byte).collect()
}

async fn filled(salt: u32) -> MemStore {
    filled_with(ROWS, salt).await
}

pub(crate) async fn filled_with(rows: u32, salt: u32) -> MemStore {
    let store = MemStore::new(&KEYSPACES);
    for number in 0..rows {
        let mut batch = WriteBatch::new();
        let key = Bytes::copy_from_slice(&number.to_be_bytes());
        batch.put(A, key, noise(number + salt, ROW_BYTES));
        store.write(batch, Durability::Buffered).await.unwrap();
    }
    let mut batch = WriteBatch::new();
    for (key, value) in [("", ""), ("empty", ""), ("\u{1F980}", "\u{0}")] {
        batch.put(B, key.into(), value.into());
    }
    batch.put(B, "large".into(), noise(9, 400_000));
    store.write(batch, Durability::Synced).await.unwrap();
    store
}

pub(crate) async fn old_rows(store: &dyn Store) -> Digest {
    let mut batch = WriteBatch::new();
    batch.put(A, "old".into(), "1".into());
    batch.put(B, "old".into(), "2".into());
    store.write(batch, Durability::Synced).await.unwrap();
    rows_of(store).await
}

/// Out of memory into the backend and back: equal for each, so equal between any two.
async fn s77_is_equal(open: Opener) {
    let memory = filled(0).await;
    let expected = rows_of(&memory).await;
    let store = open();
    old_rows(&*store).await;
    let source = Source::of(&memory).await;
    let (outcome, _) = source.restore(&store, u64::MAX).await;
    assert_eq!(outcome.unwrap().seal.totals, expected);
    store.close().await.unwrap();
    let store = open();
    assert_eq!(rows_of(&*store).await, expected);

    let back: Arc<dyn Store> = Arc::new(MemStore::new(&KEYSPACES));
    let source = Source::of(&*store).await;
    let (outcome, _) = source.restore(&back, u64::MAX).await;
    assert_eq!(outcome.unwrap().seal.totals, expected);
    assert_eq!(rows_of(&*back).await, expected);
}

/// The session of another process goes on behind the last point; old rows until the switch.
async fn s71_goes_on(open: Opener) {
    let memory = filled(0).await;
    let expected = rows_of(&memory).await;
    let source = Source::of(&memory).await;
    let store = open();
    let old = old_rows(&*store).await;
    let whole = expected.bytes();
    let (outcome, _) = source.restore(&store, whole / 10 * 9).await;
    failed(outcome, ErrorKind::Transport);
    store.close().await.unwrap();

    let store = open();
    assert_eq!(rows_of(&*store).await, old);
    let (outcome, again) = source.restore(&store, u64::MAX).await;
    assert_eq!(outcome.unwrap().seal.totals, expected);
    assert!(again * 100 <= whole * 12, "{again} of {whole} bytes again");
    assert_eq!(rows_of(&*store).await, expected);
    let (outcome, again) = source.restore(&store, u64::MAX).await;
    assert!(outcome.unwrap().already);
    assert_eq!(again, 0);
}

/// To a source whose rows before the point are others, all is moved again.
async fn s72_begins_anew(open: Opener) {
    let source = Source::of(&filled(0).await).await;
    let store = open();
    old_rows(&*store).await;
    let (outcome, _) = source.restore(&store, 3 << 20).await;
    failed(outcome, ErrorKind::Transport);
    store.close().await.unwrap();

    let store = open();
    let other = filled(7).await;
    let expected = rows_of(&other).await;
    let source = Source::of(&other).await;
    let (outcome, passed) = source.restore(&store, u64::MAX).await;
    assert_eq!(outcome.unwrap().seal.totals, expected);
    assert!(passed >= expected.bytes());
    assert_eq!(rows_of(&*store).await, expected);
}

/// Opens the same store again and again.
type Opener = Box<dyn Fn() -> Arc<dyn Store>>;

macro_rules! on {
    ($backend:ident, $opener:expr) => {
        mod $backend {
            use super::*;

            fn opener() -> (TempDir, Opener) {
                let folder = tempfile::tempdir().unwrap();
                let opener: fn(PathBuf) -> Opener = $opener;
                let open = opener(folder.path().to_owned());
                (folder, open)
            }

            #[tokio::test]
            async fn s77_a_snapshot_has_the_same_digest_here_and_in_memory() {
                let (_folder, open) = opener();
                s77_is_equal(open).await;
            }

            // Mutants: forget the point; send all of it; count from zero.
            #[tokio::test]
            async fn s71_a_restore_that_was_cut_moves_the_rest_after_a_restart() {
                let (_folder, open) = opener();
                s71_goes_on(open).await;
            }

            // Mutant: go on behind it all the same.
            #[tokio::test]
            async fn s72_a_point_of_other_rows_is_thrown_away_and_all_is_moved() {
                let (_folder, open) = opener();
                s72_begins_anew(open).await;
            }
        }
    };
}

// What a power cut leaves is what a memory has that outlives its process.
on!(memory, |_| {
    let store = Mutex::new(MemStore::new(&KEYSPACES));
    Box::new(move || {
        let mut store = store.lock();
        *store = store.crash(usize::MAX);
        Arc::new(store.clone())
    })
});

#[cfg(any(feature = "fjall", feature = "rocksdb", feature = "sled"))]
fn kept() -> pop_store::OpenOptions {
    pop_store::OpenOptions::new(&KEYSPACES).with_staging_kept()
}

#[cfg(feature = "fjall")]
on!(fjall, |path| Box::new(move || Arc::new(
    pop_store::FjallStore::open(&path, kept()).unwrap()
)));

#[cfg(feature = "rocksdb")]
on!(rocksdb, |path| Box::new(move || Arc::new(
    pop_store::RocksStore::open(&path, kept()).unwrap()
)));

#[cfg(feature = "sled")]
on!(sled, |path| Box::new(move || Arc::new(
    pop_store::SledStore::open(&path, kept()).unwrap()
)));
