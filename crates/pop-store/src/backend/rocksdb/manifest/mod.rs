//! Looks at RocksDB's MANIFEST before RocksDB does.
//!
//! The MANIFEST is the log of which tables, logs and families there are; CURRENT names the
//! one in use. A power cut while RocksDB appends to it may leave a file that is long enough
//! and sectors of it that were never written. Where that shows as a wrong checksum, RocksDB
//! 11.8.1 refuses the database; where a record's header is gone, it goes on in the next block
//! as if nothing were missing. It has no option for the one or the other:
//! `wal_recovery_mode` is for the log alone, and `best_efforts_recovery` leaves the log out.
//!
//! Records that were not synced may be cut off, for RocksDB does nothing that builds on one
//! before it is: `VersionSet::ProcessManifestWrites` calls `SyncManifest` before
//! `MarkMinLogNumberToKeep` and `AppendVersion`, and `DBImpl::FindObsoleteFiles` deletes logs
//! and tables by what those two have set. So the logs and the tables that a record lets go of
//! are there, and tables that it adds are deleted as unknown ones at the end of `DB::Open`.
//!
//! Records that were synced may not: without one, the log that it let go of is missing, and
//! the groups in the next log may hide that. So the store's high-water mark is not enough
//! here. How far the MANIFEST itself was synced is marked as well ([`SyncedPart`]), and what
//! is torn before that, or was not torn but changed, is never cut. Behind it all is cut from
//! the first tear on, also records that are whole: RocksDB would apply them over a hole.
//!
//! What is left: a disk that loses sectors after they were synced, close to the end, and the
//! mark of the last seconds in a power cut with them. Then a cut stays if tables, logs,
//! spaces and the last group are there, as they are where the end of the file is missing,
//! which RocksDB accepts by itself.

mod records;
mod synced;

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use self::records::torn_at;
pub(super) use self::synced::SyncedPart;
use super::{CURRENT, NAME, RocksEngine};
use crate::{
    Error, ErrorKind, Result,
    backend::{
        engine::holds_what_was_synced,
        folder::{DataFolder, trial::Trial},
    },
};

const PREFIX: &str = "MANIFEST-";

/// Cuts a torn end of the MANIFEST in `engine`, if all that was synced is there without it.
///
/// # Errors
///
/// `Corrupt` with nothing changed if it is not, `Unavailable` if the files can't be read, cut
/// or put back.
pub(super) fn mend(engine: &Path, folder: &DataFolder, memtable_bytes: u64) -> Result<()> {
    let Some(trial) = cut_torn_end(engine)? else {
        return Ok(());
    };
    let failed = |error| unreadable(engine, error);
    // RocksDB misses tables and logs by itself. Nothing is written: an open would delete what
    // the records that were cut off speak of, and then there would be no way back.
    let read_only = || RocksEngine::open_read_only(engine, memtable_bytes);
    let held =
        read_only().and_then(|engine| holds_what_was_synced(&engine, &mut folder.high_water()?));
    match held {
        Ok(()) => trial.confirm().map_err(failed),
        Err(error) => {
            trial.undo().map_err(failed)?;
            // What RocksDB has to say of the file as it was found, if it would not open it.
            Err(read_only().err().unwrap_or(error))
        }
    }
}

/// Cuts a torn end on trial, unless it was synced.
fn cut_torn_end(engine: &Path) -> Result<Option<Trial>> {
    let Some(manifest) = current(engine) else {
        return Ok(None);
    };
    let failed = |error| unreadable(&manifest, error);
    Trial::recover(&manifest).map_err(failed)?;
    // One that is not there is RocksDB's to report.
    if !manifest.try_exists().map_err(failed)? {
        return Ok(None);
    }
    let bytes = fs::read(&manifest).map_err(failed)?;
    let Some(at) = torn_at(&bytes) else {
        return Ok(None);
    };
    let synced = SyncedPart::open(engine).map_err(failed)?.of(&manifest);
    if at < synced {
        let manifest = manifest.display();
        let error = Error::new(ErrorKind::Corrupt, NAME, "open");
        return Err(error.with_detail(format!(
            "{manifest} is damaged at byte {at}, and {synced} bytes of it were synced; nothing \
             was changed; restore the folder from a backup"
        )));
    }
    tracing::warn!(
        manifest = %manifest.display(),
        at,
        bytes = bytes.len() - at,
        "cutting the torn end of a MANIFEST, which had not been synced, on trial"
    );
    Trial::cut(&manifest, at).map(Some).map_err(failed)
}

/// The file cannot be read, or not be put back.
pub(super) fn unreadable(path: &Path, error: io::Error) -> Error {
    Error::new(ErrorKind::Unavailable, NAME, "open")
        .with_detail(format!("{} can't be read or cut", path.display()))
        .with_source(error)
}

/// The MANIFEST in use. A CURRENT that names none is RocksDB's to report.
fn current(engine: &Path) -> Option<PathBuf> {
    let name = fs::read_to_string(engine.join(CURRENT)).ok()?;
    let name = name.strip_suffix('\n')?;
    number_of(name)?;
    Some(engine.join(name))
}

fn number_of(name: &str) -> Option<u32> {
    name.strip_prefix(PREFIX)?.parse().ok()
}

#[cfg(test)]
mod tests;
