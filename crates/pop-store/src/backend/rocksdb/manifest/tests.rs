//! A MANIFEST with damage in it: what was never synced is cut off, what was is not.

use bytes::Bytes;
use tempfile::TempDir;

use super::{
    records::{BLOCK_BYTES, FIRST, FULL, HEADER_BYTES, LAST, MIDDLE, SECTOR_BYTES, masked},
    synced::MARK,
    *,
};
use crate::{
    Durability::Synced,
    Keyspace, OpenOptions, Scan, Store, WriteBatch,
    backend::{
        engine::{Engine, Space},
        folder::copy::copy_folder,
        rocksdb::{RocksEngine, RocksStore},
    },
};

const A: Keyspace = Keyspace::new("a");
// Each is a record of some 40 bytes.
const KEYSPACES: [Keyspace; 32] = keyspaces();
const GROUPS: u8 = 5;
const MEMTABLE_BYTES: u64 = 1 << 20;

const fn keyspaces() -> [Keyspace; 32] {
    let mut keyspaces = [A; 32];
    let mut at = 1;
    while at < keyspaces.len() {
        keyspaces[at] = Keyspace::new("abcdefghijklmnopqrstuvwxyzabcdef".split_at(at).1);
        at += 1;
    }
    keyspaces
}

fn open(folder: &TempDir) -> Result<RocksStore> {
    RocksStore::open(folder.path(), OpenOptions::new(&KEYSPACES))
}

/// A closed store: all is synced, and the marks say so.
async fn synced_folder() -> TempDir {
    let folder = TempDir::new().unwrap();
    // Not in the first life, whose MANIFEST is of one piece.
    let options = OpenOptions::new(&[A]);
    let store = RocksStore::open(folder.path(), options).unwrap();
    store.close().await.unwrap();
    let store = open(&folder).unwrap();
    for number in 0..GROUPS {
        let mut batch = WriteBatch::new();
        batch.put(A, vec![number].into(), Bytes::from(vec![number; 100]));
        store.write(batch, Synced).await.unwrap();
    }
    store.close().await.unwrap();
    folder
}

/// One whose MANIFEST ends with records that a power cut may tear, and where they begin.
/// They add so many spaces, and the last one of them lies in two sectors.
async fn folder_with_open_end(spaces: usize) -> (TempDir, usize) {
    let folder = synced_folder().await;
    let engine = RocksEngine::open(&engine_of(&folder), MEMTABLE_BYTES).unwrap();
    let manifest = current(&engine_of(&folder)).unwrap();
    let length = || fs::read(&manifest).unwrap().len();
    let mut ends = vec![length()];
    let sector = |at: usize| at / SECTOR_BYTES;
    for number in 1.. {
        engine.open_space(&Space::new("more", number)).unwrap();
        ends.push(length());
        let [.., before, end] = ends[..] else {
            unreachable!("there are two")
        };
        if ends.len() > spaces && sector(before + HEADER_BYTES) < sector(end - 1) {
            break;
        }
    }
    // RocksDB adds nothing when it is closed, so this is what a power cut before the end of
    // the last sync may find.
    drop(engine);
    assert_eq!(Some(&length()), ends.last());
    let open_end = ends[ends.len() - 1 - spaces];
    (folder, open_end)
}

fn engine_of(folder: &TempDir) -> PathBuf {
    folder.path().join("engine")
}

fn manifest_of(folder: &TempDir) -> PathBuf {
    current(&engine_of(folder)).unwrap()
}

fn copy_of(folder: &TempDir) -> TempDir {
    let copy = TempDir::new().unwrap();
    copy_folder(folder.path(), copy.path());
    copy
}

fn change(folder: &TempDir, edit: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let manifest = manifest_of(folder);
    let mut content = fs::read(&manifest).unwrap();
    edit(&mut content);
    fs::write(manifest, &content).unwrap();
    content
}

async fn check_holds_all(store: &RocksStore) {
    let entries = store.scan(A, Scan::all()).await.unwrap();
    assert_eq!(entries.len(), usize::from(GROUPS));
}

