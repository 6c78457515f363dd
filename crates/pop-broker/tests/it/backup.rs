//! A backup as a file: what is written comes back, what was cut goes on, and what is
//! damaged is refused.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use kv_restore::{
    Chance, Damage, Digest, ErrorKind, Limiter, PeerId, RestoreError, SnapshotRef, StreamId,
    Target, digest,
    transport::{Channel, Transport, TransportError},
};
use pop_broker::{
    space::{KEYSPACES, SEALS},
    transfer::{
        CopyOptions, Source, Whose, copy,
        file::{BackupError, BackupFile, Begun, Draft, Totals},
        installed, place,
    },
};
use pop_store::{
    Durability, MemStore, Store, WriteBatch,
    table::{self, BODY, LEASE, LOG, META},
};
use tempfile::TempDir;
use tokio::time::Instant;

const NOW: i64 = 1_700_000_000_000;
const FROM: &str = "folder";

fn options() -> CopyOptions {
    let numbers = std::sync::atomic::AtomicU64::new(1);
    let chance: Chance =
        Arc::new(move || numbers.fetch_add(1, std::sync::atomic::Ordering::Relaxed));
    CopyOptions::new(chance)
}

/// A store with rows of several keyspaces, more than one block of them.
async fn store(rows: u32) -> Arc<dyn Store> {
    let store = MemStore::new(&KEYSPACES);
    for number in 0..rows {
        let mut batch = WriteBatch::new();
        for keyspace in [META, LOG, LEASE] {
            let key = Bytes::copy_from_slice(&number.to_be_bytes());
            batch.put(keyspace, key, format!("{keyspace} {number}").into());
        }
        batch.put(
            BODY,
            Bytes::copy_from_slice(&number.to_be_bytes()),
            vec![7; 10_000].into(),
        );
        store.write(batch, Durability::Synced).await.unwrap();
    }
    Arc::new(store)
}

async fn rows(store: &Arc<dyn Store>) -> Digest {
    digest(store.snapshot().await.unwrap().as_ref(), &table::KEYSPACES)
        .await
        .unwrap()
}

async fn open(to: &Path, at: &SnapshotRef) -> Result<(Draft, Begun), BackupError> {
    Draft::open(to, at, &table::KEYSPACES, &Limiter::none(), |_| {}).await
}

async fn finish(draft: Draft) -> Result<BackupFile, BackupError> {
    let written = draft.written()?;
    written.finish(FROM, &Limiter::none(), |_| {}).await
}

/// Where a backup is made, and what of.
struct Place {
    _folder: TempDir,
    to: PathBuf,
    store: Arc<dyn Store>,
}

impl Place {
    async fn new(rows: u32) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let to = folder.path().join("backup");
        let store = store(rows).await;
        Self {
            _folder: folder,
            to,
            store,
        }
    }

    fn draft(&self) -> PathBuf {
        self.to.with_extension("partial")
    }

    async fn source(&self) -> Source {
        Source::of_store(&self.store, NOW, None, Whose::Owner)
            .await
            .unwrap()
    }

    /// Opens the draft and copies what is missing in it.
    async fn write(&self) -> (Draft, Begun, Result<(), RestoreError>) {
        let source = self.source().await;
        let (draft, begun) = open(&self.to, source.at()).await.unwrap();
        let mut target = Target::new(Arc::new(draft.clone()));
        if let Begun::Behind(resume) = &begun {
            target = target.resuming(resume.clone());
        }
        let written = match begun {
            Begun::Whole => Ok(()),
            _ => copy(&source, target, &options(), |_| {}).await.map(|_| ()),
        };
        (draft, begun, written)
    }

    async fn made(&self) -> BackupFile {
        let (draft, _, written) = self.write().await;
        written.unwrap();
        finish(draft).await.unwrap()
    }
}

/// A store that got the content of a backup.
async fn restored(path: &Path, over: &Arc<dyn Store>) -> Result<(), RestoreError> {
    let file = BackupFile::open(path).unwrap();
    let totals = file.verify(&Limiter::none(), |_| {}).await.unwrap();
    let seal = installed(over).await.unwrap();
    let source = Source::of_backup(&file, totals, seal.as_ref())
        .await
        .unwrap();
    let target = Target::new(Arc::clone(over)).with_seals(SEALS);
    copy(&source, target, &options(), |_| {}).await.map(|_| ())
}

