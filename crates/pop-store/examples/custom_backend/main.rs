//! A whole backend: a sorted map in memory, and a journal on disk that is read at open.
//!
//! Run it: `cargo run -p pop-store --example custom_backend --features testkit`.
//! Prove it: `cargo test -p pop-store --example custom_backend --features testkit`.
//!
//! It keeps the core of the contract and states that it has no snapshot and no replace.
//! What it lacks for production is room: the journal only grows, all content is in memory,
//! and each write syncs alone on the caller's thread.

#![allow(clippy::print_stdout, reason = "an example prints what it shows")]

use std::{
    collections::BTreeMap,
    fs::{File, OpenOptions, TryLockError},
    io::{Read, Write},
    ops::Bound,
    path::Path,
    sync::Arc,
};

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::{MappedMutexGuard, Mutex, MutexGuard};
use pop_store::{
    Capabilities, Direction, Durability, Entry, Error, ErrorKind, Keyspace, Result, Scan, Snapshot,
    Staging, Store, WriteBatch, merge::Group,
};

mod journal;

const NAME: &str = "journal";

/// An ordered store in one journal file.
#[derive(Debug)]
pub(crate) struct JournalStore {
    keyspaces: Vec<Keyspace>,
    // `None` once it was closed or a write failed: from then on every call is refused.
    open: Mutex<Option<Open>>,
}

#[derive(Debug)]
struct Open {
    content: BTreeMap<Keyspace, BTreeMap<Bytes, Bytes>>,
    // Locked as long as it is open, and freed by the system if the process dies.
    journal: File,
}

impl JournalStore {
    /// Opens the journal in `folder`, or begins one.
    ///
    /// # Errors
    ///
    /// `Locked` if somebody has it open, `Corrupt` if a record is damaged.
    pub(crate) fn open(folder: &Path, keyspaces: &[Keyspace]) -> Result<Self> {
        let failed = |error| Error::new(ErrorKind::Unavailable, NAME, "open").with_source(error);
        let mut journal = OpenOptions::new()
            .read(true)
            .append(true)
            .create(true)
            .open(folder.join("journal"))
            .map_err(failed)?;
        journal.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => Error::new(ErrorKind::Locked, NAME, "open"),
            TryLockError::Error(error) => failed(error),
        })?;
        // A new file survives a power cut once its folder is synced.
        File::open(folder)
            .and_then(|it| it.sync_all())
            .map_err(failed)?;

        let mut recorded = Vec::new();
        journal.read_to_end(&mut recorded).map_err(failed)?;
        let mut rest = Bytes::from(recorded);
        let mut open = Open {
            content: keyspaces.iter().map(|it| (*it, BTreeMap::new())).collect(),
            journal,
        };
        while let Some(batch) = journal::next_record(&mut rest, keyspaces)? {
            let group = open.effect(batch)?;
            open.apply(&group);
        }
        // What is left was being written when the process died, and nobody was told that it
        // was done. Cut off, so that the next record does not follow half of one.
        let whole = open.journal.metadata().map_err(failed)?.len() - rest.len() as u64;
        open.journal.set_len(whole).map_err(failed)?;
        Ok(Self {
            keyspaces: keyspaces.to_vec(),
            open: Mutex::new(Some(open)),
        })
    }

    fn lock(&self, operation: &'static str) -> Result<MappedMutexGuard<'_, Open>> {
        MutexGuard::try_map(self.open.lock(), Option::as_mut).map_err(|_| closed(operation))
    }
}

impl Open {
    fn map(&self, keyspace: Keyspace, operation: &'static str) -> Result<&BTreeMap<Bytes, Bytes>> {
        self.content.get(&keyspace).ok_or_else(|| {
            Error::new(ErrorKind::Invalid, NAME, operation)
                .with_detail(format!("keyspace {keyspace} is not open"))
        })
    }

    /// What `batch` comes to on the present content, if its preconditions hold.
    fn effect(&self, batch: WriteBatch) -> Result<Group> {
        let mut group = Group::new();
        group.add(NAME, batch, |keyspace, key| {
            Ok(self.map(keyspace, "write")?.get(key).cloned())
        })?;
        Ok(group)
    }

    /// Range deletes first, as `Group` says.
    fn apply(&mut self, group: &Group) {
        for (keyspace, start, end) in group.range_deletes() {
            let map = self.content.entry(*keyspace).or_default();
            map.retain(|key, _| key < start || key >= end);
        }
        for (keyspace, key, value) in group.operations() {
            let map = self.content.entry(keyspace).or_default();
            match value {
                Some(value) => map.insert(key.clone(), value.clone()),
                None => map.remove(key),
            };
        }
    }
}

