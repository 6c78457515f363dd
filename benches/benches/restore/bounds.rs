//! What a restore promises beside its speed: what others notice of it, how much memory it
//! takes, how far away a source may be, what a broken line costs, and how soon a failure is
//! known.

use std::{
    fs,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use bytes::Bytes;
use kv_restore::{Limiter, Options, Phase, Session};
use pop_benches::{now, open_with, peak_memory_bytes, resident_bytes, start_peak_memory};
use pop_store::{Durability, Store, WriteBatch};
use tokio::{runtime::Runtime, time::Instant};

use super::{
    line::{Line, Loopback},
    row,
    rows::{self, KEYSPACES, OTHERS},
    source::{Source, listen},
    start,
};

const MIB: u64 = 1 << 20;
// Those of the broker's data port.
const LIMIT: u64 = 64 << 20;
const CHUNK_BYTES: u32 = 128 << 10;
const LIMITED_FOR: Duration = Duration::from_secs(10);

/// Measures all of it on one backend, whose rows are in `from`.
pub(super) fn measure(runtime: &Runtime, backend: &str, base: &Path, from: &Path) {
    let window = Options::default().window_bytes;
    let source = Source::at_rest(backend, from, window);
    // In this order: memory first, while the process has none that is free.
    into(runtime, backend, base, async |target| {
        alone(backend, &source, target).await;
    });
    into(runtime, backend, base, async |target| {
        beside_others(backend, &source, target).await;
    });
    into(runtime, backend, base, async |target| {
        limited(backend, &source, target).await;
    });
    into(runtime, backend, base, async |target| {
        broken(backend, &source, target).await;
    });
    into(runtime, backend, base, async |target| {
        refused(backend, target).await;
    });
    let near = into(runtime, backend, base, async |target| {
        far(backend, &source, target, Duration::from_millis(1), window).await
    });
    drop(source);
    let round_trip = Duration::from_millis(80);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a size"
    )]
    let window = (near * round_trip.as_secs_f64()) as u64;
    let source = Source::at_rest(backend, from, window);
    into(runtime, backend, base, async |target| {
        far(backend, &source, target, round_trip, window).await
    });
}

/// Works on a new store.
fn into<T>(
    runtime: &Runtime,
    backend: &str,
    base: &Path,
    work: impl AsyncFnOnce(Arc<dyn Store>) -> T,
) -> T {
    let folder = base.join("bounds");
    let target = open_with(backend, &folder, &KEYSPACES);
    let done = runtime.block_on(async {
        let done = work(Arc::clone(&target)).await;
        target.close().await.expect("it closes");
        done
    });
    drop(target);
    fs::remove_dir_all(&folder).expect("it is there");
    done
}

/// The moments of a session, from its request.
#[derive(Default)]
struct Moments {
    first_rows: Duration,
    switch: Duration,
    end: Duration,
}

async fn follow(session: &Session, begun: Instant) -> Moments {
    let mut moments = Moments::default();
    let mut progress = session.progress();
    loop {
        let seen = *progress.borrow_and_update();
        if seen.rows > 0 && moments.first_rows.is_zero() {
            moments.first_rows = begun.elapsed();
        }
        if seen.phase == Phase::Committing && moments.switch.is_zero() {
            moments.switch = begun.elapsed();
        }
        if progress.changed().await.is_err() || seen.phase == Phase::Ended {
            break;
        }
    }
    let installed = session.outcome().await.expect("it is installed");
    assert_eq!(installed.seal.totals.rows(), rows::count());
    moments.end = begun.elapsed();
    moments
}

async fn alone(backend: &str, source: &Source, target: Arc<dyn Store>) {
    let before = resident_bytes();
    start_peak_memory();
    let begun = Instant::now();
    let transport = Arc::new(Loopback(source.ours));
    let (restorer, session) = start(target, transport, Options::default(), Limiter::none());
    let moments = follow(&session, begun).await;
    drop(restorer);
    let window = Options::default().window_bytes;
    row(
        backend,
        "memory, whole process",
        format!(
            "{} MiB more at its peak (window {} MiB)",
            peak_memory_bytes().saturating_sub(before) / MIB,
            window / MIB
        ),
    );
    row(
        backend,
        "moments",
        format!(
            "first rows after {:?}; the switch takes {:?}",
            moments.first_rows,
            moments.end.saturating_sub(moments.switch)
        ),
    );
}

/// Puts of another keyspace, one every 2 ms, until told to stop.
struct Others {
    stop: tokio::sync::oneshot::Sender<()>,
    task: tokio::task::JoinHandle<Vec<Duration>>,
}

