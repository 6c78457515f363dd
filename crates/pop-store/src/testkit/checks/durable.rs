//! Durable stores: closing, opening again, and who may open.

use std::{fs, path::Path};

use super::{
    A, B, C, Kit, StoreFactory, all, bytes, commit, commit_keys, entries, entry, puts, refused,
    reopen,
    replace::{begin, load, publish, refuses},
};
use crate::{Durability, ErrorKind, Store, WriteBatch, testkit::Random};

/// Close makes everything durable, and the next open shows it, again and again.
// Catches: buffered writes left behind at close, a delete that comes back, keyspaces
// opened in another order, a log that is replayed twice or begun anew.
pub async fn a_reopened_store_shows_everything<F: StoreFactory>(kit: &Kit<F>) {
    let mut store = kit.open().await;
    let mut expected = Vec::new();
    for round in 0..4_u64 {
        assert_eq!(
            all(&store, A).await,
            expected,
            "opened {round} times before"
        );
        let mut batch = puts([(B, "gone", "1"), (C, "range", "1")]);
        for n in 0..50_u64 {
            let key = [round.to_be_bytes(), n.to_be_bytes()].concat();
            batch.put(A, bytes(&key), bytes(vec![7; 300]));
            expected.push(entry(&key, vec![7; 300]));
        }
        commit(&store, batch).await;
        let mut deletes = WriteBatch::new();
        deletes
            .delete(B, bytes("gone"))
            .delete_range(C, bytes("r"), bytes("s"));
        commit(&store, deletes).await;
        store = reopen(kit, store).await;
    }
    assert_eq!(all(&store, A).await, expected);
    assert_eq!(all(&store, B).await, []);
    assert_eq!(all(&store, C).await, []);
}

/// After `close` the folder is free, though handles are still held; they stay refused.
// Catches: a lock or a thread that lives as long as the last handle.
pub async fn a_closed_folder_opens_at_once_while_old_handles_are_held<F: StoreFactory>(
    kit: &Kit<F>,
) {
    let old = kit.open().await;
    commit(&old, puts([(A, "k", "1")])).await;
    old.close().await.expect("the store closes");
    let new = kit.open().await;
    commit(&new, puts([(A, "k", "2")])).await;
    let answer = old.write(puts([(A, "k", "1")]), Durability::Synced).await;
    refused(answer, ErrorKind::Poisoned);
    drop(old);
    commit(&new, puts([(B, "k", "2")])).await;
    let new = reopen(kit, new).await;
    assert_eq!(all(&new, A).await, [entry("k", "2")]);
    assert_eq!(all(&new, B).await, [entry("k", "2")]);
}

/// A second open of a folder in use is refused by name and does no harm.
// Catches: two writers on one folder, an open that clears the folder before it locks.
pub async fn a_folder_that_is_open_is_locked<F: StoreFactory>(kit: &Kit<F>) {
    let store = kit.open().await;
    commit_keys(&store, A, ["a"]).await;
    refused(kit.try_open().await, ErrorKind::Locked);
    refused(kit.try_open().await, ErrorKind::Locked);
    commit_keys(&store, A, ["b"]).await;
    let store = reopen(kit, store).await;
    assert_eq!(all(&store, A).await, entries(["a", "b"]));
}

/// What was published is there after reopening, with what was written on it.
// Catches: a switch that lives in memory, writes after it that go to the old content.
pub async fn published_content_is_there_after_reopening<F: StoreFactory>(kit: &Kit<F>) {
    let mut store = kit.open().await;
    if refuses(&store).await {
        return;
    }
    commit(
        &store,
        puts([(A, "old", ""), (B, "old", ""), (C, "old", "")]),
    )
    .await;
    for round in ["1", "2", "3"] {
        let mut staging = begin(&store, &[A, B]).await;
        load(&mut staging, A, vec![entry("k", round)]).await;
        publish(staging).await;
        commit(&store, puts([(B, "after", round)])).await;
        store = reopen(kit, store).await;
        assert_eq!(all(&store, A).await, [entry("k", round)]);
        assert_eq!(all(&store, B).await, [entry("after", round)]);
        assert_eq!(all(&store, C).await, [entry("old", "")]);
    }
}

/// A staging that was open at close, or dropped before it, is gone after reopening.
// Catches: half-loaded content taken for the newest, a slot that stays taken.
pub async fn a_staging_left_open_leaves_nothing_after_reopening<F: StoreFactory>(kit: &Kit<F>) {
    let store = kit.open().await;
    if refuses(&store).await {
        return;
    }
    commit(&store, puts([(A, "old", "1")])).await;
    let mut staging = begin(&store, &[A, B]).await;
    load(&mut staging, A, entries(["left"])).await;
    store.close().await.expect("the store closes");
    assert!(staging.publish().await.is_err(), "nothing after close");
    drop(store);

    let store = kit.open().await;
    assert_eq!(all(&store, A).await, [entry("old", "1")]);
    let mut staging = begin(&store, &[A, B]).await;
    load(&mut staging, B, entries(["dropped"])).await;
    drop(staging);
    let store = reopen(kit, store).await;
    assert_eq!(all(&store, A).await, [entry("old", "1")]);
    let mut staging = begin(&store, &[A, B]).await;
    load(&mut staging, A, entries(["new"])).await;
    publish(staging).await;
    assert_eq!(all(&store, A).await, entries(["new"]));
    assert_eq!(all(&store, B).await, []);
}

/// Stagings that were thrown away don't fill the disk.
// Catches: generations that nobody removes. The bound is wide, because engines give room
// back in their own time: it tells "some of it" from "all of it".
pub async fn content_thrown_away_gives_its_room_on_disk_back<F: StoreFactory>(kit: &Kit<F>) {
    const STAGINGS: u64 = 24;
    const LOADS: u64 = 8;
    const LOAD_BYTES: usize = 1 << 20;
    let mut store = kit.open().await;
    if refuses(&store).await {
        return;
    }
    let mut random = Random::new(7);
    for n in 0..STAGINGS {
        let mut staging = begin(&store, &[A]).await;
        for row in 0..LOADS {
            let mut value = vec![0; LOAD_BYTES - 8];
            random.fill(&mut value);
            load(&mut staging, A, vec![entry(row.to_be_bytes(), value)]).await;
        }
        if n % 2 == 0 {
            staging.abort().await.expect("the staging is thrown away");
        } else {
            drop(staging);
        }
        if n % 8 == 7 {
            store = reopen(kit, store).await;
        }
    }
    store.close().await.expect("the store closes");
    let thrown_away = STAGINGS * LOADS * LOAD_BYTES as u64;
    let left = bytes_on_disk(kit.folder());
    assert!(
        left < thrown_away / 2,
        "{left} bytes are left of {thrown_away} that were thrown away"
    );
}

fn bytes_on_disk(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).expect("the folder is read");
    entries
        .map(|entry| {
            let entry = entry.expect("the folder is read");
            let metadata = entry.metadata().expect("a file has metadata");
            if metadata.is_dir() {
                bytes_on_disk(&entry.path())
            } else {
                allocated(&metadata)
            }
        })
        .sum()
}

/// What a file takes, which for a preallocated one is less than its length.
fn allocated(metadata: &fs::Metadata) -> u64 {
    #[cfg(unix)]
    return std::os::unix::fs::MetadataExt::blocks(metadata) * 512;
    #[cfg(not(unix))]
    metadata.len()
}
