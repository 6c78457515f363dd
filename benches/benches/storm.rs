//! A million leases: how fast they come back all at once, what that does to everybody else,
//! and how soon a broker that was killed with a million stored and a million open ones
//! hands out its first message.
//!
//! Whole processes, one a backend and phase. `POP_BENCH_LEASES` makes it smaller;
//! `MIMALLOC_PURGE_DELAY=-1` keeps the heap that it warms.

use std::{
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use pop_benches::{backends, cpu_seconds, now, open, written_bytes};
use pop_broker::{Broker, BrokerOptions, NewMessage, OpenStore, ReceiveRequest};
use pop_model::{
    GroupName, LeaseTime, ManualClock, Namespace, TopicName, WallTime, limits::RECEIVE_BATCH_MAX,
};
use pop_store::{Durability, Store};
use tokio::runtime::Runtime;

/// That of the broker.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const INVISIBLE_FOR: Duration = Duration::from_secs(60);
const START: LeaseTime = LeaseTime::from_millis(1_000_000_000);
/// Round trips of the foreground that its 99th percentile is taken of.
const ROUNDS: usize = 300;

#[derive(Debug)]
struct Folder(&'static str, PathBuf);

#[async_trait]
impl OpenStore for Folder {
    async fn open(&self) -> pop_store::Result<Arc<dyn Store>> {
        Ok(open(self.0, &self.1))
    }
}

struct World {
    broker: Broker,
    clock: ManualClock,
}

async fn world(backend: &'static str, folder: &Path, stay: Duration, at: LeaseTime) -> World {
    let clock = ManualClock::new(at, WallTime::from_unix_millis(0));
    // Another incarnation each time the clock is another one.
    let seed = at.as_millis().to_be_bytes();
    let entropy = move |bytes: &mut [u8]| {
        for (byte, seed) in bytes.iter_mut().zip(seed.iter().cycle()) {
            *byte = *seed;
        }
    };
    let mut options = BrokerOptions::new(Arc::new(entropy)).with_clock(Arc::new(clock.clone()));
    options.send_durability = Durability::Buffered;
    options.cache.stay = stay;
    options.cache.leases_max = 4_000_000;
    options.cache.in_flight_per_queue_max = 4_000_000;
    options.cache.idle_max = Duration::from_millis(5);
    options.reviver.idle_max = Duration::from_millis(5);
    let opener = Folder(backend, folder.to_owned());
    let broker = Broker::open(Arc::new(opener), options)
        .await
        .expect("the broker opens");
    World { broker, clock }
}

fn topic(name: &str) -> TopicName {
    TopicName::user(&Namespace::default(), name).expect("a good name")
}

fn group() -> GroupName {
    GroupName::user(&Namespace::default(), "bench").expect("a good name")
}

fn message(id: usize) -> NewMessage {
    NewMessage::new(format!("m{id}"), vec![7_u8; 16].into())
}

/// Sends `count` messages, 128 at a time, by eight senders.
async fn fill(broker: &Broker, name: &'static str, count: usize) {
    let senders = (0..8).map(|sender| {
        let broker = broker.clone();
        tokio::spawn(async move {
            for first in (sender * 128..count).step_by(8 * 128) {
                let messages = (first..(first + 128).min(count)).map(message).collect();
                broker.send(&topic(name), messages).await.expect("it sends");
            }
        })
    });
    for sender in senders.collect::<Vec<_>>() {
        sender.await.expect("it sends all");
    }
}

fn request(name: &str) -> ReceiveRequest {
    ReceiveRequest::new(group(), topic(name), INVISIBLE_FOR)
}

/// Receives until nothing is ready. Returns how many.
async fn take_all(broker: &Broker, name: &'static str) -> usize {
    let receivers = (0..4).map(|_| {
        let broker = broker.clone();
        tokio::spawn(async move {
            let mut taken = 0;
            loop {
                let deliveries = broker.receive(request(name)).await.expect("it answers");
                let count = deliveries.take().len();
                taken += count;
                if count < RECEIVE_BATCH_MAX {
                    return taken;
                }
            }
        })
    });
    let mut taken = 0;
    for receiver in receivers.collect::<Vec<_>>() {
        taken += receiver.await.expect("it receives");
    }
    taken
}

/// Sends, receives and acknowledges one message at a time. The 99th percentile.
async fn foreground(broker: &Broker) -> Duration {
    let mut took = Vec::with_capacity(ROUNDS);
    for round in 0..ROUNDS {
        let begun = now();
        let sent = broker.send(&topic("front"), vec![message(round)]).await;
        sent.expect("it sends");
        let received = broker.receive(request("front")).await.expect("it answers");
        for delivery in received.take() {
            let handle = delivery.handle.to_string();
            let acked = broker.ack(&group(), &topic("front"), &handle).await;
            acked.expect("it is out");
        }
        took.push(begun.elapsed());
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    took.sort_unstable();
    took.get(ROUNDS * 99 / 100).copied().unwrap_or_default()
}

/// Touches memory as a broker has that is not new, so that the storm does not pay for the
/// first touch of each page. It stays with the process if `MIMALLOC_PURGE_DELAY` is `-1`.
fn warm_heap(leases: usize) {
    let large: Vec<_> = (0..leases / 25).map(|_| vec![1_u8; 48 << 10]).collect();
    drop(std::hint::black_box(large));
    let small: Vec<_> = (0..leases * 4).map(|_| vec![1_u8; 100]).collect();
    drop(std::hint::black_box(small));
}

async fn storm(backend: &'static str, folder: &Path, leases: usize) {
    warm_heap(leases);
    let hour = Duration::from_secs(3_600);
    let World { broker, clock } = world(backend, folder, hour, START).await;
    fill(&broker, "back", leases).await;
    let (begun, cpu) = (now(), cpu_seconds());
    let taken = take_all(&broker, "back").await;
    row(
        backend,
        "receive a million, 32 at a time",
        format!(
            "{:.2} s, {:.2} us CPU each",
            begun.elapsed().as_secs_f64(),
            (cpu_seconds() - cpu) * 1e6 / taken as f64
        ),
    );
    assert_eq!(taken, leases, "all of them are out");
    foreground(&broker).await;
    let calm = foreground(&broker).await;

    let (begun, cpu, written) = (now(), cpu_seconds(), written_bytes());
    clock.advance(INVISIBLE_FOR);
    let front = tokio::spawn({
        let broker = broker.clone();
        async move { foreground(&broker).await }
    });
    let revived = |broker: &Broker| usize::try_from(broker.counts().revived).unwrap_or(0);
    while revived(&broker) < leases {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let took = begun.elapsed();
    let (cpu, written) = (cpu_seconds() - cpu, written_bytes() - written);
    let stormy = front.await.expect("the foreground goes on");
    row(
        backend,
        "revive all of them at once",
        format!(
            "{:.2} s, {cpu:.2} s CPU, {} bytes written each; foreground p99 {calm:?} before, {stormy:?} meanwhile",
            took.as_secs_f64(),
            written / leases as u64,
        ),
    );
    broker.shutdown().await.expect("it closes");
}

/// Leaves as many stored leases and as many open ones behind, and dies.
async fn leave(backend: &'static str, folder: &Path, leases: usize) {
    let stay = Duration::from_secs(10);
    let World { broker, clock } = world(backend, folder, stay, START).await;
    fill(&broker, "back", leases).await;
    assert_eq!(take_all(&broker, "back").await, leases, "all are out");
    clock.advance(stay);
    // Stored once nothing is in memory any more: the metrics say so.
    while broker.lease_count().expect("it serves") > 0 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    fill(&broker, "back", leases).await;
    assert_eq!(take_all(&broker, "back").await, leases, "all are out");
    std::process::abort();
}

async fn come_back(backend: &'static str, folder: &Path, leases: usize) {
    let begun = now();
    let at = START.saturating_add(Duration::from_secs(11));
    let World { broker, .. } = world(backend, folder, Duration::from_secs(10), at).await;
    let opened = begun.elapsed();
    let first = broker.receive(request("back")).await.expect("it answers");
    let took = begun.elapsed();
    assert_eq!(
        first.take().len(),
        RECEIVE_BATCH_MAX,
        "what was open is ready"
    );
    row(
        backend,
        "first receive after a kill",
        format!("{took:?}, {opened:?} of it to open ({leases} stored, {leases} open)"),
    );
    broker.shutdown().await.expect("it closes");
}

#[expect(clippy::print_stdout, reason = "a benchmark says what it measured")]
fn row(backend: &str, name: &str, value: String) {
    println!("storm/{backend:<8} {name:<36} {value}");
}

/// Runs one phase in a process of its own.
fn phase(backend: &str, folder: &Path, name: &str) {
    let program = std::env::current_exe().expect("it runs");
    let child = Command::new(program)
        .env("POP_BENCH_PHASE", name)
        .env("POP_BENCH_BACKEND", backend)
        .env("POP_BENCH_FOLDER", folder)
        .status()
        .expect("a phase starts");
    assert!(child.success() || name == "leave", "{name} on {backend}");
}

fn main() {
    let leases = std::env::var("POP_BENCH_LEASES").ok();
    let leases = leases.map_or(1_000_000, |text| text.parse().expect("a number of leases"));
    let Ok(name) = std::env::var("POP_BENCH_PHASE") else {
        for backend in backends() {
            let folder = tempfile::tempdir().expect("a temporary folder");
            phase(backend, &folder.path().join("storm"), "storm");
            if backend != "memory" {
                phase(backend, &folder.path().join("kill"), "leave");
                phase(backend, &folder.path().join("kill"), "come_back");
            }
        }
        return;
    };
    let asked = std::env::var("POP_BENCH_BACKEND").expect("the parent says");
    let backend = backends().into_iter().find(|known| *known == asked);
    let backend = backend.expect("a backend of this build");
    let folder = PathBuf::from(std::env::var("POP_BENCH_FOLDER").expect("the parent says"));
    let runtime = Runtime::new().expect("a runtime starts");
    runtime.block_on(async {
        match name.as_str() {
            "storm" => storm(backend, &folder, leases).await,
            "leave" => leave(backend, &folder, leases).await,
            _ => come_back(backend, &folder, leases).await,
        }
    });
}
