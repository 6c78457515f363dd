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

/// Mutants: trust `flush`, which syncs nothing on Linux; sync only when asked to.
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
