//! What a power cut and a failing disk leave of a backup.

use std::{collections::HashMap, fs};

use kv_restore::{Epoch, SnapshotId};
use pop_store::table::{KEYSPACES, LOG};
use tempfile::TempDir;

use super::*;
use crate::space::{SpaceMeta, snapshot_ref};

const FROM: &str = "tcp://source:1";

/// A disk that knows what a power cut would leave, and may fail.
#[derive(Debug, Default)]
struct Watched {
    // What each file had when it was last synced.
    synced: Mutex<HashMap<PathBuf, Vec<u8>>>,
    named: Mutex<Vec<Named>>,
    // How many syncs succeed before one fails.
    fails_after: Mutex<Option<u32>>,
}

/// What was durable when the backup got its name, and whether its name is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Named {
    backup: bool,
    manifest: bool,
    name: bool,
}

impl Watched {
    fn is_durable(&self, path: &Path) -> bool {
        let synced = self.synced.lock();
        synced.get(path) == fs::read(path).ok().as_ref()
    }
}

impl Disk for Watched {
    fn sync(&self, path: &Path, _: &File) -> io::Result<()> {
        let mut fails_after = self.fails_after.lock();
        if let Some(left) = fails_after.take() {
            *fails_after = Some(left.checked_sub(1).ok_or(io::ErrorKind::StorageFull)?);
        }
        self.synced.lock().insert(path.into(), fs::read(path)?);
        Ok(())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.named.lock().push(Named {
            backup: self.is_durable(from),
            manifest: self.is_durable(&to.with_extension("toml.partial")),
            name: false,
        });
        fs::rename(from, to)
    }

    fn sync_folder_of(&self, _: &Path) -> io::Result<()> {
        self.named.lock().iter_mut().for_each(|it| it.name = true);
        Ok(())
    }
}

struct Place {
    _folder: TempDir,
    to: PathBuf,
    disk: Arc<Watched>,
}

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let to = folder.path().join("backup");
        let disk = Arc::default();
        Self {
            _folder: folder,
            to,
            disk,
        }
    }

    async fn draft(&self) -> (Draft, Begun) {
        let at = snapshot_ref(SnapshotId(7), Epoch(0), &SpaceMeta::copy("memory", 0));
        let (disk, limiter) = (Arc::clone(&self.disk) as _, Limiter::none());
        let draft = Draft::open_on(disk, &self.to, &at, &KEYSPACES, &limiter, |_| {});
        draft.await.unwrap()
    }

    /// All rows are written, as a session does it.
    async fn write(&self) -> Result<Draft> {
        let (draft, _) = self.draft().await;
        let mut staging = Box::new(draft.clone());
        let row = Entry {
            key: "key".into(),
            value: "value".into(),
        };
        staging.load(LOG, vec![row]).await?;
        staging.publish().await?;
        Ok(draft)
    }
}

async fn finish(draft: Draft) -> std::result::Result<BackupFile, BackupError> {
    let written = draft.written()?;
    written.finish(FROM, &Limiter::none(), |_| {}).await
}

const ALL: Named = Named {
    backup: true,
    manifest: true,
    name: true,
};

// Catches: each of the syncs left out: that of the rows before they are called written, that of
// a draft that another wrote, those of the manifest and of the folder; a name before its sync.
#[tokio::test]
async fn what_has_the_name_of_a_backup_survives_a_power_cut() {
    let place = Place::new();
    let draft = place.write().await.unwrap();
    assert!(place.disk.is_durable(&Draft::path(&place.to)));
    finish(draft).await.unwrap();
    assert_eq!(*place.disk.named.lock(), [ALL]);

    let mut place = Place::new();
    drop(place.write().await.unwrap());
    // Who wrote it was killed, and nothing says that it had synced.
    place.disk = Arc::default();
    let (draft, begun) = place.draft().await;
    assert_eq!(begun, Begun::Whole);
    finish(draft).await.unwrap();
    assert_eq!(*place.disk.named.lock(), [ALL]);
}

// Catches: a sync whose failure is not looked at, be it of the rows, of the whole or of the
// manifest.
#[tokio::test]
async fn what_can_not_be_synced_gets_no_name_and_is_gone_on_with() {
    for syncs in 0..3 {
        let place = Place::new();
        *place.disk.fails_after.lock() = Some(syncs);
        let failed = match place.write().await {
            Ok(draft) => finish(draft).await.is_err(),
            Err(error) => error.kind() == ErrorKind::NoSpace,
        };
        assert!(failed && !place.to.exists(), "after {syncs}");
        let (draft, begun) = place.draft().await;
        assert_eq!(begun, Begun::Whole);
        finish(draft).await.unwrap();
        assert_eq!(*place.disk.named.lock(), [ALL], "after {syncs}");
    }
}

// Catches: the lock of a backup that got its name since it was opened, which would be cut to
// nothing; that of a draft that another took the place of.
#[cfg(unix)]
#[test]
fn a_draft_that_was_finished_before_it_was_locked_is_not_claimed() {
    let folder = tempfile::tempdir().unwrap();
    let (to, draft) = (folder.path().join("a"), folder.path().join("a.partial"));
    let first = claim(&draft).unwrap();
    let late = [(); 2].map(|()| open(&draft).unwrap());
    fs::write(&draft, "whole").unwrap();
    fs::rename(&draft, &to).unwrap();
    drop(first);
    let [mut late, later] = late.map(Some);
    assert!(lock(late.take().unwrap(), &draft).unwrap().is_none());
    let mut second = claim(&draft).unwrap();
    assert!(lock(later.unwrap(), &draft).unwrap().is_none());
    second.write_all(b"another").unwrap();
    assert_eq!(fs::read(&to).unwrap(), b"whole");
}

// Mutant: whatever is wrong, the file can't be written.
#[test]
fn a_full_disk_is_said_to_be_full() {
    for (error, kind) in [
        (io::ErrorKind::StorageFull, ErrorKind::NoSpace),
        (io::ErrorKind::PermissionDenied, ErrorKind::Unavailable),
    ] {
        assert_eq!(unwritten(error.into()).kind(), kind);
    }
}

// Mutant: no look at its lock.
#[tokio::test]
async fn a_draft_that_is_being_written_or_read_again_is_not_left_over() {
    let place = Place::new();
    let draft = place.write().await.unwrap();
    assert_eq!(Draft::left(&place.to), None);
    let written = draft.written().unwrap();
    assert_eq!(Draft::left(&place.to), None);
    drop(written);
    assert_eq!(Draft::left(&place.to).unwrap().id, SnapshotId(7));
}
