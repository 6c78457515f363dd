//! Workloads that all benches share: the same for every backend, from a fixed seed.

use std::{
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use pop_model::{
    Checkpoint, DeliveryIdentity, Generation, GroupId, Incarnation, LeaseTime, Offset, QueueId,
    RetryKind, SubscriptionEpoch, SubscriptionQueue, TopicId,
};
use pop_store::{MemStore, Store, table::KEYSPACES};

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
#[cfg_attr(
    not(any(feature = "fjall", feature = "rocksdb", feature = "sled")),
    expect(unused_variables, reason = "memory needs no folder")
)]
pub fn open(backend: &str, folder: &Path) -> Arc<dyn Store> {
    match backend {
        "memory" => Arc::new(MemStore::new(&KEYSPACES)),
        #[cfg(feature = "fjall")]
        "fjall" => Arc::new(opened(pop_store::FjallStore::open(folder, options()))),
        #[cfg(feature = "rocksdb")]
        "rocksdb" => Arc::new(opened(pop_store::RocksStore::open(folder, options()))),
        #[cfg(feature = "sled")]
        "sled" => Arc::new(opened(pop_store::SledStore::open(folder, options()))),
        other => panic!("backend {other} is not in this build"),
    }
}

#[cfg(any(feature = "fjall", feature = "rocksdb", feature = "sled"))]
fn options() -> pop_store::OpenOptions {
    pop_store::OpenOptions::new(&KEYSPACES)
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
