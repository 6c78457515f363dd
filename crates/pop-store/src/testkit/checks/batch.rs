//! One batch: all or nothing, its inner order, its preconditions.

use super::{
    A, B, C, Kit, StoreFactory, all, bytes, commit, commit_keys, entries, entry, get, get_text,
    puts, refused,
};
use crate::{Durability, ErrorKind, Outcome, Store, WriteBatch};

/// A batch writes to every keyspace that it names.
// Catches: a keyspace of the batch that is forgotten.
pub async fn a_batch_is_applied_over_all_its_keyspaces<F: StoreFactory>(kit: &Kit<F>) {
    let store = kit.open().await;
    commit(
        &store,
        puts([(A, "old", ""), (B, "old", ""), (C, "old", "")]),
    )
    .await;
    let mut batch = puts([(A, "k", "1"), (B, "k", "2"), (C, "k", "3")]);
    batch
        .delete(A, bytes("old"))
        .delete(B, bytes("old"))
        .delete_range(C, bytes("o"), bytes("p"));
    commit(&store, batch).await;
    assert_eq!(all(&store, A).await, [entry("k", "1")]);
    assert_eq!(all(&store, B).await, [entry("k", "2")]);
    assert_eq!(all(&store, C).await, [entry("k", "3")]);
}

/// Range deletes, deletes, puts: in this order, whatever the order of the calls.
// Catches: puts before range deletes, puts before deletes, the order of the calls.
pub async fn range_deletes_come_before_deletes_and_puts<F: StoreFactory>(kit: &Kit<F>) {
    let store = kit.open().await;
    commit_keys(&store, A, ["a", "b", "c"]).await;
    let mut batch = WriteBatch::new();
    batch
        .put(A, bytes("b"), bytes("moved"))
        .put(A, bytes("new"), bytes("n"))
        .put(A, bytes("c"), bytes("kept"))
        .delete(A, bytes("c"))
        .delete(A, bytes("absent"))
        .delete_range(A, bytes("a"), bytes("z"));
    commit(&store, batch).await;
    assert_eq!(
        all(&store, A).await,
        [entry("b", "moved"), entry("c", "kept"), entry("new", "n")]
    );
}

/// Of two puts to one key in one batch, and in two batches, the later wins.
// Catches: batches folded the wrong way round.
pub async fn the_later_put_of_a_key_wins<F: StoreFactory>(kit: &Kit<F>) {
    let store = kit.open().await;
    commit(&store, puts([(A, "k", "1"), (A, "k", "2")])).await;
    assert_eq!(get_text(&store, A, "k").await.as_deref(), Some("2"));
    commit(&store, puts([(A, "k", "3")])).await;
    assert_eq!(get_text(&store, A, "k").await.as_deref(), Some("3"));
    assert_eq!(all(&store, A).await, [entry("k", "3")]);
}

/// A range delete takes its start and not its end.
// Catches: an end bound taken with it, a start bound left out, another keyspace touched.
pub async fn a_range_delete_is_half_open<F: StoreFactory>(kit: &Kit<F>) {
    let store = kit.open().await;
    commit_keys(&store, A, ["a", "b", "b\0", "c", "c\0", "d"]).await;
    commit_keys(&store, B, ["b"]).await;
    let mut batch = WriteBatch::new();
    batch.delete_range(A, bytes("b"), bytes("c"));
    commit(&store, batch).await;
    assert_eq!(all(&store, A).await, entries(["a", "c", "c\0", "d"]));
    assert_eq!(all(&store, B).await, entries(["b"]));
}

/// A range whose end is not above its start deletes nothing and is no error.
// Catches: an engine's panic on a range turned round, an inclusive `start..start`.
pub async fn an_empty_range_deletes_nothing<F: StoreFactory>(kit: &Kit<F>) {
    let store = kit.open().await;
    commit_keys(&store, A, ["", "a", "b", "c"]).await;
    let mut batch = WriteBatch::new();
    batch
        .delete_range(A, bytes("c"), bytes("a"))
        .delete_range(A, bytes("b"), bytes("b"))
        .delete_range(A, bytes(""), bytes(""));
    commit(&store, batch).await;
    assert_eq!(all(&store, A).await, entries(["", "a", "b", "c"]));
}

