//! What RocksDB in particular does to a store.

use std::fs;

use rocksdb::perf::{PerfContext, PerfMetric, PerfStatsLevel, set_perf_stats};
use tempfile::TempDir;

use super::*;
use crate::{
    Durability::Synced,
    Keyspace, Staging, Store, WriteBatch as StoreBatch,
    backend::{engine::Operation, folder::copy::copy_folder},
};

const A: Keyspace = Keyspace::new("a");
const B: Keyspace = Keyspace::new("b");

fn open(folder: &TempDir) -> Result<RocksStore> {
    RocksStore::open(folder.path(), OpenOptions::new(&[A]))
}

/// How many deleted entries a scan from `start` steps over on its way to `entries_max` live ones.
fn deletes_stepped_over(engine: &RocksEngine, space: &Space, start: &[u8]) -> u64 {
    let scan = Scan::from(start.to_vec()).with_entries_max(10);
    let mut context = PerfContext::default();
    context.reset();
    let entries = engine.scan(space, &scan).unwrap();
    assert_eq!(entries.len(), 10);
    context.metric(PerfMetric::InternalDeleteSkippedCount)
}

/// Mutant: leave the lower bound out and seek to the first key.
#[test]
fn a_scan_with_a_floor_does_not_walk_the_deletes_below_it() {
    const DELETED: u32 = 200_000;
    const LIVE: u32 = 10;
    let folder = TempDir::new().unwrap();
    let engine = RocksEngine::open(folder.path(), 32 << 20).unwrap();
    let space = Space::new("due", 1);
    engine.open_space(&space).unwrap();
    let operation = |number: u32, value: Option<Bytes>| Operation {
        space: space.clone(),
        key: Bytes::copy_from_slice(&number.to_be_bytes()),
        value,
    };
    let apply = |numbers: std::ops::Range<u32>, value: Option<Bytes>| {
        let operations = numbers.map(|it| operation(it, value.clone())).collect();
        let changes = Changes {
            operations,
            ..Changes::default()
        };
        engine.apply(&changes, false).unwrap();
    };
    for start in (0..DELETED).step_by(1_000) {
        apply(start..start + 1_000, Some(Bytes::from_static(b"due")));
        apply(start..start + 1_000, None);
    }
    apply(DELETED..DELETED + LIVE, Some(Bytes::from_static(b"due")));
    set_perf_stats(PerfStatsLevel::EnableCount);
    let without_floor = deletes_stepped_over(&engine, &space, b"");
    let with_floor = deletes_stepped_over(&engine, &space, &DELETED.to_be_bytes());
    assert!(
        without_floor > 100_000,
        "{without_floor} deletes in the way"
    );
    assert_eq!(with_floor, 0);
}

/// Mutant: open without the sweep.
#[tokio::test]
async fn options_that_a_crash_left_unfinished_are_swept() {
    let folder = TempDir::new().unwrap();
    open(&folder).unwrap().close().await.unwrap();
    let engine = folder.path().join("engine");
    let left = engine.join("OPTIONS-000007.dbtmp");
    fs::write(&left, "").unwrap();
    // What RocksDB does by itself, so that we notice when a new version does better.
    drop(RocksEngine::open(&engine, 32 << 20).unwrap());
    assert!(left.exists());
    open(&folder).unwrap().close().await.unwrap();
    assert!(!left.exists());
}

/// RocksDB recovers to the point before the damage and says nothing. The store's own count
/// of groups does.
///
/// Mutant: don't hold the history against the high-water mark.
#[tokio::test]
async fn a_flipped_byte_in_the_log_is_refused() {
    let folder = TempDir::new().unwrap();
    let store = open(&folder).unwrap();
    for number in 0..100_u8 {
        let mut batch = StoreBatch::new();
        batch.put(
            A,
            Bytes::copy_from_slice(&[number]),
            Bytes::from(vec![number; 100]),
        );
        store.write(batch, Synced).await.unwrap();
    }
    // As a killed process leaves it: a close would flush the log into tables.
    let copy = TempDir::new().unwrap();
    copy_folder(folder.path(), copy.path());
    store.close().await.unwrap();
    let engine = copy.path().join("engine");
    let files = fs::read_dir(engine).unwrap().map(|it| it.unwrap().path());
    let log = files
        .filter(|it| it.extension().is_some_and(|it| it == "log"))
        .max_by_key(|it| fs::metadata(it).unwrap().len())
        .unwrap();
    let mut content = fs::read(&log).unwrap();
    let middle = content.len() / 2;
    content[middle] ^= 1;
    fs::write(&log, content).unwrap();
    for _ in 0..2 {
        let error = open(&copy).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    }
}

