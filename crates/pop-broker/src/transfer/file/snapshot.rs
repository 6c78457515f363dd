//! A backup as a source: a store that has nothing but one snapshot.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use pop_store::{
    Capabilities, Direction, Durability, Entry, Error, ErrorKind, Keyspace, Result, Scan, Snapshot,
    SnapshotSupport, Staging, Store, WriteBatch,
};

use super::reader::{BackupFile, Inner};

pub(super) const NAME: &str = "backup";

pub(super) fn unsupported(operation: &'static str) -> Error {
    Error::new(ErrorKind::Unsupported, NAME, operation)
}

/// The rows of a backup. Reads one block at a time, and keeps the last one.
#[derive(Debug)]
struct Rows {
    file: Arc<Inner>,
    last: Mutex<Option<(usize, Arc<Vec<Entry>>)>>,
}

impl Rows {
    fn block(&self, place: usize) -> Result<Option<Arc<Vec<Entry>>>> {
        let mut last = self.last.lock();
        if let Some((_, rows)) = last.as_ref().filter(|(found, _)| *found == place) {
            return Ok(Some(Arc::clone(rows)));
        }
        let Some(block) = self.file.blocks.get(place) else {
            return Ok(None);
        };
        let rows = self.file.rows(block).map_err(|error| {
            Error::new(ErrorKind::Corrupt, NAME, "scan").with_detail(error.to_string())
        })?;
        let rows = Arc::new(rows.1);
        *last = Some((place, Arc::clone(&rows)));
        Ok(Some(rows))
    }

    /// The rows of a keyspace from `start` on.
    fn from(&self, keyspace: u16, start: &Bytes) -> impl Iterator<Item = Result<Entry>> {
        let blocks = &self.file.blocks;
        // The last block that begins at or before the start, if it is of this keyspace.
        let behind = blocks.partition_point(|it| (it.keyspace, &it.first) <= (keyspace, start));
        let first = blocks.partition_point(|it| it.keyspace < keyspace);
        let last = blocks.partition_point(|it| it.keyspace <= keyspace);
        let begin = behind.saturating_sub(1).max(first);
        (begin..last).flat_map(move |place| {
            let rows = match self.block(place) {
                Ok(rows) => rows.unwrap_or_default(),
                Err(error) => return vec![Err(error)],
            };
            let skip = rows.partition_point(|it| it.key < start);
            rows.iter().skip(skip).cloned().map(Ok).collect()
        })
    }
}

#[async_trait]
impl Snapshot for Rows {
    async fn get(&self, keyspace: Keyspace, key: &[u8]) -> Result<Option<Bytes>> {
        let scan = Scan::from(Bytes::copy_from_slice(key)).with_entries_max(1);
        let found = self.scan(keyspace, scan).await?;
        let found = found.into_iter().find(|it| it.key == key);
        Ok(found.map(|it| it.value))
    }

    async fn scan(&self, keyspace: Keyspace, scan: Scan) -> Result<Vec<Entry>> {
        if scan.direction == Direction::Backward {
            return Err(unsupported("scan"));
        }
        let place = self.file.keyspaces.iter().position(|it| *it == keyspace);
        let Some(place) = place.and_then(|it| u16::try_from(it).ok()) else {
            let error = Error::new(ErrorKind::Invalid, NAME, "scan");
            return Err(error.with_detail(format!("a backup has no keyspace {keyspace}")));
        };
        let inside = |row: &Result<Entry>| match (row, &scan.end) {
            (Ok(row), Some(end)) => row.key < end,
            _ => true,
        };
        scan.collect(self.from(place, &scan.start).take_while(inside))
    }
}

#[async_trait]
impl Store for BackupFile {
    fn name(&self) -> &'static str {
        NAME
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::core().with_snapshot(SnapshotSupport::Cheap)
    }

    fn keyspaces(&self) -> &[Keyspace] {
        &self.0.keyspaces
    }

    async fn write(&self, _: WriteBatch, _: Durability) -> Result<()> {
        Err(unsupported("write"))
    }

    async fn get(&self, keyspace: Keyspace, key: &[u8]) -> Result<Option<Bytes>> {
        self.snapshot().await?.get(keyspace, key).await
    }

    async fn scan(&self, keyspace: Keyspace, scan: Scan) -> Result<Vec<Entry>> {
        self.snapshot().await?.scan(keyspace, scan).await
    }

    async fn snapshot(&self) -> Result<Arc<dyn Snapshot>> {
        Ok(Arc::new(Rows {
            file: Arc::clone(&self.0),
            last: Mutex::default(),
        }))
    }

    async fn begin_replace(&self, _: &[Keyspace]) -> Result<Box<dyn Staging>> {
        Err(unsupported("begin_replace"))
    }

    async fn close(&self) -> Result<()> {
        Ok(())
    }
}
