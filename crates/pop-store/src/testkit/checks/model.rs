//! Random operations on a backend and on the store in memory, with the same answers.

use std::sync::Arc;

use bytes::Bytes;

use super::{Kit, StoreFactory, bytes, entry, reopen};
use crate::{
    Durability, Entry, ErrorKind, Keyspace, MemStore, Result, Scan, Snapshot, SnapshotSupport,
    Store, WriteBatch,
    testkit::{KEYSPACES, Random},
};

/// Set to a number to run one seed only: the one that a failure named.
const SEED: &str = "POP_STORE_SEED";
const SEEDS: std::ops::Range<u64> = 0..4;
const OPERATIONS: usize = 300;

/// Whatever is asked, in whatever order, a backend answers like `MemStore`.
// Catches: what no other check thought of.
pub async fn random_operations_have_the_answers_of_the_store_in_memory<F: StoreFactory>(
    kit: &Kit<F>,
) {
    let seeds = match std::env::var(SEED) {
        Ok(seed) => {
            let seed = seed.parse().expect("a seed is a number");
            seed..seed + 1
        }
        Err(_) => SEEDS,
    };
    let mut store = kit.open().await;
    for seed in seeds {
        // Each seed begins on the content of the one before, so that both begin alike.
        let model = MemStore::new(&KEYSPACES);
        for keyspace in KEYSPACES {
            let mut batch = WriteBatch::new();
            batch.delete_range(keyspace, Bytes::new(), bytes([0xFF; 32]));
            super::commit(&store, batch).await;
        }
        store = run_seed(kit, store, model, seed).await;
    }
}

async fn run_seed<F: StoreFactory>(
    kit: &Kit<F>,
    mut store: F::Store,
    model: MemStore,
    seed: u64,
) -> F::Store {
    let mut random = Random::new(seed);
    let capabilities = store.capabilities();
    let mut snapshots: Option<[Arc<dyn Snapshot>; 2]> = None;
    for number in 0..OPERATIONS {
        let operation = Operation::draw(&mut random);
        let told = || format!("seed {seed}, operation {number}: {operation:?}; {SEED}={seed}");
        match &operation {
            Operation::Write(batch, durability) => {
                let answer = store.write(batch.clone(), *durability).await;
                let expected = model.write(batch.clone(), *durability).await;
                assert_eq!(kind(answer), kind(expected), "{}", told());
            }
            Operation::Get(keyspace, key) => {
                let answer = store.get(*keyspace, key).await;
                let expected = model.get(*keyspace, key).await;
                assert_eq!(kind(answer), kind(expected), "{}", told());
            }
            Operation::MultiGet(keyspace, keys) => {
                let answer = store.multi_get(*keyspace, keys).await;
                let expected = model.multi_get(*keyspace, keys).await;
                assert_eq!(kind(answer), kind(expected), "{}", told());
            }
            Operation::Scan(keyspace, scan) => {
                let answer = store.scan(*keyspace, scan.clone()).await;
                let expected = model.scan(*keyspace, scan.clone()).await;
                assert_eq!(kind(answer), kind(expected), "{}", told());
            }
            Operation::Snapshot if capabilities.snapshot != SnapshotSupport::None => {
                let taken = store.snapshot().await.expect("a snapshot is taken");
                let expected = model.snapshot().await.expect("a snapshot is taken");
                snapshots = Some([taken, expected]);
            }
            Operation::ScanSnapshot(keyspace, scan) => {
                if let Some([taken, expected]) = &snapshots {
                    let answer = taken.scan(*keyspace, scan.clone()).await;
                    let expected = expected.scan(*keyspace, scan.clone()).await;
                    assert_eq!(kind(answer), kind(expected), "{}", told());
                }
            }
            Operation::Replace(keyspaces, rows, publish) if capabilities.replace => {
                replace(&store, keyspaces, rows, *publish).await;
                replace(&model, keyspaces, rows, *publish).await;
            }
            Operation::Reopen if capabilities.durable => {
                snapshots = None;
                store = reopen(kit, store).await;
            }
            // What the backend states that it can't do.
            Operation::Snapshot | Operation::Replace(..) | Operation::Reopen => {}
        }
    }
    store
}