/// More than its memtables hold, faster than they are flushed.
///
/// Mutant: refuse a write that meets a stall.
#[test]
fn a_stall_is_waited_out() {
    const MEMTABLE_BYTES: u64 = 64 << 10;
    let folder = TempDir::new().unwrap();
    let engine = RocksEngine::open(folder.path(), MEMTABLE_BYTES).unwrap();
    let space = Space::new("rows", 1);
    engine.open_space(&space).unwrap();
    let value = Bytes::from(vec![7; 8 << 10]);
    for number in 0..2_000_u32 {
        let operation = Operation {
            space: space.clone(),
            key: Bytes::copy_from_slice(&number.to_be_bytes()),
            value: Some(value.clone()),
        };
        let changes = Changes {
            operations: vec![operation],
            ..Changes::default()
        };
        engine.apply(&changes, false).unwrap();
    }
}

#[tokio::test]
async fn a_snapshot_lets_go_of_the_database_when_the_store_is_closed() {
    let folder = TempDir::new().unwrap();
    let store = open(&folder).unwrap();
    let snapshot = store.snapshot().await.unwrap();
    store.close().await.unwrap();
    open(&folder).unwrap().close().await.unwrap();
    let error = snapshot.get(A, b"k").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Poisoned);
}

/// Loads `megabytes` in rows of 64 KiB, and a keyspace that stays empty beside them.
async fn load(store: &RocksStore, megabytes: u32) -> Box<dyn Staging> {
    let mut staging = store.begin_replace(&[A, B]).await.unwrap();
    for number in 0..megabytes * 16 {
        let entry = Entry {
            key: Bytes::copy_from_slice(&number.to_be_bytes()),
            value: vec![1; 64 << 10].into(),
        };
        staging.load(A, vec![entry]).await.unwrap();
    }
    staging
}

/// Mutants: leave `set_snapshot_consistency(false)` out, which fails under a snapshot; open a
/// file for the empty keyspace, which can't be finished.
#[tokio::test]
async fn sorted_files_are_taken_over_while_a_snapshot_is_open() {
    let folder = TempDir::new().unwrap();
    let store = RocksStore::open(folder.path(), OpenOptions::new(&[A, B])).unwrap();
    let mut batch = StoreBatch::new();
    batch.put(A, Bytes::from_static(b"old"), Bytes::from_static(b"1"));
    store.write(batch, Synced).await.unwrap();
    let snapshot = store.snapshot().await.unwrap();
    let staging = load(&store, 4).await;
    assert!(folder.path().join("engine/staging/a@2").is_dir());
    assert!(!folder.path().join("engine/staging/b@2").exists());
    staging.publish().await.unwrap();
    assert!(!folder.path().join("engine/staging/a@2").exists());
    let count = |it: Vec<Entry>| it.len();
    let all = Scan::all().with_bytes_max(usize::MAX);
    assert_eq!(count(store.scan(A, all.clone()).await.unwrap()), 64);
    assert_eq!(count(snapshot.scan(A, all.clone()).await.unwrap()), 1);
    drop(snapshot);
    store.close().await.unwrap();
    let store = RocksStore::open(folder.path(), OpenOptions::new(&[A, B])).unwrap();
    assert_eq!(count(store.scan(A, all).await.unwrap()), 64);
}

