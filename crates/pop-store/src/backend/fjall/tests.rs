//! What fjall in particular does to a store.

use tempfile::TempDir;

use super::*;
use crate::{
    Durability::{Buffered, Synced},
    Keyspace, Store, WriteBatch,
    backend::folder::copy::copy_folder,
};

const A: Keyspace = Keyspace::new("a");
const B: Keyspace = Keyspace::new("b");

fn open(folder: &TempDir) -> Result<FjallStore> {
    FjallStore::open(folder.path(), OpenOptions::new(&[A, B]))
}

fn bytes(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

#[tokio::test]
async fn a_range_delete_and_a_put_of_one_batch_leave_the_put() {
    let folder = TempDir::new().unwrap();
    let store = open(&folder).unwrap();
    let mut batch = WriteBatch::new();
    for key in ["", "\0", "k1", "k2", "k3"] {
        batch.put(A, bytes(key), bytes("old"));
    }
    store.write(batch, Buffered).await.unwrap();
    let mut batch = WriteBatch::new();
    batch
        .delete_range(A, bytes(""), bytes("k3"))
        .delete_range(A, bytes("k1"), bytes("k2"))
        .put(A, bytes("k2"), bytes("new"))
        .put(B, bytes(""), bytes("empty"));
    store.write(batch, Synced).await.unwrap();
    store.close().await.unwrap();
    let store = open(&folder).unwrap();
    let entries = store.scan(A, Scan::all()).await.unwrap();
    let keys: Vec<_> = entries
        .iter()
        .map(|it| (&it.key[..], &it.value[..]))
        .collect();
    assert_eq!(keys, [(&b"k2"[..], &b"new"[..]), (b"k3", b"old")]);
    assert_eq!(store.get(B, b"").await.unwrap(), Some(bytes("empty")));
}

/// A staging that came to nothing, in one process, and one that was published, in the next.
///
/// Mutant: delete trees without a pin above them.
#[tokio::test]
async fn a_tree_never_gets_the_number_of_a_deleted_one() {
    let folder = TempDir::new().unwrap();
    for life in 0..4 {
        let store = open(&folder).unwrap();
        let staging = store.begin_replace(&[A, B]).await.unwrap();
        staging.abort().await.unwrap();
        store.close().await.unwrap();
        let store = open(&folder).unwrap();
        let mut staging = store.begin_replace(&[A, B]).await.unwrap();
        let entry = Entry {
            key: bytes("life"),
            value: bytes(&life.to_string()),
        };
        staging.load(A, vec![entry.clone()]).await.unwrap();
        staging.publish().await.unwrap();
        store.close().await.unwrap();
        let store = open(&folder).unwrap();
        assert_eq!(store.scan(A, Scan::all()).await.unwrap(), [entry]);
        store.close().await.unwrap();
    }
}

/// A power cut in the making of a tree: its entry in the list of trees is on the disk, and
/// neither its folder nor the rows that were written just before.
///
/// Mutants: skip no number at open; let the first tree be another one than a pin.
#[tokio::test]
async fn a_tree_never_gets_the_number_of_one_whose_making_was_cut() {
    let folder = TempDir::new().unwrap();
    open(&folder).unwrap().close().await.unwrap();
    let cut = TempDir::new().unwrap();
    copy_folder(folder.path(), cut.path());
    let store = open(&folder).unwrap();
    for _ in 0..100 {
        let mut batch = WriteBatch::new();
        batch.put(A, bytes("k"), bytes("v"));
        store.write(batch, Buffered).await.unwrap();
    }
    let staging = store.begin_replace(&[B]).await.unwrap();
    let trees = |folder: &TempDir| folder.path().join("engine/keyspaces");
    fs::remove_dir_all(trees(&cut)).unwrap();
    copy_folder(&trees(&folder), &trees(&cut));
    drop((staging, store));
    let names = fs::read_dir(trees(&cut)).unwrap();
    let numbers = names.map(|it| it.unwrap().file_name().to_str().unwrap().parse::<u64>());
    let last = numbers.map(Result::unwrap).max().unwrap();
    fs::remove_dir_all(trees(&cut).join(last.to_string())).unwrap();

    let store = open(&cut).unwrap();
    let mut staging = store.begin_replace(&[A]).await.unwrap();
    let entry = Entry {
        key: bytes("k"),
        value: bytes("new"),
    };
    staging.load(A, vec![entry.clone()]).await.unwrap();
    staging.publish().await.unwrap();
    store.close().await.unwrap();
    let store = open(&cut).unwrap();
    assert_eq!(store.scan(A, Scan::all()).await.unwrap(), [entry]);
}

/// Mutant: open without the sweep.
#[tokio::test]
async fn a_version_that_a_crash_left_unfinished_is_swept() {
    let folder = TempDir::new().unwrap();
    open(&folder).unwrap().close().await.unwrap();
    let engine = folder.path().join("engine");
    let left = engine.join("keyspaces/1/.tmpAbCdEf");
    fs::write(&left, "").unwrap();
    // What fjall does by itself, so that we notice when a new version does better.
    drop(FjallEngine::open(&engine, 32 << 20).unwrap());
    assert!(left.exists());
    open(&folder).unwrap().close().await.unwrap();
    assert!(!left.exists());
}

mod damage {
    //! A journal with damage in it: the open must refuse, or say what it cut.

    use std::{fs, path::PathBuf, time::Duration};

    use super::*;
    use crate::ErrorKind;

    const GROUPS: usize = 5;

    fn put(number: usize) -> WriteBatch {
        let mut batch = WriteBatch::new();
        batch.put(A, bytes(&format!("k{number}")), bytes(&"v".repeat(100)));
        batch
    }

    fn journal_of(folder: &TempDir) -> PathBuf {
        let engine = folder.path().join("engine");
        let files = fs::read_dir(engine).unwrap().map(|it| it.unwrap().path());
        let mut journals: Vec<_> = files
            .filter(|it| it.extension().is_some_and(|it| it == "jnl"))
            .collect();
        assert_eq!(journals.len(), 1);
        journals.pop().unwrap()
    }

    /// A closed store whose journal has some synced groups and no room behind them.
    async fn synced_folder() -> TempDir {
        let folder = TempDir::new().unwrap();
        // A fresh journal is made with room for 64 MiB, which the next open takes away.
        open(&folder).unwrap().close().await.unwrap();
        let store = open(&folder).unwrap();
        for number in 0..GROUPS {
            store.write(put(number), Synced).await.unwrap();
        }
        store.close().await.unwrap();
        folder
    }

    /// A folder as a killed process leaves it: group `GROUPS` is written and not synced.
    async fn killed_folder() -> TempDir {
        let folder = synced_folder().await;
        let options = OpenOptions::new(&[A, B]).with_buffered_sync(Duration::from_secs(3_600));
        let store = FjallStore::open(folder.path(), options).unwrap();
        store.write(put(GROUPS), Buffered).await.unwrap();
        let copy = TempDir::new().unwrap();
        copy_folder(folder.path(), copy.path());
        store.close().await.unwrap();
        copy
    }

    fn change(journal: &Path, edit: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        let mut content = fs::read(journal).unwrap();
        edit(&mut content);
        fs::write(journal, &content).unwrap();
        content
    }

    /// What fjall does by itself, so that we notice when a new version does better: it
    /// refuses a wrong checksum, and cuts the file without a word at a broken structure.
    #[tokio::test]
    async fn fjall_alone_cuts_a_journal_at_a_broken_structure() {
        for (at_item, cut) in [(0, true), (60, false)] {
            let folder = synced_folder().await;
            let journal = journal_of(&folder);
            let mut length = 0;
            change(&journal, |content| {
                // The item of the last group but two begins with the tag 2 after 13 bytes.
                let value = content.windows(2).position(|it| it == b"k2").unwrap();
                let item = value - 21;
                assert_eq!(content[item], 2);
                content[item + at_item] ^= 0x40;
                length = content.len();
            });
            let opened = FjallEngine::open(&folder.path().join("engine"), 32 << 20);
            assert_eq!(opened.is_ok(), cut, "{opened:?}");
            drop(opened);
            let left = fs::read(&journal).unwrap().len();
            assert_eq!(left < length, cut, "{left} of {length} bytes are left");
        }
    }

    /// Mutant: open fjall without looking at its journal first.
    #[tokio::test]
    async fn a_flipped_byte_anywhere_in_synced_groups_is_refused_or_does_no_harm() {
        let folder = synced_folder().await;
        let journal = journal_of(&folder);
        let engine = folder.path().join("engine");
        let whole = fs::read(&journal).unwrap();
        let held = DataFolder::claim(folder.path(), NAME).unwrap();
        let synced = held.high_water().unwrap().sequence();
        drop(held);
        journal::check(&engine, synced).map(drop).unwrap();
        for at in 0..whole.len() {
            let content = change(&journal, |content| content[at] ^= 0x80);
            // With the first batch gone, only the opened store can tell.
            let opened = journal::check(&engine, synced)
                .map(drop)
                .and_then(|()| open(&folder));
            match opened {
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Corrupt, "byte {at}: {error}");
                    assert_eq!(fs::read(&journal).unwrap(), content);
                }
                // The number of the newest batch may be higher and still be the highest.
                Ok(store) => {
                    let entries = store.scan(A, Scan::all()).await.unwrap();
                    assert_eq!(entries.len(), GROUPS, "byte {at}");
                    store.close().await.unwrap();
                }
            }
            fs::write(&journal, &whole).unwrap();
        }
        change(&journal, |content| content[whole.len() / 2] ^= 0x10);
        let error = open(&folder).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
        assert!(
            error.to_string().contains(".jnl is damaged at byte"),
            "{error}"
        );
        fs::write(&journal, &whole).unwrap();
        let store = open(&folder).unwrap();
        assert_eq!(store.scan(A, Scan::all()).await.unwrap().len(), GROUPS);
    }

    #[tokio::test]
    async fn a_journal_whose_synced_end_is_gone_is_refused() {
        let folder = synced_folder().await;
        let journal = journal_of(&folder);
        let whole = fs::read(&journal).unwrap();
        for keep in [0, whole.len() / 2, whole.len() - 1] {
            fs::write(&journal, &whole[..keep]).unwrap();
            let error = open(&folder).unwrap_err();
            assert_eq!(
                error.kind(),
                ErrorKind::Corrupt,
                "{keep} bytes kept: {error}"
            );
            change(&journal, |content| content.resize(whole.len(), 0));
            let error = open(&folder).unwrap_err();
            assert_eq!(
                error.kind(),
                ErrorKind::Corrupt,
                "{keep} bytes kept: {error}"
            );
        }
    }

    /// Mutant: refuse every journal that does not end with a whole batch. Then a power cut
    /// in the middle of an unsynced write would lock the operator out.
    #[tokio::test]
    async fn an_end_torn_after_the_last_sync_is_cut_and_the_rest_is_there() {
        let whole = killed_folder().await;
        let store = open(&whole).unwrap();
        assert_eq!(store.scan(A, Scan::all()).await.unwrap().len(), GROUPS + 1);
        // The last bytes are missing, a byte of the value is wrong, a page never came.
        let tears: [fn(&mut Vec<u8>); 3] = [
            |content| content.truncate(content.len() - 3),
            |content| *content.iter_mut().rev().nth(100).unwrap() ^= 1,
            |content| {
                let at = content.len() - 150;
                content[at..].fill(0);
                content.extend_from_slice(b"rest");
            },
        ];
        for tear in tears {
            let folder = killed_folder().await;
            change(&journal_of(&folder), tear);
            let store = open(&folder).unwrap();
            assert_eq!(store.scan(A, Scan::all()).await.unwrap().len(), GROUPS);
            store.write(put(9), Synced).await.unwrap();
            store.close().await.unwrap();
            let store = open(&folder).unwrap();
            assert_eq!(store.scan(A, Scan::all()).await.unwrap().len(), GROUPS + 1);
        }
    }
}
