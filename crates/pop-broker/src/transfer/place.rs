//! The folder that a content is to land in: whether it may, and what lies there already.

use std::{
    fs, io,
    path::{Component, Path, PathBuf},
};

use kv_restore::{Digest, Limiter, digest_within};
use pop_store::{
    Result, Scan, Store,
    table::{self},
};

use super::LocationError;

/// What the first open of a store makes before it says whose the folder is, and what a file
/// system has at its root.
const HARMLESS: [&str; 4] = ["pop.lock", "pop.synced", "pop.store.new", "lost+found"];

/// Looks whether a store may be made in a folder: it is not there, or empty, or holds a store.
///
/// # Errors
///
/// If it holds something else, or can't be looked at.
pub fn check_folder(folder: &Path) -> std::result::Result<(), LocationError> {
    let unreadable = |source| LocationError::Unreadable {
        folder: folder.to_owned(),
        source,
    };
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
            return Err(LocationError::NoFolder(folder.to_owned()));
        }
        Err(error) => return Err(unreadable(error)),
    };
    if folder.join(super::location::MARKER).exists() {
        return Ok(());
    }
    for entry in entries {
        let name = entry.map_err(unreadable)?.file_name();
        if !HARMLESS.iter().any(|it| name == *it) {
            return Err(LocationError::Taken {
                folder: folder.to_owned(),
                entry: name.to_string_lossy().into_owned(),
            });
        }
    }
    Ok(())
}

/// Whether `inner` is `outer` or lies in it, also where links lead there.
#[must_use]
pub fn is_inside(inner: &Path, outer: &Path) -> bool {
    real(inner).starts_with(real(outer))
}

/// The path without links, as far as it is there.
fn real(path: &Path) -> PathBuf {
    if let Ok(real) = path.canonicalize() {
        return real;
    }
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    match (path.parent(), path.components().next_back()) {
        (Some(parent), Some(Component::Normal(name))) => real(parent).join(name),
        (Some(parent), Some(Component::ParentDir)) => {
            let mut above = real(parent);
            above.pop();
            above
        }
        _ => path,
    }
}

/// Whether a store has no row of a broker.
///
/// # Errors
///
/// Those of the store.
pub async fn is_empty(store: &dyn Store) -> Result<bool> {
    for keyspace in table::KEYSPACES {
        let first = Scan::all().with_entries_max(1);
        if !store.scan(keyspace, first).await?.is_empty() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// What a broker's rows in a store add up to, read no faster than the limit. `seen` is told
/// what was read until then.
///
/// # Errors
///
/// Those of the store.
pub async fn totals(
    store: &dyn Store,
    limiter: &Limiter,
    seen: impl FnMut(&Digest),
) -> Result<Digest> {
    let snapshot = store.snapshot().await?;
    digest_within(snapshot.as_ref(), &table::KEYSPACES, limiter, seen).await
}

#[cfg(test)]
mod tests {
    use super::*;

    // Mutant: any folder without a marker is taken.
    #[test]
    fn a_folder_with_something_else_in_it_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        check_folder(&path.join("missing")).unwrap();
        check_folder(path).unwrap();
        for name in HARMLESS {
            fs::write(path.join(name), "").unwrap();
        }
        check_folder(path).unwrap();
        fs::write(path.join("thesis.tex"), "").unwrap();
        let refused = check_folder(path);
        assert!(
            matches!(refused, Err(LocationError::Taken { entry, .. }) if entry == "thesis.tex")
        );
        let refused = check_folder(&path.join("thesis.tex"));
        assert!(matches!(refused, Err(LocationError::NoFolder(_))));
        fs::write(path.join("pop.store"), "").unwrap();
        check_folder(path).unwrap();
    }

    // Mutant: paths are compared as they are written.
    #[cfg(unix)]
    #[test]
    fn what_lies_in_a_folder_is_found_through_links_and_before_it_is_made() {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        fs::create_dir(&data).unwrap();
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&data, &link).unwrap();
        assert!(is_inside(&data, &data));
        assert!(is_inside(&link.join("new/copy"), &data));
        assert!(is_inside(&folder.path().join("other/../data/new"), &data));
        assert!(!is_inside(folder.path(), &data));
        assert!(!is_inside(&folder.path().join("data2"), &data));
    }
}