#[tokio::test]
async fn what_is_backed_up_comes_back_also_over_itself_and_over_what_came_later() {
    let place = Place::new(300).await;
    let before = rows(&place.store).await;
    let file = place.made().await;
    file.told(FROM).unwrap();
    assert!(!place.draft().exists());
    assert_eq!(file.digest().0, before.sum());
    let manifest = fs::read_to_string(place.to.with_extension("toml")).unwrap();
    assert!(manifest.contains("rows = 1200"), "{manifest}");
    // Mutant: what is sealed is taken for installed, whatever was written since.
    let target = store(1).await;
    for round in 0..3 {
        restored(&place.to, &target).await.unwrap();
        assert_eq!(rows(&target).await, before, "round {round}");
        let mut batch = WriteBatch::new();
        batch.put(META, "later".into(), "row".into());
        target.write(batch, Durability::Synced).await.unwrap();
    }
}

// Catches: a backup that is never taken for one's own, or for ever; one that was asked for
// elsewhere; another one under the name of one that was moved away.
#[tokio::test]
async fn a_backup_is_its_commands_own_until_somebody_was_told_of_it() {
    let place = Place::new(3).await;
    let file = place.made().await;
    assert!(file.is_untold(FROM) && !file.is_untold("another"));
    let away = place.to.with_extension("away");
    fs::rename(&place.to, &away).unwrap();
    let mut batch = WriteBatch::new();
    batch.put(META, "another".into(), "incarnation".into());
    place.store.write(batch, Durability::Synced).await.unwrap();
    fs::write(&place.to, "mine").unwrap();
    assert!(BackupFile::open(&place.to).is_err());
    fs::remove_file(&place.to).unwrap();
    let manifest = fs::read(place.to.with_extension("toml.partial")).unwrap();
    let other = place.made().await;
    fs::write(place.to.with_extension("toml.partial"), manifest).unwrap();
    assert!(!other.is_untold(FROM), "it is another's");
    fs::rename(&away, &place.to).unwrap();
    let file = BackupFile::open(&place.to).unwrap();
    assert!(file.is_untold(FROM));
    for _ in 0..2 {
        file.told(FROM).unwrap();
        assert!(!file.is_untold(FROM));
    }
    let manifest = place.to.with_extension("toml");
    let text = fs::read_to_string(&manifest).unwrap();
    assert!(text.contains("--from \"folder\""), "{text}");
    // Somebody removed it, who may.
    fs::remove_file(&manifest).unwrap();
    file.told(FROM).unwrap();
    assert_eq!(fs::read_to_string(manifest).unwrap(), text);
}

/// A source that is connected to and never answers.
struct Silent;

#[async_trait]
impl Transport for Silent {
    async fn connect(&self, _: &PeerId, _: StreamId) -> Result<Channel, TransportError> {
        std::future::pending().await
    }
}

// Catches: news only of what moves, so that a command that hangs says nothing.
#[tokio::test(start_paused = true)]
async fn who_watches_hears_of_a_copy_that_does_not_move_too() {
    let at = Place::new(0).await.source().await.at().clone();
    let peer = PeerId::new("silent");
    let source = Source::remote(at, peer, Arc::new(Silent), Box::new(()));
    let target = Target::new(store(0).await).with_seals(SEALS);
    let mut heard = 0;
    let options = options();
    let copied = copy(&source, target, &options, |_| heard += 1);
    let waited = tokio::time::timeout(Duration::from_secs(9), copied).await;
    assert!(waited.is_err());
    assert!(heard >= 9, "{heard}");
}

#[tokio::test]
async fn an_empty_store_is_backed_up_and_comes_back_empty() {
    let place = Place::new(0).await;
    place.made().await;
    let target = store(3).await;
    restored(&place.to, &target).await.unwrap();
    assert_eq!(rows(&target).await, Digest::default());
}