/// It opens, holds everything, and does so again; nothing is left of the trial.
async fn check_opens(folder: &TempDir) {
    for _ in 0..2 {
        let store = open(folder).unwrap();
        check_holds_all(&store).await;
        store.close().await.unwrap();
    }
    check_no_copy_is_left(folder);
}

#[track_caller]
fn check_no_copy_is_left(folder: &TempDir) {
    let names = fs::read_dir(engine_of(folder)).unwrap();
    let mut names = names.map(|it| it.unwrap().file_name().into_string().unwrap());
    assert_eq!(names.find(|it| it.contains("before-cut")), None);
}

/// The length came before the bytes: the last record's second sector was never written.
///
/// Mutants: open without a look at the MANIFEST; take the end of the torn record for that
/// of the whole ones.
#[tokio::test]
async fn a_record_whose_last_sector_was_never_written_is_cut_off() {
    let (folder, before) = folder_with_open_end(1).await;
    let content = change(&folder, |content| {
        let sector = (content.len() - 1) / SECTOR_BYTES * SECTOR_BYTES;
        content[sector..].fill(0);
    });
    assert_eq!(torn_at(&content), Some(before));
    // What RocksDB does by itself, so that we notice when a new version does better.
    let alone = copy_of(&folder);
    let error = RocksEngine::open(&engine_of(&alone), MEMTABLE_BYTES).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    assert!(error.to_string().contains("checksum mismatch"), "{error}");
    check_opens(&folder).await;
}

/// Of records that were appended together, one in the middle was not written.
///
/// Mutant: cut only where nothing whole follows.
#[tokio::test]
async fn a_hole_among_records_that_were_never_synced_is_cut_off_with_what_follows() {
    let (folder, before) = folder_with_open_end(40).await;
    let mut hole = 0;
    let content = change(&folder, |content| {
        hole = (before / SECTOR_BYTES + 1) * SECTOR_BYTES;
        assert!(hole + 2 * SECTOR_BYTES < content.len());
        content[hole..hole + SECTOR_BYTES].fill(0);
    });
    let at = torn_at(&content).unwrap();
    assert!((before..=hole).contains(&at), "{before} {at} {hole}");
    check_opens(&folder).await;
}

/// Mutants: don't mark how far the MANIFEST is synced; cut before the mark.
#[tokio::test]
async fn a_lost_sector_of_what_was_synced_is_refused_and_stays_as_it_is() {
    let whole = synced_folder().await;
    let length = fs::read(manifest_of(&whole)).unwrap().len();
    for start in (0..length).step_by(SECTOR_BYTES) {
        let folder = copy_of(&whole);
        let content = change(&folder, |content| {
            content[start..length.min(start + SECTOR_BYTES)].fill(0);
        });
        for _ in 0..2 {
            let error = open(&folder).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
            assert!(error.to_string().contains("were synced"), "{error}");
        }
        assert_eq!(fs::read(manifest_of(&folder)).unwrap(), content);
    }
}

/// Mutant: take the mark of one MANIFEST for that of the next.
#[tokio::test]
async fn a_mark_says_nothing_of_another_manifest() {
    let folder = synced_folder().await;
    let synced = SyncedPart::open(&engine_of(&folder)).unwrap();
    let manifest = manifest_of(&folder);
    let length = fs::read(&manifest).unwrap().len();
    assert_eq!(synced.of(&manifest), length);
    assert_eq!(synced.of(&manifest.with_file_name("MANIFEST-999999")), 0);
}

