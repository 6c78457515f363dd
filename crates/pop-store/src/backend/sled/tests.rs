//! What sled in particular does to a store.

use std::fs;

use tempfile::TempDir;

use super::*;
use crate::{
    Durability::{Buffered, Synced},
    Keyspace, Store, WriteBatch,
    backend::engine::Operation,
};

const A: Keyspace = Keyspace::new("a");

fn put(space: &Space, key: &'static str, value: Vec<u8>) -> Changes {
    Changes {
        operations: vec![Operation {
            space: space.clone(),
            key: Bytes::from_static(key.as_bytes()),
            value: Some(value.into()),
        }],
        ..Changes::default()
    }
}

fn engine_with_space(folder: &TempDir) -> (SledEngine, Space) {
    let engine = SledEngine::open(folder.path()).unwrap();
    let space = Space::new("a", 1);
    engine.open_space(&space).unwrap();
    (engine, space)
}

/// Mutants: trust `flush`, which syncs nothing on Linux; sync only when asked to; don't sync
/// what drops a space.
#[test]
fn every_write_is_synced() {
    let folder = TempDir::new().unwrap();
    let (engine, space) = engine_with_space(&folder);
    let before = engine.log.sync_count();
    engine.apply(&put(&space, "k", vec![1]), false).unwrap();
    assert_eq!(engine.log.sync_count(), before + 1);
    engine.apply(&put(&space, "k", vec![2]), true).unwrap();
    assert_eq!(engine.log.sync_count(), before + 2);
    engine.sync().unwrap();
    assert_eq!(engine.log.sync_count(), before + 3);
    engine.drop_space(&space).unwrap();
    assert_eq!(engine.log.sync_count(), before + 4);
}

/// Mutant: hand values to sled whole.
#[test]
fn a_large_value_leaves_no_blob_files() {
    let folder = TempDir::new().unwrap();
    let (engine, space) = engine_with_space(&folder);
    let value: Vec<u8> = (0_u32..65_536).flat_map(u32::to_be_bytes).collect();
    for _ in 0..8 {
        engine
            .apply(&put(&space, "k", value.clone()), true)
            .unwrap();
    }
    assert_eq!(engine.get(&space, b"k").unwrap(), Some(value.into()));
    drop(engine);
    let blobs = fs::read_dir(folder.path().join("blobs")).unwrap();
    assert_eq!(blobs.count(), 0);
}

/// Mutant: forget the pieces of the value that is written over.
#[test]
fn pieces_go_with_their_value() {
    let folder = TempDir::new().unwrap();
    let (engine, space) = engine_with_space(&folder);
    let empty = engine.db.len();
    for length in [100_000, 4_097, 4_096, 0] {
        engine
            .apply(&put(&space, "k", vec![7; length]), false)
            .unwrap();
        let value = engine.get(&space, b"k").unwrap().unwrap();
        assert_eq!(value.len(), length);
    }
    assert_eq!(engine.db.len(), empty + 1);
    engine
        .apply(&put(&space, "k", vec![7; 100_000]), false)
        .unwrap();
    let all = Changes {
        range_deletes: vec![(space, Bytes::new(), Bytes::from_static(b"z"))],
        ..Changes::default()
    };
    engine.apply(&all, false).unwrap();
    assert_eq!(engine.db.len(), empty);
}

#[test]
fn a_space_that_was_dropped_halfway_is_gone_after_an_open() {
    let folder = TempDir::new().unwrap();
    let (engine, space) = engine_with_space(&folder);
    engine
        .apply(&put(&space, "k", vec![7; 10_000]), false)
        .unwrap();
    // As far as a crash right after the first batch of the drop comes.
    let mut batch = Batch::default();
    engine.registry.write().drop_space(&space, &mut batch);
    engine.commit(batch).unwrap();
    drop(engine);
    let engine = SledEngine::open(folder.path()).unwrap();
    assert_eq!(engine.spaces().unwrap(), []);
    engine.open_space(&space).unwrap();
    assert_eq!(engine.get(&space, b"k").unwrap(), None);
    // The space's record and the next id.
    assert_eq!(engine.db.len(), 2);
}

/// Mutants: delete all of it in the drop, which holds up whoever writes and reads; leave it to
/// the next open.
#[test]
fn the_rows_of_a_dropped_space_go_with_later_writes() {
    let folder = TempDir::new().unwrap();
    let (engine, space) = engine_with_space(&folder);
    let other = Space::new("other", 1);
    engine.open_space(&other).unwrap();
    let rows = (0..DROP_KEYS_MAX * 5 / 2).map(|number| Operation {
        space: other.clone(),
        key: number.to_be_bytes().to_vec().into(),
        value: Some(Bytes::from_static(b"v")),
    });
    let rows = Changes {
        operations: rows.collect(),
        ..Changes::default()
    };
    engine.apply(&put(&space, "k", vec![0]), false).unwrap();
    let without = engine.db.len() - 1;
    engine.apply(&rows, false).unwrap();
    engine.drop_space(&other).unwrap();
    assert!(engine.db.len() - without > DROP_KEYS_MAX * 2);
    engine.apply(&put(&space, "k", vec![1]), false).unwrap();
    assert!(engine.db.len() - without > DROP_KEYS_MAX);
    for number in 2..4 {
        engine
            .apply(&put(&space, "k", vec![number]), false)
            .unwrap();
    }
    assert_eq!(engine.db.len(), without);
    assert_eq!(engine.get(&space, b"k").unwrap(), Some(vec![3].into()));
}