#[tokio::test]
async fn a_backup_that_was_cut_anywhere_goes_on_and_ends_the_same() {
    // Mutants: a torn block is kept; what is found is not counted; it begins anew.
    let place = Place::new(300).await;
    let whole = place.made().await;
    let bytes = fs::read(&place.to).unwrap();
    assert_eq!(u64::try_from(bytes.len()).unwrap(), whole.file_bytes());
    fs::remove_file(&place.to).unwrap();
    let mut behind = 0;
    for part in 0..=40 {
        let cut = bytes.len() * part / 40;
        fs::write(place.draft(), &bytes[..cut]).unwrap();
        let (draft, begun, written) = place.write().await;
        written.unwrap();
        behind += u32::from(matches!(begun, Begun::Behind(_)));
        assert_eq!(begun == Begun::Whole, part == 40, "{part}: {begun:?}");
        finish(draft).await.unwrap();
        assert!(fs::read(&place.to).unwrap() == bytes, "cut at {cut}");
        fs::remove_file(&place.to).unwrap();
    }
    assert!(behind > 20, "most of them went on: {behind}");
}

// Mutants: `verify`, `look` or `digest_within` without its limit, or without a word, one of each.
#[tokio::test(start_paused = true)]
async fn whatever_is_read_again_is_read_no_faster_than_the_limit_and_told() {
    const RATE: u64 = 1 << 20;
    let place = Place::new(300).await;
    let (draft, _, written) = place.write().await;
    written.unwrap();
    drop(draft);
    let length = fs::metadata(place.draft()).unwrap().len();
    let seconds = |bytes: u64| Duration::from_millis(bytes * 1_000 / RATE);
    // All is paid for but what passed last.
    let is_paid = |bytes: u64, since: Instant, what: &str| {
        let (took, last) = (since.elapsed(), 1 << 20);
        // Timers count whole milliseconds.
        let paid = seconds(bytes - last)..=seconds(bytes) + Duration::from_millis(5);
        assert!(paid.contains(&took), "{what}: {took:?} and not {paid:?}");
    };
    let at = place.source().await.at().clone();
    let (limiter, since) = (Limiter::new(RATE), Instant::now());
    // What is told last, of each.
    let (mut draft_seen, mut file_seen, mut store_seen) = (0, 0, 0);
    let seen = |it: Totals| draft_seen = it.bytes;
    let draft = Draft::open(&place.to, &at, &table::KEYSPACES, &limiter, seen).await;
    let (draft, begun) = draft.unwrap();
    assert_eq!(begun, Begun::Whole);
    is_paid(length, since, "the draft");
    let (limiter, since) = (Limiter::new(RATE), Instant::now());
    let written = draft.written().unwrap();
    let named = written.finish(FROM, &limiter, |it| file_seen = it.bytes);
    let file = named.await.unwrap();
    is_paid(length, since, "the backup");
    let (limiter, since) = (Limiter::new(RATE), Instant::now());
    let seen = |it: &Digest| store_seen = it.bytes();
    let totals = place::totals(place.store.as_ref(), &limiter, seen).await;
    let totals = totals.unwrap();
    assert_eq!(totals.sum(), file.digest().0);
    is_paid(totals.bytes(), since, "the store");
    assert_eq!([draft_seen, file_seen, store_seen], [totals.bytes(); 3]);
}

// Catches: what is written and was not read again for what is done; a lock that is given up
// before; damage that every later command finds again.
#[tokio::test]
async fn what_is_written_has_no_name_until_it_was_read_and_is_mended_if_it_is_damaged() {
    let place = Place::new(300).await;
    let manifest = place.to.with_extension("toml.partial");
    let (draft, _, written) = place.write().await;
    written.unwrap();
    let written = draft.written().unwrap();
    let other = open(&place.to, place.source().await.at()).await;
    assert!(matches!(other, Err(BackupError::InUse(_))));
    drop(written);
    let bytes = fs::read(place.draft()).unwrap();
    let mut damaged = bytes.clone();
    damaged[bytes.len() / 2] ^= 1;
    let (draft, begun, _) = place.write().await;
    assert_eq!(begun, Begun::Whole);
    fs::write(place.draft(), &damaged).unwrap();
    let read = finish(draft).await;
    assert!(matches!(read, Err(BackupError::Damaged { .. })), "{read:?}");
    assert!(!manifest.exists() && !place.to.exists());
    // As a command that goes on behind what is whole.
    let (draft, begun, written) = place.write().await;
    assert!(matches!(begun, Begun::Behind(_)), "{begun:?}");
    written.unwrap();
    let file = finish(draft).await.unwrap();
    assert!(file.is_untold(FROM));
    assert!(fs::read(&place.to).unwrap() == bytes);
}

