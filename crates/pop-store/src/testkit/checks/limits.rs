//! What every backend takes, and what every backend refuses before anything happens.

use super::{A, B, Kit, StoreFactory, all, bytes, commit, entry, puts, refused};
use crate::{Durability, ErrorKind, Keyspace, Scan, SnapshotSupport, Store, WriteBatch};

const UNKNOWN: Keyspace = Keyspace::new("nobody_opened_this");

/// 1,000 keys, 1 MiB and keys of 1 KiB fit at once.
// Catches: a backend whose own limits are below those of the trait.
pub async fn a_batch_at_the_limits_is_committed<F: StoreFactory>(kit: &Kit<F>) {
    let store = kit.open().await;
    let mut batch = WriteBatch::new();
    let room = WriteBatch::BYTES_MAX / WriteBatch::KEYS_MAX;
    for n in 0..WriteBatch::KEYS_MAX {
        let key = format!("{n:0>width$}", width = WriteBatch::KEY_BYTES_MAX);
        let value = vec![7; room - key.len()];
        batch.put(if n % 2 == 0 { A } else { B }, bytes(key), value.into());
    }
    assert_eq!(batch.key_count(), WriteBatch::KEYS_MAX);
    let answer = store.write(batch, Durability::Synced).await;
    answer.expect("a batch at the limits is committed");
    assert_eq!(all(&store, A).await.len(), WriteBatch::KEYS_MAX / 2);
    assert_eq!(all(&store, B).await.len(), WriteBatch::KEYS_MAX / 2);
}

/// One key, one byte or one unknown keyspace too many is invalid, and nothing is changed.
// Catches: a backend that does not call `WriteBatch::check`, or too late.
pub async fn a_batch_above_a_limit_is_refused_and_changes_nothing<F: StoreFactory>(kit: &Kit<F>) {
    let store = kit.open().await;
    commit(&store, puts([(A, "k", "1")])).await;

    let mut too_many = puts([(A, "k", "changed")]);
    for n in 0..WriteBatch::KEYS_MAX {
        too_many.put(B, bytes(n.to_be_bytes()), bytes(""));
    }
    let mut too_big = puts([(A, "k", "changed")]);
    too_big.put(B, bytes("big"), vec![0; WriteBatch::BYTES_MAX].into());
    let long = bytes(vec![b'k'; WriteBatch::KEY_BYTES_MAX + 1]);
    let mut long_put = puts([(A, "k", "changed")]);
    long_put.put(B, long.clone(), bytes(""));
    let mut long_delete = puts([(A, "k", "changed")]);
    long_delete.delete(B, long.clone());
    let mut long_range = puts([(A, "k", "changed")]);
    long_range.delete_range(A, bytes("a"), long.clone());
    let mut long_condition = puts([(A, "k", "changed")]);
    long_condition.require_absent(B, long);
    let mut unknown = puts([(A, "k", "changed")]);
    unknown.put(UNKNOWN, bytes("k"), bytes(""));
    // The first thing to look at is the call itself: no conflict hides that it is wrong.
    let mut conflict = unknown.clone();
    conflict.require_absent(A, bytes("k"));

    let wrong = [
        too_many,
        too_big,
        long_put,
        long_delete,
        long_range,
        long_condition,
        unknown,
        conflict,
    ];
    for batch in wrong {
        let answer = store.write(batch, Durability::Synced).await;
        refused(answer, ErrorKind::Invalid);
    }
    assert_eq!(all(&store, A).await, [entry("k", "1")]);
    assert_eq!(all(&store, B).await, []);
}

/// A keyspace that the store was not opened with is invalid in every call.
// Catches: an unknown keyspace read as an empty one, or made on the way.
pub async fn an_unknown_keyspace_is_refused_everywhere<F: StoreFactory>(kit: &Kit<F>) {
    let store = kit.open().await;
    refused(store.get(UNKNOWN, b"k").await, ErrorKind::Invalid);
    refused(
        store.multi_get(UNKNOWN, &[bytes("k")]).await,
        ErrorKind::Invalid,
    );
    refused(store.scan(UNKNOWN, Scan::all()).await, ErrorKind::Invalid);
    let mut asks = WriteBatch::new();
    asks.require_absent(UNKNOWN, bytes("k"));
    refused(
        store.write(asks, Durability::Buffered).await,
        ErrorKind::Invalid,
    );
    if store.capabilities().snapshot != SnapshotSupport::None {
        let snapshot = store.snapshot().await.expect("a snapshot is taken");
        refused(snapshot.get(UNKNOWN, b"k").await, ErrorKind::Invalid);
        refused(
            snapshot.scan(UNKNOWN, Scan::all()).await,
            ErrorKind::Invalid,
        );
    }
    if store.capabilities().replace {
        refused(store.begin_replace(&[A, UNKNOWN]).await, ErrorKind::Invalid);
        let staging = store.begin_replace(&[A]).await;
        let staging = staging.expect("a refused staging is not open");
        staging.abort().await.expect("the staging is thrown away");
    }
}