impl Others {
    fn start(store: Arc<dyn Store>) -> Self {
        let (stop, mut stopped) = tokio::sync::oneshot::channel();
        let task = tokio::spawn(async move {
            let mut took = Vec::new();
            while stopped.try_recv().is_err() {
                let mut batch = WriteBatch::new();
                let key = Bytes::copy_from_slice(&took.len().to_be_bytes());
                batch.put(OTHERS, key, Bytes::from_static(&[7; 100]));
                let begun = now();
                let written = store.write(batch, Durability::Buffered).await;
                written.expect("others go on");
                took.push(begun.elapsed());
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            took
        });
        Self { stop, task }
    }

    /// Their median and 99th percentile.
    async fn stop(self) -> String {
        let _ = self.stop.send(());
        let mut took = self.task.await.expect("others go on");
        took.sort_unstable();
        let at = |percent: usize| took.get(took.len() * percent / 100).copied();
        let (half, slow) = (at(50).unwrap_or_default(), at(99).unwrap_or_default());
        format!("p50 {half:?}, p99 {slow:?} ({} puts)", took.len())
    }
}

async fn beside_others(backend: &str, source: &Source, target: Arc<dyn Store>) {
    let others = Others::start(Arc::clone(&target));
    tokio::time::sleep(Duration::from_secs(3)).await;
    row(backend, "puts of others, calm", others.stop().await);
    let others = Others::start(Arc::clone(&target));
    let transport = Arc::new(Loopback(source.ours));
    let (restorer, session) = start(target, transport, Options::default(), Limiter::none());
    follow(&session, Instant::now()).await;
    row(backend, "puts of others, meanwhile", others.stop().await);
    drop(restorer);
}

#[expect(clippy::cast_precision_loss, reason = "a rate")]
async fn limited(backend: &str, source: &Source, target: Arc<dyn Store>) {
    let others = Others::start(Arc::clone(&target));
    let transport = Arc::new(Loopback(source.ours));
    let options = Options::default().with_chunk_bytes(CHUNK_BYTES);
    let (restorer, session) = start(target, transport, options, Limiter::new(LIMIT));
    let progress = session.progress();
    let mut first = progress.clone();
    let come = first.wait_for(|it| it.rows > 0).await;
    let before = come.expect("it goes on").bytes;
    let begun = Instant::now();
    let _ = tokio::time::timeout(LIMITED_FOR, session.outcome()).await;
    let bytes = progress.borrow().bytes - before;
    let rate = bytes as f64 / begun.elapsed().as_secs_f64() / 1e6;
    let puts = others.stop().await;
    let limit = LIMIT / 1_000_000;
    let note = format!("{rate:.1} MB/s; puts of others meanwhile: {puts}");
    row(backend, &format!("limited to {limit} MB/s"), note);
    session.cancel();
    let _ = session.outcome().await;
    drop(restorer);
}

#[expect(clippy::cast_precision_loss, reason = "a share")]
async fn broken(backend: &str, source: &Source, target: Arc<dyn Store>) {
    let carried = Arc::new(AtomicU64::new(0));
    let line = Line {
        to: source.ours,
        one_way: Duration::ZERO,
        breaks_after: rows::bytes() / 10 * 9,
        carried: Arc::clone(&carried),
    };
    let options = Options::default().with_reconnects(1);
    let (restorer, session) = start(target, Arc::new(line), options, Limiter::none());
    follow(&session, Instant::now()).await;
    let share = carried.load(Relaxed) as f64 / rows::bytes() as f64 * 100.0;
    let note = format!("{share:.1} % of the bytes of rows carried, frames included");
    row(backend, "a break at 90 %", note);
    drop(restorer);
}

/// From the request to the outcome, where nobody listens.
async fn refused(backend: &str, target: Arc<dyn Store>) {
    let nobody = listen().await.local_addr().expect("it was bound");
    let begun = Instant::now();
    let transport = Arc::new(Loopback(nobody));
    let (restorer, session) = start(target, transport, Options::default(), Limiter::none());
    session.outcome().await.expect_err("nobody listens");
    row(
        backend,
        "no source",
        format!("known after {:?}", begun.elapsed()),
    );
    drop(restorer);
}

/// Bytes a second over a long line.
#[expect(clippy::cast_precision_loss, reason = "a rate")]
async fn far(
    backend: &str,
    source: &Source,
    target: Arc<dyn Store>,
    round_trip: Duration,
    window: u64,
) -> f64 {
    let line = Line {
        to: source.ours,
        one_way: round_trip / 2,
        breaks_after: u64::MAX,
        carried: Arc::default(),
    };
    // Room for rows comes back a chunk at a time.
    let options = Options::default()
        .with_window_bytes(window)
        .with_chunk_bytes(256 << 10);
    let (restorer, session) = start(target, Arc::new(line), options, Limiter::none());
    let moments = follow(&session, Instant::now()).await;
    let rate = rows::bytes() as f64 / moments.end.as_secs_f64();
    row(
        backend,
        &format!("a source {round_trip:?} away"),
        format!(
            "{:.0} MB/s, window {:.1} MB, first rows after {:?}",
            rate / 1e6,
            window as f64 / 1e6,
            moments.first_rows
        ),
    );
    drop(restorer);
    rate
}
