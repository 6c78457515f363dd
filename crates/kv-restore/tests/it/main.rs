//! A copy is all or nothing, whatever fails.

#![allow(
    clippy::unwrap_used,
    reason = "a test that can not set itself up has failed"
)]

use bytes::Bytes;
use kv_restore::{CopyError, CopyOptions, Phase, copy, digest};
use pop_store::{Durability, Entry, Keyspace, MemStore, Scan, Store, WriteBatch};

const A: Keyspace = Keyspace::new("a");
const B: Keyspace = Keyspace::new("b");

async fn filled(rows: u32, salt: u8) -> MemStore {
    let store = MemStore::new(&[A, B]);
    for row in 0..rows {
        let mut batch = WriteBatch::new();
        for keyspace in [A, B] {
            let value = vec![salt; usize::try_from(row % 900).unwrap()];
            batch.put(
                keyspace,
                Bytes::copy_from_slice(&row.to_be_bytes()),
                value.into(),
            );
        }
        store.write(batch, Durability::Synced).await.unwrap();
    }
    store
}

async fn content(store: &dyn Store, keyspace: Keyspace) -> Vec<Entry> {
    store
        .scan(
            keyspace,
            Scan::all()
                .with_entries_max(usize::MAX)
                .with_bytes_max(usize::MAX),
        )
        .await
        .unwrap()
}

#[tokio::test]
async fn the_target_holds_what_the_source_held_and_nothing_else() {
    let (from, to) = (filled(2_500, 1).await, filled(3_000, 2).await);
    let copied = copy(&from, &to, &[A, B], &CopyOptions::default())
        .await
        .unwrap();
    assert_eq!(copied.rows(), 5_000);
    for keyspace in [A, B] {
        assert_eq!(content(&from, keyspace).await, content(&to, keyspace).await);
    }
}

#[tokio::test]
async fn a_keyspace_that_is_not_named_keeps_its_content() {
    let (from, to) = (filled(10, 1).await, filled(20, 2).await);
    let before = content(&to, B).await;
    copy(&from, &to, &[A], &CopyOptions::default())
        .await
        .unwrap();
    assert_eq!(content(&to, B).await, before);
}

#[tokio::test]
async fn a_row_counts_for_its_keyspace_key_and_value_each_on_its_own() {
    let row = |key: &'static str, value: &'static str| (Bytes::from(key), Bytes::from(value));
    let mut seen = Vec::new();
    for (keyspace, (key, value)) in [
        (A, row("k", "v")),
        (B, row("k", "v")),
        (A, row("kv", "")),
        (A, row("", "kv")),
    ] {
        let store = MemStore::new(&[A, B]);
        let mut batch = WriteBatch::new();
        batch.put(keyspace, key, value);
        store.write(batch, Durability::Synced).await.unwrap();
        let snapshot = store.snapshot().await.unwrap();
        // Mutant: parts are hashed without their lengths; "kv" + "" equals "" + "kv".
        let digest = digest(snapshot.as_ref(), &[A, B]).await.unwrap();
        assert!(!seen.contains(&digest));
        seen.push(digest);
    }
}

#[tokio::test]
async fn a_copy_that_can_not_begin_says_where_it_failed_and_a_retry_succeeds() {
    let (from, to) = (filled(10, 1).await, filled(20, 2).await);
    let blocker = to.begin_replace(&[A]).await.unwrap();
    let error = copy(&from, &to, &[A], &CopyOptions::default())
        .await
        .unwrap_err();
    assert!(
        matches!(
            error,
            CopyError::Store {
                phase: Phase::Begin,
                ..
            }
        ),
        "{error}"
    );
    drop(blocker);
    copy(&from, &to, &[A], &CopyOptions::default())
        .await
        .unwrap();
}

#[tokio::test]
async fn a_source_that_is_gone_leaves_the_target_as_it_was_and_free() {
    let (from, to) = (filled(10, 1).await, filled(20, 2).await);
    let before = content(&to, A).await;
    from.close().await.unwrap();
    let error = copy(&from, &to, &[A], &CopyOptions::default())
        .await
        .unwrap_err();
    assert!(
        matches!(
            error,
            CopyError::Store {
                phase: Phase::Snapshot,
                ..
            }
        ),
        "{error}"
    );
    assert_eq!(content(&to, A).await, before);
    drop(to.begin_replace(&[A]).await.unwrap());
}
