//! The folder of a store: whose it is, what format it has, how far it was synced.
//!
//! ```text
//! <folder>/pop.lock     held by the process that has the store open
//! <folder>/pop.store    which backend and which format, as text
//! <folder>/pop.synced   the last synced group, see `HighWater`
//! <folder>/engine/      the engine's own files, made in engine.new/
//! ```

#[cfg(test)]
#[cfg(any(feature = "fjall", feature = "rocksdb"))]
pub(crate) mod copy;
mod creation;
mod high_water;
#[cfg(any(feature = "fjall", feature = "rocksdb"))]
pub(crate) mod trial;

#[cfg(test)]
mod tests;

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, Write},
    path::{Path, PathBuf},
};

pub use high_water::HighWater;

use crate::{Error, ErrorKind, Result};

const LOCK: &str = "pop.lock";
const MARKER: &str = "pop.store";
const MARKER_NEW: &str = "pop.store.new";
const SYNCED: &str = "pop.synced";
const ENGINE: &str = "engine";

const FORMAT: &str = "1";

/// A folder that this process owns until the value is dropped.
///
/// The lock is the operating system's: it ends with the process, however that ends.
#[derive(Debug)]
pub struct DataFolder {
    path: PathBuf,
    backend: &'static str,
    _lock: File,
}

impl DataFolder {
    /// Makes `path` if it is not there and claims it for `backend`.
    ///
    /// # Errors
    ///
    /// `Locked` if another process has it, `Incompatible` if it belongs to another backend or
    /// format, `Unavailable` if it can't be made or written.
    pub fn claim(path: impl AsRef<Path>, backend: &'static str) -> Result<Self> {
        let path = path.as_ref().to_owned();
        let failed = |error: io::Error| {
            Error::new(ErrorKind::Unavailable, backend, "open")
                .with_detail(format!("folder {} can't be used", path.display()))
                .with_source(error)
        };
        create_folder(&path).map_err(failed)?;
        let lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(path.join(LOCK))
            .map_err(failed)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(locked(backend, &path)),
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        match fs::read_to_string(path.join(MARKER)) {
            Ok(marker) => check_marker(&marker, backend, &path)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                if path.join(ENGINE).exists() {
                    return Err(foreign(backend, &path));
                }
                HighWater::create(&path.join(SYNCED)).map_err(failed)?;
                write_marker(&path, backend).map_err(failed)?;
            }
            Err(error) => return Err(failed(error)),
        }
        // Also if the names were there: a killed process may have left them unsynced.
        sync_folder(&path).map_err(failed)?;
        Ok(Self {
            path,
            backend,
            _lock: lock,
        })
    }

    /// The folder itself.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Where the engine keeps its files. If there are none, `create` makes them in another
    /// folder, which then gets this name, whole.
    ///
    /// # Errors
    ///
    /// That of `create`; `Unavailable` if the folder can't be written.
    pub fn engine(&self, create: impl FnOnce(&Path) -> Result<()>) -> Result<PathBuf> {
        let engine = self.path.join(ENGINE);
        let failed = |error: io::Error| {
            Error::new(ErrorKind::Unavailable, self.backend, "open")
                .with_detail(format!("{} can't be made", engine.display()))
                .with_source(error)
        };
        creation::create_aside(&engine, create, failed)?;
        sync_folder(&self.path).map_err(failed)?;
        Ok(engine)
    }

    /// How far the store was synced.
    ///
    /// # Errors
    ///
    /// `Corrupt` if the file is missing or damaged.
    pub fn high_water(&self) -> Result<HighWater> {
        let path = self.path.join(SYNCED);
        HighWater::open(&path).map_err(|error| {
            Error::new(ErrorKind::Corrupt, self.backend, "open")
                .with_detail(format!(
                    "{} does not say how far the store was synced; restore the folder from a backup",
                    path.display()
                ))
                .with_source(error)
        })
    }
}

fn locked(backend: &'static str, path: &Path) -> Error {
    Error::new(ErrorKind::Locked, backend, "open").with_detail(format!(
        "folder {} is open in another process: stop that one, or choose another folder",
        path.display()
    ))
}

fn foreign(backend: &'static str, path: &Path) -> Error {
    Error::new(ErrorKind::Incompatible, backend, "open").with_detail(format!(
        "folder {} holds files of an engine and no {MARKER} that says which: choose another folder",
        path.display()
    ))
}

fn marker(backend: &str) -> String {
    format!("pop-store\nformat {FORMAT}\nbackend {backend}\n")
}

fn check_marker(text: &str, backend: &'static str, path: &Path) -> Result<()> {
    if text == marker(backend) {
        return Ok(());
    }
    let field = |name: &str| text.lines().find_map(|it| it.strip_prefix(name));
    let advice = match (field("format "), field("backend ")) {
        (Some(FORMAT), Some(found)) if found != backend => {
            format!(
                "it was written by backend {found}: open it as {found}, or choose another folder"
            )
        }
        (Some(found), _) if found != FORMAT => format!(
            "it has format {found}, this program reads format {FORMAT}: use the version of the \
             program that wrote it, or choose another folder"
        ),
        _ => format!("its {MARKER} is not readable: choose another folder"),
    };
    Err(Error::new(ErrorKind::Incompatible, backend, "open")
        .with_detail(format!("folder {}: {advice}", path.display())))
}

/// Written beside and renamed, so that a crash leaves no marker or a whole one.
fn write_marker(path: &Path, backend: &str) -> io::Result<()> {
    let new = path.join(MARKER_NEW);
    let mut file = File::create(&new)?;
    file.write_all(marker(backend).as_bytes())?;
    file.sync_all()?;
    fs::rename(new, path.join(MARKER))?;
    sync_folder(path)
}

/// Makes a folder and those that it is in, and their names durable.
fn create_folder(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    let parent = path.parent().filter(|it| !it.as_os_str().is_empty());
    let parent = parent.unwrap_or(Path::new("."));
    create_folder(parent)?;
    fs::create_dir(path)?;
    sync_folder(parent)
}

/// Makes the names in a folder durable.
pub(crate) fn sync_folder(path: &Path) -> io::Result<()> {
    // Windows can't open a folder as a file; there names are durable with the file.
    #[cfg(unix)]
    File::open(path)?.sync_all()?;
    #[cfg(not(unix))]
    let _ = path;
    Ok(())
}

/// Deletes the files in `folder` that an engine was making when a crash came, and that it
/// would leave for good. The engine is closed.
#[cfg(any(feature = "fjall", feature = "rocksdb"))]
pub(crate) fn remove_unfinished(
    folder: &Path,
    is_unfinished: impl Fn(&str) -> bool,
) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_name().to_str().is_some_and(&is_unfinished) {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}
