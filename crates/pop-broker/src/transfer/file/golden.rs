//! A small backup, pinned: what is written is what `tests/fixtures/v1/backup.hex` holds, and
//! what that holds is what is read.
//!
//! After a deliberate change of the format, `POP_BLESS=1 cargo test -p pop-broker golden`
//! writes it anew; the diff then shows what changed.

use std::{env, fs, path::PathBuf};

use data_encoding::HEXLOWER;
use kv_restore::{Epoch, Limiter, SnapshotId, SnapshotRef};
use pop_store::{
    Entry, Keyspace, Scan, Staging, Store,
    table::{KEYSPACES, LOG, META},
};

use super::{BackupFile, Draft, record};
use crate::space::{SpaceMeta, snapshot_ref};

fn meta() -> SpaceMeta {
    SpaceMeta {
        program: "0.1.0".into(),
        ..SpaceMeta::copy("fjall", 1_700_000_000_000)
    }
}

fn at() -> SnapshotRef {
    snapshot_ref(SnapshotId(7), Epoch(3), &meta())
}

fn rows() -> Vec<(Keyspace, Vec<Entry>)> {
    let row = |key: &'static str, value: &'static str| Entry {
        key: key.into(),
        value: value.into(),
    };
    vec![
        (META, vec![row("a key", "its value"), row("b", "")]),
        (LOG, vec![row("c", "another")]),
    ]
}

/// A line for the head, and one for each record, with its kind before it.
fn lines(mut file: &[u8]) -> String {
    let mut lines = String::new();
    let mut line = |name: &str, length| {
        let (part, rest) = file.split_at(length);
        file = rest;
        lines.push_str(&format!("{name}: {}\n", HEXLOWER.encode(part)));
        record::front(file)
    };
    let mut next = line("head", usize::try_from(record::HEAD_BYTES).unwrap());
    while let Some((kind, length)) = next {
        let around = record::FRONT_BYTES + record::SUM_BYTES;
        let length = around + usize::try_from(length).unwrap();
        next = line(["?", "begin", "rows", "end"][usize::from(kind)], length);
    }
    lines
}

async fn written() -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let to = folder.path().join("small");
    let unlimited = Limiter::none();
    let draft = Draft::open(&to, &at(), &KEYSPACES, &unlimited, |_| {}).await;
    let (draft, _) = draft.unwrap();
    let mut staging: Box<dyn Staging> = Box::new(draft.clone());
    for (keyspace, rows) in rows() {
        staging.load(keyspace, rows).await.unwrap();
    }
    staging.publish().await.unwrap();
    let written = draft.written().unwrap();
    let named = written.finish("fjall:/data", &unlimited, |_| {});
    named.await.unwrap();
    fs::read(to).unwrap()
}

fn golden(written: &str) -> String {
    let path = "tests/fixtures/v1/backup.hex";
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(path);
    if env::var_os("POP_BLESS").is_some_and(|bless| bless == "1") {
        fs::write(&path, written).unwrap();
    }
    fs::read_to_string(path).unwrap()
}

// Catches: another head, kinds of records swapped, another order of the keyspaces, the length
// of a value before that of its key, totals of each keyspace before those of all.
#[tokio::test]
async fn backups_keep_their_bytes() {
    let written = lines(&written().await);
    let golden = golden(&written);
    assert_eq!(
        written, golden,
        "a backup is written differently: the format changed"
    );

    let hex = golden.lines().map(|it| it.split_once(": ").unwrap().1);
    let bytes = HEXLOWER.decode(hex.collect::<String>().as_bytes()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("small.backup");
    fs::write(&path, bytes).unwrap();
    let file = BackupFile::open(&path).unwrap();
    assert_eq!((file.at(), file.meta()), (&at(), &meta()));
    file.verify(&Limiter::none(), |_| {}).await.unwrap();
    let snapshot = file.snapshot().await.unwrap();
    for (keyspace, rows) in rows() {
        assert_eq!(snapshot.scan(keyspace, Scan::all()).await.unwrap(), rows);
    }
}
