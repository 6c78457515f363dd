//! Snapshots: one moment over all keyspaces, or a refusal that says so.

use std::sync::Arc;

use super::{
    A, B, C, Kit, Meanwhile, StoreFactory, bytes, commit, entry, puts, refused, scan_snapshot,
};
use crate::{ErrorKind, Scan, SnapshotSupport, Store, WriteBatch};

/// A snapshot shows what was answered before it and nothing that came after.
// Catches: a snapshot that reads the live content, for gets, scans or range deletes.
pub async fn a_snapshot_stays_as_it_was<F: StoreFactory>(kit: &Kit<F>) {
    let store = kit.open().await;
    if refuses(&store).await {
        return;
    }
    commit(&store, puts([(A, "a", "1"), (A, "b", "1"), (B, "c", "1")])).await;
    let first = store.snapshot().await.expect("a snapshot is taken");
    let mut batch = puts([(A, "a", "2"), (A, "new", "2"), (C, "new", "2")]);
    batch
        .delete(A, bytes("b"))
        .delete_range(B, bytes("a"), bytes("z"));
    commit(&store, batch).await;
    let second = store.snapshot().await.expect("a second one beside it");
    commit(&store, puts([(A, "a", "3")])).await;

    for _ in 0..2 {
        assert_eq!(
            scan_snapshot(&*first, A).await,
            [entry("a", "1"), entry("b", "1")]
        );
        assert_eq!(scan_snapshot(&*first, B).await, [entry("c", "1")]);
        assert_eq!(scan_snapshot(&*first, C).await, []);
        assert_eq!(
            scan_snapshot(&*second, A).await,
            [entry("a", "2"), entry("new", "2")]
        );
    }
    let value = first.get(A, b"a").await.expect("a key is read");
    assert_eq!(value, Some(bytes("1")));
    let value = first.get(A, b"new").await.expect("a key is read");
    assert_eq!(value, None);
    let range = Scan::range(bytes("a"), bytes("b\0"))
        .backward()
        .with_entries_max(1);
    let top = first.scan(A, range).await.expect("a range is read");
    assert_eq!(top, [entry("b", "1")], "limits and bounds as in the store");
}

/// While batches write one number to three keyspaces, every snapshot has it in all three.
// Catches: a snapshot taken keyspace by keyspace, or in the middle of a batch.
pub async fn a_snapshot_shows_one_moment_over_all_keyspaces<F: StoreFactory>(kit: &Kit<F>) {
    let store = Arc::new(kit.open().await);
    if refuses(&*store).await {
        return;
    }
    let write = |n: u64| {
        let mut batch = WriteBatch::new();
        for keyspace in [A, B, C] {
            batch.put(keyspace, bytes("n"), bytes(n.to_be_bytes()));
        }
        batch
    };
    commit(&*store, write(0)).await;
    let writer = Meanwhile::write(&store, write);
    let mut newest = bytes(0_u64.to_be_bytes());
    for _ in 0..60 {
        let snapshot = store.snapshot().await.expect("a snapshot is taken");
        let mut numbers = Vec::new();
        for keyspace in [A, B, C] {
            let number = snapshot.get(keyspace, b"n").await.expect("a key is read");
            numbers.extend(number);
        }
        assert_eq!(numbers.len(), 3, "no keyspace is empty");
        assert!(
            numbers.windows(2).all(|pair| pair[0] == pair[1]),
            "one moment in all keyspaces: {numbers:?}"
        );
        assert!(numbers[0] >= newest, "snapshots don't go back");
        newest = numbers.swap_remove(0);
        writer.progress().await;
    }
    writer.stop().await;
}

/// A backend that copies says how much, and refuses more by name.
// Catches: a copy without a bound, which stops all writers for as long as it likes.
pub async fn a_snapshot_above_its_limit_is_refused<F: StoreFactory>(kit: &Kit<F>) {
    const FILLABLE_BYTES: u64 = 128 << 20;
    let store = kit.open().await;
    let SnapshotSupport::CopiedUpTo { bytes_max } = store.capabilities().snapshot else {
        return;
    };
    assert!(
        bytes_max <= FILLABLE_BYTES,
        "a pause for {bytes_max} bytes is no pause"
    );
    let value = bytes(vec![7; WriteBatch::BYTES_MAX - 8]);
    for n in 0..=bytes_max / (WriteBatch::BYTES_MAX as u64) {
        let mut batch = WriteBatch::new();
        batch.put(A, bytes(n.to_be_bytes()), value.clone());
        commit(&store, batch).await;
    }
    refused(store.snapshot().await, ErrorKind::Unsupported);
    commit(&store, puts([(A, "goes on", "")])).await;
}

/// Checks the refusal where the capabilities state one.
async fn refuses<S: Store>(store: &S) -> bool {
    let none = store.capabilities().snapshot == SnapshotSupport::None;
    if none {
        refused(store.snapshot().await, ErrorKind::Unsupported);
        commit(store, puts([(A, "goes on", "")])).await;
    }
    none
}
