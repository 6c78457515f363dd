//! How much of the MANIFEST in use is synced.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use super::{current, number_of};
use crate::backend::folder::HighWater;

// In RocksDB's folder, which leaves alone what has none of its names.
pub(super) const MARK: &str = "pop.manifest";

/// How much of the MANIFEST in use is synced for sure: never more than is, and after a kill
/// no less than what any synced group relies on. After a power cut the mark may be older by
/// what the system had not written back, as the store's own.
#[derive(Debug)]
pub(in super::super) struct SyncedPart {
    engine: PathBuf,
    mark: HighWater,
    // Also of what could not be marked: then the next change is.
    seen: u64,
}

impl SyncedPart {
    pub(in super::super) fn open(engine: &Path) -> io::Result<Self> {
        let path = engine.join(MARK);
        // One that can't be read says nothing, and nothing is what an older one may say.
        let mark = HighWater::open(&path)
            .or_else(|_| HighWater::create(&path).and_then(|()| HighWater::open(&path)))?;
        Ok(Self {
            engine: engine.to_owned(),
            seen: mark.sequence(),
            mark,
        })
    }

    /// How many bytes of `manifest` are.
    pub(super) fn of(&self, manifest: &Path) -> usize {
        let is_it = place(manifest, 0).is_some_and(|it| it >> 32 == self.mark.sequence() >> 32);
        let length = self.mark.sequence() & u64::from(u32::MAX);
        usize::try_from(length).unwrap_or(0) * usize::from(is_it)
    }

    /// Marks what the MANIFEST in use has, if that is more, and syncs it before: RocksDB may
    /// be about to.
    pub(in super::super) fn advance(&mut self) {
        // Between two calls RocksDB may have gone on with another file, and deleted this one.
        let Some(manifest) = current(&self.engine) else {
            return;
        };
        let length = fs::metadata(&manifest).map_or(0, |it| it.len());
        let place = place(&manifest, length);
        let Some(place) = place.filter(|it| *it > self.seen && length > 0) else {
            return;
        };
        self.seen = place;
        let synced = fs::OpenOptions::new().write(true).open(&manifest);
        let marked = synced
            .and_then(|file| file.sync_data())
            .and_then(|()| self.mark.record(place));
        if let Err(error) = marked {
            tracing::debug!(manifest = %manifest.display(), %error, "not marked as synced");
        }
    }
}

/// A length in a MANIFEST, as a number that rises from one to the next.
fn place(manifest: &Path, length: u64) -> Option<u64> {
    let number = number_of(manifest.file_name()?.to_str()?)?;
    let length = u32::try_from(length).ok()?;
    Some(u64::from(number) << 32 | u64::from(length))
}