/// A batch's own writes don't count for its preconditions.
// Catches: preconditions looked at after, or in the middle of, the batch.
pub async fn preconditions_look_at_the_content_before_the_batch<F: StoreFactory>(kit: &Kit<F>) {
    let store = kit.open().await;
    commit(&store, puts([(A, "k", "1"), (A, "gone", "x")])).await;
    let mut batch = puts([(A, "k", "2"), (B, "fresh", "y")]);
    batch
        .require(A, bytes("k"), bytes("1"))
        .require(A, bytes("gone"), bytes("x"))
        .require_absent(B, bytes("fresh"))
        .delete_range(A, bytes("g"), bytes("h"));
    commit(&store, batch).await;
    assert_eq!(all(&store, A).await, [entry("k", "2")]);
    assert_eq!(all(&store, B).await, [entry("fresh", "y")]);
}

/// Each way a precondition can fail is a conflict on its key, and nothing is changed.
// Catches: preconditions dropped, keyspaces written one by one, a key that is not named.
pub async fn a_conflict_names_its_key_and_changes_nothing<F: StoreFactory>(kit: &Kit<F>) {
    let store = kit.open().await;
    commit(&store, puts([(A, "k", "1"), (B, "k", "1"), (B, "r", "1")])).await;

    let mut other_value = WriteBatch::new();
    other_value.require(A, bytes("k"), bytes("2"));
    let mut missing = WriteBatch::new();
    missing
        .require(A, bytes("k"), bytes("1"))
        .require(A, bytes("no"), bytes("1"));
    let mut present = WriteBatch::new();
    present.require_absent(B, bytes("k"));
    let cases = [
        (other_value, (A, "k")),
        (missing, (A, "no")),
        (present, (B, "k")),
    ];
    for (mut batch, (keyspace, key)) in cases {
        batch
            .put(A, bytes("k"), bytes("changed"))
            .put(B, bytes("new"), bytes("changed"))
            .delete(B, bytes("k"))
            .delete_range(B, bytes("r"), bytes("s"));
        for durability in [Durability::Buffered, Durability::Synced] {
            let error = refused(
                store.write(batch.clone(), durability).await,
                ErrorKind::Conflict,
            );
            assert_eq!(error.conflict(), Some((keyspace, &bytes(key))));
            assert_eq!(error.outcome(), Outcome::Refused);
        }
    }
    assert_eq!(all(&store, A).await, [entry("k", "1")]);
    assert_eq!(all(&store, B).await, [entry("k", "1"), entry("r", "1")]);
    // A conflict is the caller's affair: the store goes on.
    commit(&store, puts([(A, "k", "2")])).await;
    assert_eq!(get_text(&store, A, "k").await.as_deref(), Some("2"));
}

/// For a precondition, an empty value and an absent key are two things.
// Catches: both read as "nothing there".
pub async fn an_empty_value_is_not_an_absent_key<F: StoreFactory>(kit: &Kit<F>) {
    let store = kit.open().await;
    commit(&store, puts([(A, "empty", "")])).await;
    let mut absent = WriteBatch::new();
    absent.require_absent(A, bytes("empty"));
    refused(
        store.write(absent, Durability::Buffered).await,
        ErrorKind::Conflict,
    );
    let mut empty = WriteBatch::new();
    empty.require(A, bytes("absent"), bytes(""));
    refused(
        store.write(empty, Durability::Buffered).await,
        ErrorKind::Conflict,
    );
    let mut right = puts([(A, "done", "1")]);
    right
        .require(A, bytes("empty"), bytes(""))
        .require_absent(A, bytes("absent"));
    commit(&store, right).await;
    assert_eq!(get_text(&store, A, "done").await.as_deref(), Some("1"));
}

/// An empty batch is fine at both durabilities, and so is one of preconditions only.
// Catches: "nothing to do" treated as an error, or preconditions skipped without writes.
pub async fn an_empty_batch_is_committed<F: StoreFactory>(kit: &Kit<F>) {
    let store = kit.open().await;
    for durability in [Durability::Buffered, Durability::Synced] {
        let answer = store.write(WriteBatch::new(), durability).await;
        answer.expect("an empty batch is committed");
        let mut only_asks = WriteBatch::new();
        only_asks.require_absent(A, bytes("k"));
        let answer = store.write(only_asks, durability).await;
        answer.expect("a batch that only asks is committed");
        let mut asks_wrongly = WriteBatch::new();
        asks_wrongly.require(A, bytes("k"), bytes("1"));
        refused(
            store.write(asks_wrongly, durability).await,
            ErrorKind::Conflict,
        );
    }
    assert_eq!(get(&store, A, "k").await, None);
}