/// A snapshot of more than could be held in memory is of its moment, also when all of it goes
/// at once.
///
/// Mutants: copy the content, up to a bound; write all that has no room in memory at once.
#[tokio::test]
async fn a_snapshot_of_a_large_store_is_of_one_moment() {
    const ROWS: u64 = 72;
    let folder = TempDir::new().unwrap();
    let options = OpenOptions::new(&[A]).with_snapshot_bytes(ROWS << 19);
    let store = SledStore::open(folder.path(), options).unwrap();
    for number in 0..ROWS {
        let mut batch = WriteBatch::new();
        let value = vec![u8::try_from(number).unwrap(); WriteBatch::BYTES_MAX - 8];
        batch.put(A, number.to_be_bytes().to_vec().into(), value.into());
        store.write(batch, Buffered).await.unwrap();
    }
    let snapshot = store.snapshot().await.unwrap();
    let mut batch = WriteBatch::new();
    batch.delete_range(A, Bytes::new(), Bytes::from_static(&[0xFF]));
    store.write(batch, Buffered).await.unwrap();
    assert_eq!(store.scan(A, Scan::all()).await.unwrap(), []);
    let mut scan = Scan::all().with_entries_max(1);
    for number in 0..ROWS {
        let page = snapshot.scan(A, scan.clone()).await.unwrap();
        assert_eq!(*page[0].key, number.to_be_bytes());
        let value = vec![u8::try_from(number).unwrap(); WriteBatch::BYTES_MAX - 8];
        assert!(page[0].value == value, "row {number}");
        scan.start = [&page[0].key[..], &[0]].concat().into();
    }
    assert_eq!(snapshot.scan(A, scan).await.unwrap(), []);
}

/// Mutant: leave at open what is no generation of a keyspace.
#[tokio::test]
async fn a_snapshot_that_was_open_at_a_kill_leaves_nothing() {
    let folder = TempDir::new().unwrap();
    let options = OpenOptions::new(&[A]).with_snapshot_bytes(0);
    let store = SledStore::open(folder.path(), options.clone()).unwrap();
    let put = |value: &'static str| {
        let mut batch = WriteBatch::new();
        batch.put(
            A,
            Bytes::from_static(b"k"),
            Bytes::from_static(value.as_bytes()),
        );
        batch
    };
    store.write(put("old"), Synced).await.unwrap();
    let snapshot = store.snapshot().await.unwrap();
    store.write(put("new"), Synced).await.unwrap();
    let kept = snapshot.get(A, b"k").await.unwrap();
    assert_eq!(kept.as_deref(), Some(&b"old"[..]));

    let killed = TempDir::new().unwrap();
    copy_files(folder.path(), killed.path());
    let spaces = || {
        let engine = SledEngine::open(&killed.path().join("engine")).unwrap();
        let spaces = engine.spaces().unwrap();
        spaces.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(spaces(), ["a@1", "pop@0", "snapshot_1@0"]);
    let after = SledStore::open(killed.path(), options).unwrap();
    let value = after.get(A, b"k").await.unwrap();
    assert_eq!(value.as_deref(), Some(&b"new"[..]));
    after.close().await.unwrap();
    assert_eq!(spaces(), ["a@1", "pop@0"]);
}

fn copy_files(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            fs::create_dir(&to).unwrap();
            copy_files(&entry.path(), &to);
        } else {
            fs::copy(entry.path(), to).unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_scan_shows_one_moment_while_writes_go_on() {
    let folder = TempDir::new().unwrap();
    let store = SledStore::open(folder.path(), OpenOptions::new(&[A])).unwrap();
    let key = |number: u8| Bytes::copy_from_slice(&[number]);
    let mut batch = WriteBatch::new();
    for number in 0..100 {
        batch.put(A, key(number), Bytes::from_static(b"0"));
    }
    store.write(batch, Buffered).await.unwrap();
    let writer = tokio::spawn({
        let store = store.clone();
        async move {
            for round in 1..100_u8 {
                let mut batch = WriteBatch::new();
                for number in 0..100 {
                    batch.put(A, key(number), Bytes::copy_from_slice(&[round]));
                }
                store.write(batch, Buffered).await.unwrap();
            }
        }
    });
    while !writer.is_finished() {
        let entries = store.scan(A, Scan::all()).await.unwrap();
        assert!(
            entries
                .windows(2)
                .all(|pair| pair[0].value == pair[1].value)
        );
    }
    writer.await.unwrap();
    store.write(WriteBatch::new(), Synced).await.unwrap();
}

/// Mutants: don't wait; go by the kind of the error, which sled leaves out.
#[test]
fn a_database_that_is_on_its_way_out_is_waited_for_and_one_that_stays_is_named() {
    let folder = TempDir::new().unwrap();
    let (engine, space) = engine_with_space(&folder);
    engine.apply(&put(&space, "k", vec![1]), true).unwrap();
    let error = SledEngine::open(folder.path()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Locked, "{error}");
    let opening = thread::scope(|scope| {
        let opening = scope.spawn(|| SledEngine::open(folder.path()));
        drop(engine);
        opening.join().unwrap()
    });
    let value = opening.unwrap().get(&space, b"k").unwrap();
    assert_eq!(value, Some(vec![1].into()));
}

/// Mutant: leave the file to sled, which refuses the database over it.
#[test]
fn an_unfinished_snapshot_is_no_reason_to_refuse() {
    let folder = TempDir::new().unwrap();
    let (engine, space) = engine_with_space(&folder);
    engine.apply(&put(&space, "k", vec![1]), true).unwrap();
    drop(engine);
    let snapshot = folder.path().join("snap.FFFFFFFFFFFFFFFF.generating");
    fs::write(&snapshot, b"cut short").unwrap();
    let engine = SledEngine::open(folder.path()).unwrap();
    assert_eq!(engine.get(&space, b"k").unwrap(), Some(vec![1].into()));
    assert!(!snapshot.exists());
}
