//! Snapshots of an engine that has none: what is written over while one is open is kept.

use std::sync::{Arc, atomic::Ordering::SeqCst, mpsc::Receiver};

use super::{
    super::{EngineStore, OpenOptions},
    fake::*,
};
use crate::{Durability::Buffered, Entry, ErrorKind, Scan, Snapshot, Store, WriteBatch};

type Fake = EngineStore<FakeEngine>;

/// Opens a store whose snapshots share `memory` bytes.
fn open_sharing(disk: &Arc<Disk>, memory: u64) -> Fake {
    open_with(disk, &OpenOptions::new(&[A, B]).with_snapshot_bytes(memory))
}

async fn write(store: &Fake, batch: WriteBatch) {
    store.write(batch, Buffered).await.unwrap();
}

async fn begun(gate: Receiver<()>) {
    let heard = tokio::task::spawn_blocking(move || gate.recv().unwrap());
    heard.await.unwrap();
}

async fn rows(snapshot: &dyn Snapshot) -> Vec<(String, String)> {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let entries = snapshot.scan(A, Scan::all()).await.unwrap();
    let rows = entries.iter().map(|it| (text(&it.key), text(&it.value)));
    rows.collect()
}

fn row(key: &str, value: &str) -> (String, String) {
    (key.to_owned(), value.to_owned())
}

/// Mutants: keep what there was once the group is applied; read it only then.
#[tokio::test]
async fn what_a_group_writes_over_is_kept_before_the_group_is_applied() {
    for memory in [0, 1 << 20] {
        let disk: Arc<Disk> = Arc::default();
        let store = open_sharing(&disk, memory);
        write(&store, put("k", "old")).await;
        let snapshot = store.snapshot().await.unwrap();
        let (applied, release) = disk.hold_applied();
        let writing = tokio::spawn({
            let store = store.clone();
            async move { write(&store, put("k", "new")).await }
        });
        begun(applied).await;
        assert_eq!(rows(&*snapshot).await, [row("k", "old")]);
        assert_eq!(snapshot.get(A, b"k").await.unwrap(), Some(bytes("old")));
        assert_eq!(store.get(A, b"k").await.unwrap(), Some(bytes("new")));
        drop(release);
        writing.await.unwrap();
    }
}

/// Mutant: look at what was kept before the present is read.
#[tokio::test]
async fn what_is_written_while_a_snapshot_is_read_does_not_show() {
    for memory in [0, 1 << 20] {
        let disk: Arc<Disk> = Arc::default();
        let store = open_sharing(&disk, memory);
        write(&store, put("k", "old")).await;
        let snapshot = store.snapshot().await.unwrap();
        let (began, release) = disk.hold_read();
        let scanning = tokio::spawn({
            let snapshot = Arc::clone(&snapshot);
            async move { rows(&*snapshot).await }
        });
        begun(began).await;
        write(&store, put("k", "new")).await;
        drop(release);
        assert_eq!(scanning.await.unwrap(), [row("k", "old")]);

        let snapshot = store.snapshot().await.unwrap();
        let (began, release) = disk.hold_read();
        let reading = tokio::spawn({
            let snapshot = Arc::clone(&snapshot);
            async move { snapshot.get(A, b"k").await.unwrap() }
        });
        begun(began).await;
        write(&store, put("k", "newer")).await;
        drop(release);
        assert_eq!(reading.await.unwrap(), Some(bytes("new")));
    }
}

/// Mutant: look at what is written over whether a snapshot is open or not.
#[tokio::test]
async fn a_write_reads_nothing_while_no_snapshot_is_open() {
    let disk: Arc<Disk> = Arc::default();
    let store = open(&disk);
    let reads_of = async |batch| {
        let before = disk.read_count.load(SeqCst);
        write(&store, batch).await;
        disk.read_count.load(SeqCst) - before
    };
    assert_eq!(reads_of(put("k", "1")).await, 0);
    let snapshot = store.snapshot().await.unwrap();
    assert_eq!(reads_of(put("k", "2")).await, 1);
    assert_eq!(reads_of(put("k", "3")).await, 0, "it is kept once");
    drop(snapshot);
    assert_eq!(reads_of(put("k", "4")).await, 0);
}