/// A mark that a power cut took along.
///
/// Mutants: keep the cut without a proof; leave it when the proof fails; open for writing
/// to prove it.
#[tokio::test]
async fn without_a_mark_a_lost_sector_is_refused_or_does_no_harm() {
    let whole = synced_folder().await;
    let length = fs::read(manifest_of(&whole)).unwrap().len();
    let (mut refused, mut originals) = (0, 0);
    for start in (0..length).step_by(SECTOR_BYTES) {
        let folder = copy_of(&whole);
        fs::remove_file(engine_of(&folder).join(MARK)).unwrap();
        let content = change(&folder, |content| {
            content[start..length.min(start + SECTOR_BYTES)].fill(0);
        });
        let alone = copy_of(&folder);
        match open(&folder) {
            Ok(store) => {
                check_holds_all(&store).await;
                store.close().await.unwrap();
            }
            Err(error) => {
                refused += 1;
                assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
                assert_eq!(fs::read(manifest_of(&folder)).unwrap(), content);
                check_no_copy_is_left(&folder);
                // Where RocksDB refuses the file as it was found, it is its error.
                if let Err(original) = RocksEngine::open(&engine_of(&alone), MEMTABLE_BYTES) {
                    let cause =
                        |it: &Error| it.to_string().split("  The file").next().map(str::to_owned);
                    assert_eq!(cause(&error), cause(&original));
                    originals += 1;
                }
            }
        }
    }
    assert!(
        originals > 0 && refused > originals,
        "{originals} of {refused}"
    );
}

/// Mutant: cut whatever is not whole.
#[tokio::test]
async fn a_changed_byte_is_not_taken_for_a_torn_end() {
    let (folder, before) = folder_with_open_end(1).await;
    let whole = fs::read(manifest_of(&folder)).unwrap();
    assert_eq!(torn_at(&whole), None);
    for at in before..whole.len() {
        // A length that reaches beyond the file is what a torn one has as well.
        if (before + 4..before + 6).contains(&at) {
            continue;
        }
        let mut changed = whole.clone();
        changed[at] ^= 1;
        assert_eq!(torn_at(&changed), None, "byte {at}");
    }
    let content = change(&folder, |content| content[before + HEADER_BYTES] ^= 1);
    let error = open(&folder).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    assert_eq!(fs::read(manifest_of(&folder)).unwrap(), content);
}

/// A crash between the cut and the verdict on it.
///
/// Mutant: don't look for a copy.
#[tokio::test]
async fn a_cut_without_a_verdict_is_taken_back() {
    let folder = synced_folder().await;
    let manifest = manifest_of(&folder);
    drop(Trial::cut(&manifest, 100).unwrap());
    check_opens(&folder).await;
}

/// Records that go on over blocks, and blocks with less room than a header at their end.
///
/// Mutants: take a part of a record for a whole one; don't leave a block's end out.
#[test]
fn records_are_walked_as_rocksdb_writes_them() {
    let fragment = |kind: u8, length: usize| {
        let covered = [vec![kind], vec![7; length]].concat();
        let [c3, c2, c1, c0] = masked(crc32c::crc32c(&covered)).to_be_bytes();
        let [high, low] = u16::try_from(length).unwrap().to_be_bytes();
        [vec![c0, c1, c2, c3, low, high], covered].concat()
    };
    let mut bytes = fragment(FULL, BLOCK_BYTES - HEADER_BYTES - 3);
    let first = bytes.len();
    bytes.extend([0; 3]);
    assert_eq!(torn_at(&bytes), None);
    bytes.extend(fragment(FIRST, BLOCK_BYTES - HEADER_BYTES));
    assert_eq!(torn_at(&bytes), Some(first));
    bytes.extend(fragment(MIDDLE, BLOCK_BYTES - HEADER_BYTES));
    assert_eq!(torn_at(&bytes), Some(first));
    bytes.extend(fragment(LAST, 1_000));
    assert_eq!(torn_at(&bytes), None);
    let whole = bytes.len();
    bytes.extend(fragment(FULL, 10));
    assert_eq!(torn_at(&bytes[..whole + 12]), Some(whole));
    // Its header was never written.
    bytes[whole..].fill(0);
    assert_eq!(torn_at(&bytes), Some(whole));
    // The end of the long one was not: the second of the sectors that it has in its block.
    bytes[3 * BLOCK_BYTES + SECTOR_BYTES..][..SECTOR_BYTES].fill(0);
    assert_eq!(torn_at(&bytes), Some(first));
}