/// Mutants: leave `run_in_background` out of either thread.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn what_reads_a_snapshot_and_what_makes_its_files_goes_behind_others() {
    let folder = TempDir::new().unwrap();
    let store = RocksStore::open(folder.path(), OpenOptions::new(&[A, B])).unwrap();
    let snapshot = store.snapshot().await.unwrap();
    let staging = load(&store, 4).await;
    let threads = fs::read_dir("/proc/self/task").unwrap();
    let lowered = threads.filter_map(|it| {
        let thread = it.unwrap().path();
        // One of another test may be gone by now.
        let name = fs::read_to_string(thread.join("comm")).ok()?;
        let stat = fs::read_to_string(thread.join("stat")).ok()?;
        let (_, behind_name) = stat.rsplit_once(") ")?;
        let niceness: i32 = behind_name.split(' ').nth(16)?.parse().ok()?;
        (niceness == 10).then(|| name.trim_end().to_owned())
    });
    let lowered: Vec<_> = lowered.collect();
    for name in ["store-snapshot", "store-loader"] {
        assert!(lowered.iter().any(|it| it == name), "{name}: {lowered:?}");
    }
    assert!(!lowered.iter().any(|it| it == "store-writer"));
    staging.abort().await.unwrap();
    drop(snapshot);
}

/// Mutants: don't drop the files with the space; don't sweep them at open.
#[tokio::test]
async fn staged_files_go_with_an_abort_and_with_the_next_open() {
    let folder = TempDir::new().unwrap();
    let staging = folder.path().join("engine/staging");
    let store = RocksStore::open(folder.path(), OpenOptions::new(&[A, B])).unwrap();
    load(&store, 4).await.abort().await.unwrap();
    assert_eq!(fs::read_dir(&staging).unwrap().count(), 0);
    store.close().await.unwrap();
    fs::create_dir(staging.join("a@7")).unwrap();
    fs::write(staging.join("a@7/0000000000.sst"), b"left").unwrap();
    let store = RocksStore::open(folder.path(), OpenOptions::new(&[A, B])).unwrap();
    assert!(!staging.exists());
    drop(store);
}

/// Rows in memory, in tables, and in both; and deletes of rows that are nowhere any more.
/// Mutants: tables are not looked at; what is in memory is not counted; RocksDB's own count.
#[test]
fn an_estimate_is_about_right_wherever_the_rows_are() {
    const ROWS: u64 = 96;
    const BYTES: u64 = 64 << 10;
    let folder = TempDir::new().unwrap();
    let space = Space::new("body", 1);
    let value = Bytes::from(vec![7; usize::try_from(BYTES).unwrap()]);
    let apply = |engine: &RocksEngine, numbers: std::ops::Range<u64>, value: Option<&Bytes>| {
        let operation = |number: u64| Operation {
            space: space.clone(),
            key: Bytes::copy_from_slice(&number.to_be_bytes()),
            value: value.cloned(),
        };
        let changes = Changes {
            operations: numbers.map(operation).collect(),
            ..Changes::default()
        };
        engine.apply(&changes, true).unwrap();
    };
    let check = |engine: &RocksEngine, rows: u64, place: &str| {
        let estimate = engine.estimate(&space).unwrap().unwrap();
        assert_eq!(estimate.rows, rows, "{place}");
        let about = rows * BYTES..rows * BYTES * 3 / 2;
        let bytes = estimate.bytes.unwrap();
        assert!(about.contains(&bytes), "{place}: {bytes}");
    };
    let engine = RocksEngine::open(folder.path(), 64 << 20).unwrap();
    engine.open_space(&space).unwrap();
    apply(&engine, 0..ROWS, Some(&value));
    check(&engine, ROWS, "in memory");
    apply(&engine, 1_000..1_024, Some(&value));
    apply(&engine, 1_000..1_024, None);
    // An open flushes what it finds in the log.
    drop(engine);
    let engine = RocksEngine::open(folder.path(), 64 << 20).unwrap();
    check(&engine, ROWS, "in tables");
    apply(&engine, ROWS..2 * ROWS, Some(&value));
    check(&engine, 2 * ROWS, "in both");
}