/// Mutants: don't give the memory of a dropped snapshot back; drop the space of another one;
/// leave the space of a dropped snapshot.
#[tokio::test]
async fn what_has_no_room_in_memory_is_on_disk_until_its_snapshot_is_dropped() {
    let disk: Arc<Disk> = Arc::default();
    // Room for one key, of whichever snapshot is the first.
    let store = open_sharing(&disk, 200);
    write(&store, put("k", "1")).await;
    let first = store.snapshot().await.unwrap();
    let second = store.snapshot().await.unwrap();
    write(&store, put("k", "2")).await;
    let third = store.snapshot().await.unwrap();
    write(&store, put("k", "3")).await;
    let with = |more: &[&'static str]| [&["a@1", "b@1", "pop@0"], more].concat();
    assert_eq!(disk.space_names(), with(&["snapshot_2@0", "snapshot_3@0"]));
    drop(second);
    write(&store, put("l", "3")).await;
    let names = disk.space_names();
    assert_eq!(names, with(&["snapshot_1@0", "snapshot_3@0"]));
    assert_eq!(rows(&*first).await, [row("k", "1")]);
    assert_eq!(rows(&*third).await, [row("k", "2")]);
    drop((first, third));
    let fourth = store.snapshot().await.unwrap();
    write(&store, put("k", "4")).await;
    assert_eq!(disk.space_names(), with(&[]));
    assert_eq!(rows(&*fourth).await, [row("k", "3"), row("l", "3")]);
}

/// Mutant: have an open leave what it does not know.
#[tokio::test]
async fn what_a_snapshot_had_on_disk_when_its_process_was_killed_is_swept() {
    let disk: Arc<Disk> = Arc::default();
    let store = open_sharing(&disk, 0);
    write(&store, put("k", "1")).await;
    let _snapshot = store.snapshot().await.unwrap();
    write(&store, put("k", "2")).await;
    let after_the_kill: Arc<Disk> = Arc::default();
    after_the_kill.spaces.lock().clone_from(&disk.spaces.lock());
    assert_eq!(after_the_kill.space_names().len(), 4);
    let store = open(&after_the_kill);
    assert_eq!(after_the_kill.space_names(), ["a@1", "b@1", "pop@0"]);
    assert_eq!(store.get(A, b"k").await.unwrap(), Some(bytes("2")));
}

/// Mutant: end a scan with a part of which nothing was there.
#[tokio::test]
async fn what_lies_behind_many_new_keys_is_found() {
    for memory in [0, 1 << 20] {
        let disk: Arc<Disk> = Arc::default();
        let store = open_sharing(&disk, memory);
        write(&store, put("a", "1")).await;
        write(&store, put("z", "1")).await;
        let snapshot = store.snapshot().await.unwrap();
        let mut batch = WriteBatch::new();
        for number in 0..500 {
            batch.put(A, bytes(&format!("k{number}")), bytes("new"));
        }
        write(&store, batch).await;
        assert_eq!(rows(&*snapshot).await, [row("a", "1"), row("z", "1")]);
        for (scan, key) in [
            (Scan::from("b"), "z"),
            (Scan::range("", "z").backward(), "a"),
        ] {
            let page = snapshot.scan(A, scan.with_entries_max(1)).await.unwrap();
            assert_eq!(page.len(), 1);
            assert_eq!(page[0].key, bytes(key));
        }
    }
}

/// Mutants: keep what is written to spaces that a snapshot does not have; drop the generation
/// that a snapshot reads.
#[tokio::test]
async fn a_snapshot_keeps_the_generation_of_its_moment() {
    let disk: Arc<Disk> = Arc::default();
    let store = open_sharing(&disk, 200);
    write(&store, put("k", "1")).await;
    let before = store.snapshot().await.unwrap();
    write(&store, put("k", "2")).await;
    let mut staging = store.begin_replace(&[A]).await.unwrap();
    let loaded = |key, value| Entry {
        key: bytes(key),
        value: bytes(value),
    };
    staging
        .load(A, vec![loaded("k", "3"), loaded("l", "3")])
        .await
        .unwrap();
    let beside = store.snapshot().await.unwrap();
    staging.publish().await.unwrap();
    let after = store.snapshot().await.unwrap();
    write(&store, put("k", "4")).await;
    write(&store, put("l", "4")).await;
    let names = disk.space_names();
    assert_eq!(names, ["a@1", "a@2", "b@1", "pop@0", "snapshot_3@0"]);
    assert_eq!(rows(&*before).await, [row("k", "1")]);
    assert_eq!(rows(&*beside).await, [row("k", "2")]);
    assert_eq!(rows(&*after).await, [row("k", "3"), row("l", "3")]);
    drop((before, beside, after));
    write(&store, put("k", "5")).await;
    assert_eq!(disk.space_names(), ["a@2", "b@1", "pop@0"]);
}

/// Mutants: refuse the write; go on with the snapshot, which would show what was written.
#[tokio::test]
async fn a_snapshot_for_which_nothing_can_be_kept_ends_and_the_write_does_not() {
    let disk: Arc<Disk> = Arc::default();
    let store = open_sharing(&disk, 0);
    write(&store, put("k", "1")).await;
    let ended = store.snapshot().await.unwrap();
    *disk.space_fault.lock() = Some(Fault::Refuse);
    write(&store, put("k", "2")).await;
    let later = store.snapshot().await.unwrap();
    write(&store, put("k", "3")).await;
    let errors = [
        ended.get(A, b"k").await.unwrap_err(),
        ended.scan(A, Scan::all()).await.unwrap_err(),
    ];
    for error in errors {
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        let text = error.to_string();
        assert!(
            text.contains("could not be kept for it: fake store"),
            "{text}"
        );
        assert!(text.contains("take another one"), "{text}");
    }
    assert_eq!(rows(&*later).await, [row("k", "2")]);
    assert_eq!(store.get(A, b"k").await.unwrap(), Some(bytes("3")));
}

/// Mutants: write all that a range delete deletes in one part; forget the parts before the last.
#[tokio::test]
async fn a_large_range_delete_is_kept_in_parts() {
    let disk: Arc<Disk> = Arc::default();
    let store = open_sharing(&disk, 0);
    for number in 0..200 {
        write(&store, put(&format!("{number:03}"), &"v".repeat(64 << 10))).await;
    }
    let snapshot = store.snapshot().await.unwrap();
    let applied = disk.applied();
    let mut batch = WriteBatch::new();
    batch.delete_range(A, bytes("0"), bytes("2"));
    batch.put(A, bytes("007"), bytes("new"));
    write(&store, batch).await;
    // 12.5 MiB: three parts, and the rest with the delete.
    assert_eq!(disk.applied() - applied, 4);
    let mut keys = Vec::new();
    let mut scan = Scan::all().backward();
    loop {
        let page = snapshot.scan(A, scan.clone()).await.unwrap();
        assert!(page.iter().all(|it| it.value.len() == 64 << 10));
        let Some(last) = page.last() else { break };
        scan.end = Some(last.key.clone());
        keys.extend(page.into_iter().map(|it| it.key));
    }
    let expected = (0..200).rev().map(|it| bytes(&format!("{it:03}")));
    assert_eq!(keys, expected.collect::<Vec<_>>());
}

#[cfg(feature = "testkit")]
mod random {
    use std::{collections::BTreeMap, ops::Bound};

    use bytes::Bytes;

    use super::*;
    use crate::{Direction, testkit::Random};

    type Model = BTreeMap<Bytes, Bytes>;

    const KEYS: u64 = 400;
    const STEPS: u64 = 500;

    /// Mutants: keep nothing of a range delete; don't keep that a key was not there; have a
    /// second write replace what was kept; have a snapshot end with another; let a page reach
    /// behind the part of which all is known.
    #[tokio::test]
    async fn snapshots_show_their_moments_wherever_it_is_kept() {
        for (seed, memory) in (0..).zip([0, 10_000, 30_000, 1 << 20]) {
            let mut random = Random::new(seed);
            let disk: Arc<Disk> = Arc::default();
            let store = open_sharing(&disk, memory);
            let mut model = Model::new();
            let mut open: Vec<(Arc<dyn Snapshot>, Model)> = Vec::new();
            for step in 0..STEPS {
                match random.below(12) {
                    0 if open.len() < 4 => {
                        open.push((store.snapshot().await.unwrap(), model.clone()));
                    }
                    1 if open.len() > 2 && random.chance(1, 4) => {
                        open.swap_remove(random.index(open.len()));
                    }
                    2..6 if !open.is_empty() => {
                        let (snapshot, then) = &open[random.index(open.len())];
                        let told = format!("seed {seed}, step {step}");
                        let scan = range(&mut random);
                        let entries = snapshot.scan(A, scan.clone()).await.unwrap();
                        assert_eq!(entries, expected(then, &scan), "{told}: {scan:?}");
                        let key = key(&mut random);
                        let value = snapshot.get(A, &key).await.unwrap();
                        assert_eq!(value.as_ref(), then.get(&key), "{told}: {key:?}");
                    }
                    _ => {
                        let (batch, after) = change(&mut random, &model);
                        write(&store, batch).await;
                        model = after;
                    }
                }
            }
            drop(open);
            write(&store, put("last", "")).await;
            assert_eq!(disk.space_names(), ["a@1", "b@1", "pop@0"]);
        }
    }

    fn key(random: &mut Random) -> Bytes {
        let number = u16::try_from(random.below(KEYS)).unwrap();
        Bytes::copy_from_slice(&number.to_be_bytes())
    }

    fn change(random: &mut Random, before: &Model) -> (WriteBatch, Model) {
        let mut after = before.clone();
        let mut batch = WriteBatch::new();
        if random.chance(1, 6) {
            let (start, end) = (key(random), key(random));
            after.retain(|key, _| *key < start || *key >= end);
            batch.delete_range(A, start, end);
        }
        for _ in 0..random.below(20) {
            let key = key(random);
            after.remove(&key);
            batch.delete(A, key);
        }
        for _ in 0..random.below(60) {
            let key = key(random);
            let value = Bytes::from(random.next_u64().to_string());
            after.insert(key.clone(), value.clone());
            batch.put(A, key, value);
        }
        (batch, after)
    }

    fn range(random: &mut Random) -> Scan {
        let mut scan = match random.below(3) {
            0 => Scan::from(key(random)),
            1 => Scan::range(key(random), key(random)),
            _ => Scan::all(),
        };
        if random.chance(1, 2) {
            scan = scan.with_entries_max(random.index(150));
        }
        if random.chance(1, 4) {
            scan = scan.with_bytes_max(random.index(2_000));
        }
        match random.chance(1, 2) {
            true => scan.backward(),
            false => scan,
        }
    }

    fn expected(model: &Model, scan: &Scan) -> Vec<Entry> {
        if scan.is_empty() {
            return Vec::new();
        }
        let end = scan.end.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
        let rows = model.range::<Bytes, _>((Bound::Included(&scan.start), end));
        let rows = rows.map(|(key, value)| {
            let (key, value) = (key.clone(), value.clone());
            Ok::<_, ()>(Entry { key, value })
        });
        let entries = match scan.direction {
            Direction::Forward => scan.collect(rows),
            Direction::Backward => scan.collect(rows.rev()),
        };
        entries.unwrap()
    }
}
