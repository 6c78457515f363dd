//! What makes a file durable and gives it its name: the calls whose order a power cut judges.
//! Tests put their own in its place.

use std::{
    fs::{self, File},
    io,
    path::Path,
};

/// A disk that files are written on.
pub(super) trait Disk: Send + Sync + std::fmt::Debug {
    /// What was written to the file, which has this name, survives a power cut.
    fn sync(&self, path: &Path, file: &File) -> io::Result<()>;

    /// The file has this name, at one moment.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// The name of the file survives a power cut.
    fn sync_folder_of(&self, file: &Path) -> io::Result<()>;
}

/// Files of the system.
#[derive(Clone, Copy, Debug)]
pub(super) struct Files;

impl Disk for Files {
    fn sync(&self, _: &Path, file: &File) -> io::Result<()> {
        file.sync_all()
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn sync_folder_of(&self, file: &Path) -> io::Result<()> {
        // Windows can't open a folder as a file; there names are durable with the file.
        #[cfg(unix)]
        {
            let folder = file.parent().filter(|it| !it.as_os_str().is_empty());
            File::open(folder.unwrap_or(Path::new(".")))?.sync_all()?;
        }
        #[cfg(not(unix))]
        let _ = file;
        Ok(())
    }
}
