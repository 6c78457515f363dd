//! The guard above every call: a hang and a panic are answered as a doubt (P5).

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use pop_store::{
    Durability, ErrorKind, Guarded, Keyspace, MemStore, Outcome, Scan, Store, WriteBatch,
    testkit::{Call, Effect, Fault, FaultStore, Faults},
};

const A: Keyspace = Keyspace::new("a");
const LIMIT: Duration = Duration::from_secs(30);

fn guarded(faults: &Faults) -> Guarded {
    let store = FaultStore::new(MemStore::new(&[A]), faults.clone());
    Guarded::new(Arc::new(store), LIMIT)
}

fn put() -> WriteBatch {
    let mut batch = WriteBatch::new();
    batch.put(A, Bytes::from_static(b"k"), Bytes::from_static(b"v"));
    batch
}

#[tokio::test(start_paused = true)]
async fn a_write_that_hangs_is_answered_in_doubt_and_nothing_is_done_after_it() {
    let faults = Faults::none();
    faults.arm(Call::Write, 1, Fault::Hang(Effect::DidNotHappen));
    let store = guarded(&faults);
    // Mutant: no limit above the call; this test then never ends.
    let error = store.write(put(), Durability::Synced).await.unwrap_err();
    assert_eq!(error.outcome(), Outcome::InDoubt);
    // Mutant: a late store goes on being used, although nobody knows what it did.
    let error = store.get(A, b"k").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Poisoned);
}

#[tokio::test]
async fn a_call_that_panics_is_answered_in_doubt_and_nothing_is_done_after_it() {
    let faults = Faults::none();
    faults.arm(Call::Scan, 1, Fault::Panic(Effect::DidNotHappen));
    let store = guarded(&faults);
    // Mutant: the panic goes up into whoever called, and ends it.
    let error = store.scan(A, Scan::all()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InDoubt);
    let error = store.write(put(), Durability::Synced).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Poisoned);
}

#[tokio::test]
async fn a_refusal_passes_through_and_the_store_stays_in_use() {
    let faults = Faults::none();
    faults.arm(Call::Write, 1, Fault::Refuse);
    let store = guarded(&faults);
    let error = store.write(put(), Durability::Synced).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    store.write(put(), Durability::Synced).await.unwrap();
    assert!(store.get(A, b"k").await.unwrap().is_some());
}
