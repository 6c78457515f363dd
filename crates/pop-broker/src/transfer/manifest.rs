//! What a person reads about a backup: `NAME.toml`, beside it.
//!
//! It says what the backup says of itself, and where it was taken from. A restore reads the
//! backup alone. Until its command has said that the backup is there it is called
//! `NAME.toml.partial`: so a command that is typed again after a kill knows its own backup
//! from every other that has the name.

use std::{
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
};

use serde::Serialize;
use time::{OffsetDateTime, format_description::well_known::Rfc3339};

use super::{
    disk::{Disk, Files},
    file::{BackupError, BackupFile},
};

const HEADER: &str = "\
# A backup of a broker, in the file of this name without `.toml`. Bring it back with
#   pop-broker restore --from FILE --to FOLDER
";

/// What a backup is of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Manifest {
    /// The version of the backup format.
    pub format: u8,
    /// The version of the program that took the snapshot.
    pub program: String,
    /// The store that it was taken from.
    pub store: String,
    /// The moment of which it is the content.
    pub taken_at: String,
    /// The id of the snapshot, in hexadecimal.
    pub snapshot: String,
    /// The sum of the hashes of its rows, in hexadecimal.
    pub digest: String,
    /// How many rows it has.
    pub rows: u64,
    /// How many bytes of keys and values.
    pub bytes: u64,
    /// How many bytes the file has.
    pub file_bytes: u64,
    /// The same of each keyspace.
    pub keyspaces: Vec<KeyspaceManifest>,
}

/// What a keyspace of a backup has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct KeyspaceManifest {
    /// Its name.
    pub name: &'static str,
    /// How many rows it has.
    pub rows: u64,
    /// How many bytes of keys and values.
    pub bytes: u64,
}

impl Manifest {
    /// What a backup says of itself.
    #[must_use]
    pub fn of(file: &BackupFile) -> Self {
        let (digest, all) = file.digest();
        let keyspaces = file.keyspaces().map(|(keyspace, totals)| KeyspaceManifest {
            name: keyspace.name(),
            rows: totals.rows,
            bytes: totals.bytes,
        });
        Self {
            format: 1,
            program: file.meta().program.clone(),
            store: file.meta().store.clone(),
            taken_at: moment(file.meta().taken_at_unix_ms),
            snapshot: file.at().id.to_string(),
            digest: format!("{digest:032x}"),
            rows: all.rows,
            bytes: all.bytes,
            file_bytes: file.file_bytes(),
            keyspaces: keyspaces.collect(),
        }
    }

    /// As it is written.
    #[must_use]
    pub fn text(&self) -> String {
        // Names and numbers alone: nothing in it can fail to be written.
        let fields = toml::to_string(self).unwrap_or_default();
        format!("{HEADER}\n{fields}")
    }

    /// The same, with where it was taken from. It is written so.
    fn text_from(&self, from: &str) -> String {
        format!("{}\n# Taken with --from {from:?}\n", self.text())
    }

    /// Writes it beside the backup `of`, under the name that it has until somebody was told
    /// of that backup.
    pub(super) fn write(&self, of: &Path, from: &str, disk: &dyn Disk) -> Result<(), BackupError> {
        let path = untold(of);
        let write = || {
            let mut file = File::create(&path)?;
            file.write_all(self.text_from(from).as_bytes())?;
            disk.sync(&path, &file)
        };
        write().map_err(BackupError::io(&path, "written"))
    }
}

/// The name of a manifest until it is told of.
fn untold(of: &Path) -> PathBuf {
    named(of, ".toml.partial")
}

/// The name of a manifest.
fn told(of: &Path) -> PathBuf {
    named(of, ".toml")
}

fn named(of: &Path, ending: &str) -> PathBuf {
    let mut name = of.as_os_str().to_owned();
    name.push(ending);
    PathBuf::from(name)
}

impl BackupFile {
    /// Whether a command that was to make this backup from there was cut off when it had made
    /// it, and before it said so.
    #[must_use]
    pub fn is_untold(&self, from: &str) -> bool {
        let left = fs::read_to_string(untold(self.path()));
        left.is_ok_and(|it| it == Manifest::of(self).text_from(from))
    }

    /// Somebody was told that the backup is there: its manifest gets its name. From then on
    /// another command with this name does not take it for its own.
    ///
    /// # Errors
    ///
    /// If it can't be named.
    pub fn told(&self, from: &str) -> Result<(), BackupError> {
        let (old, new) = (untold(self.path()), told(self.path()));
        if !old.exists() && !new.exists() {
            Manifest::of(self).write(self.path(), from, &Files)?;
        }
        let named = match fs::rename(&old, &new) {
            // It was told of before, or another command in this folder does so now.
            Err(error) if error.kind() == io::ErrorKind::NotFound && new.exists() => Ok(()),
            named => named.and_then(|()| Files.sync_folder_of(&new)),
        };
        named.map_err(BackupError::io(&new, "named"))
    }
}

/// A moment of wall time as a person reads it.
#[must_use]
pub fn moment(unix_ms: i64) -> String {
    let nanos = i128::from(unix_ms) * 1_000_000;
    let moment = OffsetDateTime::from_unix_timestamp_nanos(nanos).ok();
    let text = moment.and_then(|it| it.format(&Rfc3339).ok());
    text.unwrap_or_else(|| format!("{unix_ms} ms after 1970"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_written_as_people_write_it() {
        assert_eq!(moment(1_700_000_000_123), "2023-11-14T22:13:20.123Z");
        assert_eq!(moment(i64::MAX), format!("{} ms after 1970", i64::MAX));
    }
}
