//! What a store says of itself, and what its handles do after it was closed.

use super::{A, Kit, StoreFactory, bytes, commit, puts, refused};
use crate::{Durability, ErrorKind, Scan, SnapshotSupport, Store, WriteBatch, testkit::KEYSPACES};

/// The store knows the keyspaces that it was opened with, and its name.
// Catches: a keyspace that is forgotten or added.
pub async fn a_store_names_its_keyspaces<F: StoreFactory>(kit: &Kit<F>) {
    let store = kit.open().await;
    let mut keyspaces = store.keyspaces().to_vec();
    keyspaces.sort();
    assert_eq!(keyspaces, KEYSPACES);
    assert!(!store.name().is_empty());
    let error = refused(
        store.get(crate::Keyspace::new("unknown"), b"").await,
        ErrorKind::Invalid,
    );
    assert_eq!(error.backend(), store.name(), "errors carry the same name");
}

/// After close, every call on the old handle is refused as poisoned.
// Catches: a write into a folder that somebody else has opened meanwhile.
pub async fn a_closed_store_refuses_every_call_as_poisoned<F: StoreFactory>(kit: &Kit<F>) {
    let store = kit.open().await;
    commit(&store, puts([(A, "k", "1")])).await;
    store.close().await.expect("the store closes");
    for durability in [Durability::Buffered, Durability::Synced] {
        let answer = store.write(puts([(A, "k", "2")]), durability).await;
        refused(answer, ErrorKind::Poisoned);
        let answer = store.write(WriteBatch::new(), durability).await;
        refused(answer, ErrorKind::Poisoned);
    }
    refused(store.get(A, b"k").await, ErrorKind::Poisoned);
    refused(store.multi_get(A, &[bytes("k")]).await, ErrorKind::Poisoned);
    refused(store.scan(A, Scan::all()).await, ErrorKind::Poisoned);
    if store.capabilities().snapshot != SnapshotSupport::None {
        refused(store.snapshot().await, ErrorKind::Poisoned);
    }
    if store.capabilities().replace {
        refused(store.begin_replace(&[A]).await, ErrorKind::Poisoned);
    }
}

/// `conformance!(…)` is for durable stores, and this one says that it is one.
// Catches: the wrong form of the macro.
pub async fn a_store_that_outlives_the_process_says_so<F: StoreFactory>(kit: &Kit<F>) {
    assert!(
        kit.open().await.capabilities().durable,
        "not a durable store: call the kit as `conformance!(…, volatile)`"
    );
}

/// `conformance!(…, volatile)` is for stores that forget, and this one says that it does.
// Catches: a durable store whose reopening and crashes nobody checks.
pub async fn a_store_that_forgets_says_so<F: StoreFactory>(kit: &Kit<F>) {
    assert!(
        !kit.open().await.capabilities().durable,
        "a durable store: call the kit without `volatile`"
    );
}