#[tokio::test]
async fn a_draft_of_what_changed_since_is_begun_anew() {
    let place = Place::new(300).await;
    place.made().await;
    let bytes = fs::read(&place.to).unwrap();
    fs::remove_file(&place.to).unwrap();
    fs::write(place.draft(), &bytes[..bytes.len() / 2]).unwrap();
    let mut batch = WriteBatch::new();
    batch.put(META, "another".into(), "incarnation".into());
    place.store.write(batch, Durability::Synced).await.unwrap();
    let (draft, begun, written) = place.write().await;
    assert_eq!(begun, Begun::Instead);
    written.unwrap();
    let file = finish(draft).await.unwrap();
    assert_eq!(file.digest().0, rows(&place.store).await.sum());
}

#[tokio::test]
async fn a_source_with_other_rows_under_the_same_name_refuses_to_go_on() {
    // Mutant: the rows before the cut are not compared.
    let place = Place::new(300).await;
    place.made().await;
    let bytes = fs::read(&place.to).unwrap();
    fs::remove_file(&place.to).unwrap();
    fs::write(place.draft(), &bytes[..bytes.len() * 3 / 4]).unwrap();
    let mut batch = WriteBatch::new();
    batch.put(LOG, "another".into(), "row".into());
    place.store.write(batch, Durability::Synced).await.unwrap();
    let (draft, begun, written) = place.write().await;
    assert!(matches!(begun, Begun::Behind(_)));
    assert_eq!(
        written.unwrap_err().kind(),
        ErrorKind::Corrupt(Damage::Resume)
    );
    draft.restart().unwrap();
    let target = Target::new(Arc::new(draft.clone()));
    copy(&place.source().await, target, &options(), |_| {})
        .await
        .unwrap();
    let file = finish(draft).await.unwrap();
    assert_eq!(file.digest().0, rows(&place.store).await.sum());
}

#[tokio::test]
async fn a_backup_with_any_byte_changed_or_cut_off_is_refused() {
    // Mutants: a block's checksum is not compared; the end is not looked for.
    let place = Place::new(1).await;
    let mut batch = WriteBatch::new();
    batch.delete(BODY, Bytes::copy_from_slice(&0_u32.to_be_bytes()));
    place.store.write(batch, Durability::Synced).await.unwrap();
    place.made().await;
    let bytes = fs::read(&place.to).unwrap();
    let refused = async |bytes: &[u8]| {
        fs::write(&place.to, bytes).unwrap();
        match BackupFile::open(&place.to) {
            Ok(file) => file.verify(&Limiter::none(), |_| {}).await.unwrap_err(),
            Err(error) => error,
        }
    };
    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x40;
        refused(&damaged).await;
        let cut = refused(&bytes[..at]).await;
        let expected = matches!(cut, BackupError::NotABackup(_) | BackupError::Cut { .. });
        assert!(expected, "cut at {at}: {cut}");
    }
    let more = [bytes.as_slice(), b"more"].concat();
    assert!(matches!(refused(&more).await, BackupError::Damaged { .. }));
    let mut later = bytes.clone();
    later[7] = 2;
    assert!(matches!(
        refused(&later).await,
        BackupError::Version { found: 2, .. }
    ));
}

#[tokio::test]
async fn a_name_that_is_taken_and_a_draft_that_is_being_written_are_left_alone() {
    let place = Place::new(1).await;
    let (draft, _, written) = place.write().await;
    written.unwrap();
    let other = open(&place.to, place.source().await.at()).await;
    assert!(matches!(other, Err(BackupError::InUse(_))));
    fs::write(&place.to, "mine").unwrap();
    assert!(matches!(
        finish(draft).await,
        Err(BackupError::Exists { .. })
    ));
    assert_eq!(fs::read(&place.to).unwrap(), b"mine");
}
