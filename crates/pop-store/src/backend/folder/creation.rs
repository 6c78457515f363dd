//! An engine's files, made aside and renamed, so that a crash leaves none or all of them.
//!
//! Engines take great care of a database, and little of the moment at which they make one:
//! after a power cut then, they find files that are cut short and refuse them for good.

use std::{
    fs::{self, File},
    io,
    path::Path,
};

use super::sync_folder;
use crate::Result;

/// Makes the folder `path` with what `create` puts into it, if it is not there.
///
/// # Errors
///
/// That of `create`, or what `failed` makes of an error of the file system.
pub(super) fn create_aside(
    path: &Path,
    create: impl FnOnce(&Path) -> Result<()>,
    failed: impl Fn(io::Error) -> crate::Error,
) -> Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    let aside = path.with_extension("new");
    if aside.exists() {
        // A crash left it, and nothing was ever promised of it.
        fs::remove_dir_all(&aside).map_err(&failed)?;
    }
    fs::create_dir(&aside).map_err(&failed)?;
    create(&aside)?;
    sync_all(&aside)
        .and_then(|()| fs::rename(&aside, path))
        .map_err(failed)
}

/// Makes a folder durable, with all that is in it.
fn sync_all(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            sync_all(&path)?;
        } else {
            File::open(path)?.sync_all()?;
        }
    }
    sync_folder(folder)
}
