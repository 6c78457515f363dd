//! Stagings that a later process goes on with: exactly what was checkpointed, by its name.

use super::{
    A, B, C, Kit, StoreFactory, all, bytes, commit, entries, entry, puts, refused, reopen,
    replace::{begin, load, publish},
};
use crate::{Entry, ErrorKind, Keyspace, Resumed, Store};

/// A staging that is opened again has the rows of its last checkpoint, and none besides.
// Catches: rows after the checkpoint that stay, rows before it that are lost, a checkpoint
// that is published, a point that is not the last one.
pub async fn a_staging_goes_on_where_it_was_checkpointed<F: StoreFactory>(kit: &Kit<F>) {
    let store = kit.open().await;
    if refuses(&store).await {
        return;
    }
    commit(&store, puts([(A, "old", "1"), (B, "old", "1")])).await;
    let expected = load_and_leave(&store, b"first").await;
    let resumed = resume(&store, &[A, B, C], "name").await;
    assert_eq!(resumed.point, Some(bytes("first")));
    // Dropped without a checkpoint of its own, it goes back to the one before.
    let mut staging = resumed.staging;
    load(&mut staging, C, entries(["nothing"])).await;
    drop(staging);
    assert_eq!(all(&store, A).await, entries_of("old"));
    finish(&store, b"first", expected).await;
}

/// The same, when the store was closed and opened again in between, once and again.
// Catches: a checkpoint in memory alone, an open that sweeps it, a point without its rows.
pub async fn a_checkpoint_outlives_the_process<F: StoreFactory>(kit: &Kit<F>) {
    let mut store = kit.open().await;
    if refuses(&store).await {
        return;
    }
    commit(&store, puts([(A, "old", "1"), (B, "old", "1")])).await;
    let expected = load_and_leave(&store, b"first").await;
    store = reopen(kit, store).await;
    assert_eq!(all(&store, A).await, entries_of("old"));
    let mut resumed = resume(&store, &[A, B, C], "name").await;
    assert_eq!(resumed.point, Some(bytes("first")));
    load(&mut resumed.staging, C, entries(["a"])).await;
    checkpoint(&mut resumed, "second").await;
    load(&mut resumed.staging, C, entries(["b"])).await;
    // Closed under an open staging, as a process ends.
    let old = store;
    old.close().await.expect("the store closes");
    store = kit.open().await;
    drop((resumed, old));
    store = reopen(kit, store).await;
    assert_eq!(
        store.resumable().await.expect("it is told"),
        Some(bytes("name"))
    );
    let resumed = resume(&store, &[A, B, C], "name").await;
    assert_eq!(resumed.point, Some(bytes("second")));
    publish(resumed.staging).await;
    store = reopen(kit, store).await;
    assert!(all(&store, A).await == expected);
    assert_eq!(all(&store, B).await, entries(["few"]));
    assert_eq!(all(&store, C).await, entries(["a"]));
    let resumed = resume(&store, &[A, B, C], "name").await;
    assert_eq!(resumed.point, None, "it was published");
}

/// Another name or other keyspaces begin anew, and so does what follows a staging that was
/// begun, published, aborted or forgotten.
// Catches: the rows of one load in another, a checkpoint that comes back from the dead, one
// that is not told of.
pub async fn a_checkpoint_is_found_by_its_name_until_it_is_over<F: StoreFactory>(kit: &Kit<F>) {
    let store = kit.open().await;
    if refuses(&store).await {
        return;
    }
    for (keyspaces, name) in [(&[A, B, C][..], "other"), (&[A, B], "name")] {
        load_and_leave(&store, b"point").await;
        assert_eq!(
            store.resumable().await.expect("it is told"),
            Some(bytes("name"))
        );
        let resumed = resume(&store, keyspaces, name).await;
        assert_eq!(resumed.point, None);
        publish(resumed.staging).await;
        assert_eq!(store.resumable().await.expect("it is told"), None);
        assert_eq!(all(&store, A).await, []);
        assert_eq!(resume(&store, &[A, B, C], "name").await.point, None);
    }
    load_and_leave(&store, b"point").await;
    drop(begin(&store, &[C]).await);
    assert_eq!(resume(&store, &[A, B, C], "name").await.point, None);

    load_and_leave(&store, b"point").await;
    let resumed = resume(&store, &[A, B, C], "name").await;
    assert_eq!(resumed.point, Some(bytes("point")));
    resumed.staging.abort().await.expect("it is thrown away");
    assert_eq!(resume(&store, &[A, B, C], "name").await.point, None);

    load_and_leave(&store, b"point").await;
    let mut resumed = resume(&store, &[A, B, C], "name").await;
    resumed.staging.forget_checkpoint();
    drop(resumed);
    let resumed = resume(&store, &[A, B, C], "name").await;
    assert_eq!(resumed.point, None);
    publish(resumed.staging).await;
    assert_eq!(all(&store, A).await, []);
}