// Nothing is awaited under the lock, so a caller that goes away can't hold it.
#[async_trait]
impl Store for JournalStore {
    fn name(&self) -> &'static str {
        NAME
    }

    fn capabilities(&self) -> Capabilities {
        // Every write is synced before its answer, so a buffered one waits for 0 ms.
        Capabilities::core().with_durable(0)
    }

    fn keyspaces(&self) -> &[Keyspace] {
        &self.keyspaces
    }

    async fn write(&self, batch: WriteBatch, _durability: Durability) -> Result<()> {
        batch.check(NAME, &self.keyspaces)?;
        let mut guard = self.open.lock();
        let open = guard.as_mut().ok_or_else(|| closed("write"))?;
        let group = open.effect(batch)?;
        let written = open.journal.write_all(&journal::record(&group));
        if let Err(error) = written.and_then(|()| open.journal.sync_data()) {
            // Some of the record may be there, and a later sync would prove nothing.
            *guard = None;
            return Err(Error::new(ErrorKind::InDoubt, NAME, "write").with_source(error));
        }
        open.apply(&group);
        Ok(())
    }

    async fn get(&self, keyspace: Keyspace, key: &[u8]) -> Result<Option<Bytes>> {
        let open = self.lock("get")?;
        Ok(open.map(keyspace, "get")?.get(key).cloned())
    }

    async fn scan(&self, keyspace: Keyspace, scan: Scan) -> Result<Vec<Entry>> {
        let open = self.lock("scan")?;
        let map = open.map(keyspace, "scan")?;
        if scan.is_empty() {
            return Ok(Vec::new());
        }
        let end = scan.end.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
        let range = map.range::<Bytes, _>((Bound::Included(&scan.start), end));
        let range = range.map(|(key, value)| {
            Ok(Entry {
                key: key.clone(),
                value: value.clone(),
            })
        });
        match scan.direction {
            Direction::Forward => scan.collect(range),
            Direction::Backward => scan.collect(range.rev()),
        }
    }

    async fn snapshot(&self) -> Result<Arc<dyn Snapshot>> {
        drop(self.lock("snapshot")?);
        Err(Error::new(ErrorKind::Unsupported, NAME, "snapshot"))
    }

    async fn begin_replace(&self, _keyspaces: &[Keyspace]) -> Result<Box<dyn Staging>> {
        drop(self.lock("begin_replace")?);
        Err(Error::new(ErrorKind::Unsupported, NAME, "begin_replace"))
    }

    async fn close(&self) -> Result<()> {
        // All is synced; dropping the file frees its lock.
        *self.open.lock() = None;
        Ok(())
    }
}

fn closed(operation: &'static str) -> Error {
    Error::new(ErrorKind::Poisoned, NAME, operation).with_detail("closed, or a write failed")
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    const PLANETS: Keyspace = Keyspace::new("planets");
    let folder = std::env::temp_dir().join(format!("journal-store-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("the temporary folder can be made");

    let store = JournalStore::open(&folder, &[PLANETS])?;
    let mut batch = WriteBatch::new();
    for (name, moons) in [("mars", "2"), ("venus", "0"), ("jupiter", "97")] {
        batch.put(PLANETS, name.into(), moons.into());
    }
    store.write(batch, Durability::Synced).await?;

    let mut stale = WriteBatch::new();
    stale
        .require(PLANETS, "mars".into(), "1".into())
        .delete(PLANETS, "mars".into());
    if let Err(error) = store.write(stale, Durability::Synced).await {
        println!("{error}");
    }

    store.close().await?;
    let store = JournalStore::open(&folder, &[PLANETS])?;
    println!("after opening it again:");
    for Entry { key, value } in store.scan(PLANETS, Scan::all()).await? {
        println!(
            "  {} has {} moons",
            key.escape_ascii(),
            value.escape_ascii()
        );
    }
    store.close().await?;
    std::fs::remove_dir_all(&folder).expect("the temporary folder can be removed");
    Ok(())
}

#[cfg(test)]
mod conformance {
    use super::*;
    use pop_store::testkit::{KEYSPACES, StoreFactory};

    struct Journal;

    impl StoreFactory for Journal {
        type Store = JournalStore;

        async fn open(&self, folder: &Path) -> Result<JournalStore> {
            JournalStore::open(folder, &KEYSPACES)
        }
    }

    pop_store::conformance!(Journal);
}
