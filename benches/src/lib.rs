//! Workloads that all benches share: the same for every backend, from a fixed seed.

pub mod ancestor;
pub mod leases;

use std::{
    cell::Cell,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use pop_model::{
    Checkpoint, DeliveryIdentity, Generation, GroupId, Incarnation, LeaseTime, Offset, QueueId,
    RetryKind, SubscriptionEpoch, SubscriptionQueue, TopicId,
};
use pop_store::{Keyspace, MemStore, Store, table::KEYSPACES};

/// The backends that this build has, by name.
#[must_use]
pub fn backends() -> Vec<&'static str> {
    let mut names = vec!["memory"];
    if cfg!(feature = "fjall") {
        names.push("fjall");
    }
    if cfg!(feature = "rocksdb") {
        names.push("rocksdb");
    }
    if cfg!(feature = "sled") {
        names.push("sled");
    }
    names
}

/// Opens a backend in `folder`, with the product's keyspaces.
///
/// # Panics
///
/// If it can't be opened, or is not in this build.
#[must_use]
pub fn open(backend: &str, folder: &Path) -> Arc<dyn Store> {
    open_with(backend, folder, &KEYSPACES)
}

/// Opens a backend in `folder`, with these keyspaces.
///
/// # Panics
///
/// If it can't be opened, or is not in this build.
#[must_use]
#[cfg_attr(
    not(any(feature = "fjall", feature = "rocksdb", feature = "sled")),
    expect(unused_variables, reason = "memory needs no folder")
)]
pub fn open_with(backend: &str, folder: &Path, keyspaces: &[Keyspace]) -> Arc<dyn Store> {
    #[cfg(any(feature = "fjall", feature = "rocksdb", feature = "sled"))]
    let options = pop_store::OpenOptions::new(keyspaces);
    match backend {
        "memory" => Arc::new(MemStore::new(keyspaces)),
        #[cfg(feature = "fjall")]
        "fjall" => Arc::new(opened(pop_store::FjallStore::open(folder, options))),
        #[cfg(feature = "rocksdb")]
        "rocksdb" => Arc::new(opened(pop_store::RocksStore::open(folder, options))),
        #[cfg(feature = "sled")]
        "sled" => Arc::new(opened(pop_store::SledStore::open(folder, options))),
        other => panic!("backend {other} is not in this build"),
    }
}

#[cfg(any(feature = "fjall", feature = "rocksdb", feature = "sled"))]
fn opened<S>(store: pop_store::Result<S>) -> S {
    store.expect("the benchmark's folder can be opened")
}

/// A lease of offset `number`, due `number` milliseconds after the start.
#[must_use]
pub fn checkpoint(number: u64) -> Checkpoint {
    let at = LeaseTime::from_millis(1_000_000 + number);
    Checkpoint {
        identity: DeliveryIdentity {
            queue: SubscriptionQueue {
                group: GroupId::new(1),
                topic: TopicId::new(2),
                queue: QueueId::new(0),
            },
            epoch: SubscriptionEpoch::new(0),
            offset: Offset::new(number),
            incarnation: Incarnation::new(0x5EED),
            generation: Generation::FIRST,
        },
        popped_at: at,
        invisible_for: Duration::from_secs(30),
        visible_at: at,
        delivery_attempt: 1,
        revive_failures: 0,
        attempt_id: None,
        suspend: false,
        auto_renew: false,
        retry_kind: RetryKind::Normal,
        message_group_hash: None,
        first_popped_at: at,
    }
}

/// A body of `bytes` bytes that does not compress to nothing.
#[must_use]
pub fn body(bytes: usize) -> Bytes {
    let mut state = 0x5EED_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_be_bytes()
    };
    let mut body = Vec::with_capacity(bytes + 8);
    while body.len() < bytes {
        body.extend(next());
    }
    body.truncate(bytes);
    body.into()
}

/// Now, for measuring.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
pub fn now() -> Instant {
    Instant::now()
}

/// CPU seconds that this process has used so far, to a hundredth.
///
/// # Panics
///
/// Where the system does not tell.
#[must_use]
pub fn cpu_seconds() -> f64 {
    cpu_seconds_of("self")
}

/// CPU seconds that a process has used so far, to a hundredth.
///
/// # Panics
///
/// Where the system does not tell.
#[must_use]
pub fn cpu_seconds_of(process: &str) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).expect("Linux tells");
    // After the name in parentheses: utime and stime are the 12th and 13th field.
    let (_, fields) = stat.rsplit_once(')').expect("it has a name");
    let ticks = fields.split_whitespace().skip(11).take(2);
    let ticks: u32 = ticks.filter_map(|field| field.parse::<u32>().ok()).sum();
    f64::from(ticks) / 100.0
}

/// CPU time of what criterion runs, which by itself tells the wall time alone.
#[derive(Debug)]
pub struct CpuMeter {
    begun: f64,
    elements: Cell<u64>,
}

impl CpuMeter {
    /// Begins, with all threads of this process.
    #[must_use]
    pub fn start() -> Self {
        Self {
            begun: cpu_seconds(),
            elements: Cell::new(0),
        }
    }

    /// Another round of `elements` was run, be it to warm up.
    pub fn count(&self, elements: u64) {
        self.elements.set(self.elements.get() + elements);
    }

    /// Says what each took.
    #[expect(clippy::print_stdout, reason = "a benchmark says what it measured")]
    pub fn tell(&self, name: &str) {
        // A name that was not asked for on the command line runs nothing.
        if let elements @ 1.. = self.elements.get() {
            let each = (cpu_seconds() - self.begun) * 1e6 / elements as f64;
            println!("{name:<50} cpu:    {each:.2} us each");
        }
    }
}

/// Bytes that this process has had written to storage so far.
///
/// # Panics
///
/// Where the system does not tell.
#[must_use]
pub fn written_bytes() -> u64 {
    let io = std::fs::read_to_string("/proc/self/io").expect("Linux tells");
    let line = io
        .lines()
        .find_map(|line| line.strip_prefix("write_bytes: "));
    let bytes = line.and_then(|bytes| bytes.parse().ok());
    bytes.expect("it tells the bytes written")
}

/// The most memory that this process has had since [`start_peak_memory`].
///
/// # Panics
///
/// Where the system does not tell.
#[must_use]
pub fn peak_memory_bytes() -> u64 {
    status_bytes("VmHWM:")
}

/// The memory that this process has.
///
/// # Panics
///
/// Where the system does not tell.
#[must_use]
pub fn resident_bytes() -> u64 {
    status_bytes("VmRSS:")
}

/// Forgets the peak so far.
///
/// # Panics
///
/// Where the system does not let it.
pub fn start_peak_memory() {
    std::fs::write("/proc/self/clear_refs", "5").expect("Linux forgets the peak");
}

fn status_bytes(name: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux tells");
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let kilobytes = line.and_then(|it| it.trim().strip_suffix(" kB"));
    let kilobytes: Option<u64> = kilobytes.and_then(|it| it.parse().ok());
    kilobytes.expect("it tells the kilobytes") * 1024
}