/// Keys that don't ascend, in one load or over several, and what is too long, are invalid.
// Catches: a key below the last one that is in a file already, a limit that only some know.
pub async fn a_resumable_load_takes_rows_in_order_alone<F: StoreFactory>(kit: &Kit<F>) {
    let store = kit.open().await;
    if refuses(&store).await {
        return;
    }
    let long = bytes(vec![b'n'; Resumed::NAME_BYTES_MAX + 1]);
    refused(store.resume_replace(&[A], long).await, ErrorKind::Invalid);
    let mut resumed = resume(&store, &[A, B], "name").await;
    let wrong = [vec!["b", "a"], vec!["a", "a"]];
    for keys in wrong {
        let rows: Vec<_> = keys.iter().map(|key| entry(key, "")).collect();
        let in_one_piece = rows.clone().into();
        refused(resumed.staging.load(A, rows).await, ErrorKind::Invalid);
        let loaded = resumed.staging.load_rows(A, in_one_piece).await;
        refused(loaded, ErrorKind::Invalid);
    }
    load(&mut resumed.staging, A, entries(["b", "c"])).await;
    load(&mut resumed.staging, B, entries(["a"])).await;
    for key in ["a", "c"] {
        let rows = entries([key]);
        refused(resumed.staging.load(A, rows).await, ErrorKind::Invalid);
    }
    let long = bytes(vec![b'p'; Resumed::POINT_BYTES_MAX + 1]);
    refused(resumed.staging.checkpoint(long).await, ErrorKind::Invalid);
    checkpoint(&mut resumed, "point").await;
    drop(resumed);
    let mut resumed = resume(&store, &[A, B], "name").await;
    let rows = entries(["c"]);
    refused(resumed.staging.load(A, rows).await, ErrorKind::Invalid);
    load(&mut resumed.staging, A, entries(["d"])).await;
    publish(resumed.staging).await;
    assert_eq!(all(&store, A).await, entries(["b", "c", "d"]));
}

const ROWS: u32 = 100;

fn row(key: u32, value: u8) -> Entry {
    entry(key.to_be_bytes(), vec![value; 32 << 10])
}

fn entries_of(key: &str) -> Vec<Entry> {
    vec![entry(key, "1")]
}

/// Loads some megabytes, checkpoints, loads what is not to stay, and lets go. Returns what
/// the checkpoint has in `A`; it has one row in `B`.
async fn load_and_leave<S: Store>(store: &S, point: &[u8]) -> Vec<Entry> {
    let mut resumed = resume(store, &[A, B, C], "name").await;
    assert_eq!(resumed.point, None, "nothing was left before");
    let rows: Vec<_> = (0..ROWS).map(|key| row(key, 1)).collect();
    for rows in rows.chunks(20) {
        load(&mut resumed.staging, A, rows.to_vec()).await;
    }
    load(&mut resumed.staging, B, entries(["few"])).await;
    checkpoint(&mut resumed, point).await;
    load(
        &mut resumed.staging,
        A,
        vec![row(ROWS, 2), row(ROWS + 1, 2)],
    )
    .await;
    load(&mut resumed.staging, B, entries(["late"])).await;
    load(&mut resumed.staging, C, entries(["late"])).await;
    rows
}

/// Goes on with the checkpoint, and publishes.
async fn finish<S: Store>(store: &S, point: &[u8], mut expected: Vec<Entry>) {
    let mut resumed = resume(store, &[A, B, C], "name").await;
    assert_eq!(resumed.point, Some(bytes(point)));
    let more = row(ROWS + 1, 3);
    load(&mut resumed.staging, A, vec![more.clone()]).await;
    expected.push(more);
    publish(resumed.staging).await;
    assert!(all(store, A).await == expected, "just the rows before");
    assert_eq!(all(store, B).await, entries(["few"]));
    assert_eq!(all(store, C).await, []);
}

async fn resume<S: Store>(store: &S, keyspaces: &[Keyspace], name: &str) -> Resumed {
    let resumed = store.resume_replace(keyspaces, bytes(name)).await;
    resumed.expect("a staging is opened")
}

async fn checkpoint(resumed: &mut Resumed, point: impl AsRef<[u8]>) {
    let made = resumed.staging.checkpoint(bytes(point)).await;
    made.expect("a checkpoint is made");
}

/// Checks the refusal where the capabilities state one.
async fn refuses<S: Store>(store: &S) -> bool {
    if store.capabilities().resumable_replace {
        return false;
    }
    let resumed = store.resume_replace(&[A], bytes("name")).await;
    refused(resumed, ErrorKind::Unsupported);
    commit(store, puts([(A, "goes on", "")])).await;
    true
}
