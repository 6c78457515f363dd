//! What earlier commands left that were killed: drafts, and backups that nobody was told of.

use std::{
    fs,
    path::{Path, PathBuf},
    time::SystemTime,
};

use kv_restore::SnapshotId;
use pop_broker::transfer::file::{BackupError, BackupFile, Draft, PARTIAL};

/// The backup `to`, if a command that was the same made it and was killed before it said so.
///
/// In a folder every command makes a backup of its own moment, so that there is none.
pub(super) fn untold(to: &Path, from: &str) -> Option<BackupFile> {
    let file = BackupFile::open(to).ok()?;
    file.is_untold(from).then_some(file)
}

/// What may be gone on with, if its snapshot is still there: the drafts and the backups of
/// that name, or in that folder, in the order in which they were written last.
pub(super) fn all(to: &Path, from: &str) -> Result<Vec<(PathBuf, SnapshotId)>, BackupError> {
    let mut all = Vec::new();
    for to in names(to)? {
        let is_left = |file: &BackupFile| file.is_untold(from);
        if let Some(at) = Draft::left(&to) {
            all.push((written(&Draft::path(&to)), to, at.id));
        } else if let Some(file) = BackupFile::open(&to).ok().filter(is_left) {
            all.push((written(&to), to, file.at().id));
        }
    }
    all.sort_by(|one, other| (&one.0, &one.1).cmp(&(&other.0, &other.1)));
    Ok(all.into_iter().map(|(_, to, id)| (to, id)).collect())
}

/// In a folder: the files of the drafts.
pub(super) fn drafts(to: &Path) -> Result<Vec<PathBuf>, BackupError> {
    let names = names(to)?;
    let drafts = names.iter().filter(|it| Draft::left(it).is_some());
    Ok(drafts.map(|it| Draft::path(it)).collect())
}

fn written(file: &Path) -> Option<SystemTime> {
    fs::metadata(file).and_then(|it| it.modified()).ok()
}

/// In a folder: the others that are whole, which nobody was told of.
pub(super) fn others(to: &Path, from: &str) -> Result<Vec<BackupFile>, BackupError> {
    if !to.is_dir() {
        return Ok(Vec::new());
    }
    let names = names(to)?;
    Ok(names.iter().filter_map(|it| untold(it, from)).collect())
}

/// The name itself, or the names of what was begun in a folder.
fn names(to: &Path) -> Result<Vec<PathBuf>, BackupError> {
    if !to.is_dir() {
        return Ok(vec![to.to_owned()]);
    }
    let unreadable = |source| BackupError::Io {
        path: to.to_owned(),
        doing: "read",
        source,
    };
    let mut names = Vec::new();
    for entry in fs::read_dir(to).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        let begun = path.to_str().and_then(|it| it.strip_suffix(PARTIAL));
        let begun = begun.map(|it| it.strip_suffix(".toml").unwrap_or(it));
        names.extend(begun.map(PathBuf::from));
    }
    // One that was killed between its manifest and its name has two such files.
    names.sort_unstable();
    names.dedup();
    Ok(names)
}