/// What can be compared of an answer: which of several failed preconditions is named,
/// and the words, are the backend's.
fn kind<T>(answer: Result<T>) -> Result<T, ErrorKind> {
    answer.map_err(|error| error.kind())
}

async fn replace<S: Store>(store: &S, keyspaces: &[Keyspace], rows: &[Entry], publish: bool) {
    let mut staging = super::replace::begin(store, keyspaces).await;
    for keyspace in keyspaces {
        super::replace::load(&mut staging, *keyspace, rows.to_vec()).await;
    }
    if publish {
        super::replace::publish(staging).await;
    } else {
        staging.abort().await.expect("the staging is thrown away");
    }
}

#[derive(Debug)]
enum Operation {
    Write(WriteBatch, Durability),
    Get(Keyspace, Bytes),
    MultiGet(Keyspace, Vec<Bytes>),
    Scan(Keyspace, Scan),
    Snapshot,
    ScanSnapshot(Keyspace, Scan),
    Replace(Vec<Keyspace>, Vec<Entry>, bool),
    Reopen,
}

impl Operation {
    fn draw(random: &mut Random) -> Self {
        match random.below(100) {
            0..45 => {
                let durability = if random.chance(1, 10) {
                    Durability::Synced
                } else {
                    Durability::Buffered
                };
                Self::Write(batch(random), durability)
            }
            45..55 => Self::Get(keyspace(random), key(random)),
            55..60 => {
                let keys = (0..random.below(5)).map(|_| key(random)).collect();
                Self::MultiGet(keyspace(random), keys)
            }
            60..80 => Self::Scan(keyspace(random), range(random)),
            80..84 => Self::Snapshot,
            84..94 => Self::ScanSnapshot(keyspace(random), range(random)),
            94..97 => {
                let first = random.index(KEYSPACES.len());
                let rows = (0..random.below(6)).map(|_| entry(key(random), value(random)));
                let rows = rows.collect();
                Self::Replace(KEYSPACES[first..].to_vec(), rows, random.chance(2, 3))
            }
            _ => Self::Reopen,
        }
    }
}

fn batch(random: &mut Random) -> WriteBatch {
    let mut batch = WriteBatch::new();
    if random.chance(1, 3) {
        // With few keys and fewer values, about half of these hold.
        if random.chance(1, 2) {
            batch.require_absent(keyspace(random), key(random));
        } else {
            batch.require(keyspace(random), key(random), value(random));
        }
    }
    if random.chance(1, 6) {
        batch.delete_range(keyspace(random), key(random), key(random));
    }
    for _ in 0..random.below(3) {
        batch.delete(keyspace(random), key(random));
    }
    for _ in 0..random.below(5) {
        batch.put(keyspace(random), key(random), value(random));
    }
    batch
}

fn keyspace(random: &mut Random) -> Keyspace {
    KEYSPACES[random.index(KEYSPACES.len())]
}

/// One of a few dozen keys, so that operations meet.
fn key(random: &mut Random) -> Bytes {
    const BYTES: [u8; 4] = [0x00, b'a', b'b', 0xFF];
    let len = random.index(4);
    (0..len).map(|_| BYTES[random.index(BYTES.len())]).collect()
}

fn value(random: &mut Random) -> Bytes {
    match random.below(12) {
        0 => bytes(vec![7; 5_000]),
        n => bytes(vec![b'v'; random.index(1 + usize::from(n > 6) * 2)]),
    }
}

fn range(random: &mut Random) -> Scan {
    let mut scan = if random.chance(1, 3) {
        Scan::from(key(random))
    } else {
        Scan::range(key(random), key(random))
    };
    if random.chance(1, 3) {
        scan = scan.with_entries_max(random.index(6));
    }
    if random.chance(1, 3) {
        scan = scan.with_bytes_max(random.index(40));
    }
    if random.chance(1, 2) {
        scan = scan.backward();
    }
    scan
}
