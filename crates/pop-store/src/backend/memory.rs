//! The store in memory: always compiled, the model that the durable backends are held against.

use std::{collections::BTreeMap, ops::Bound, sync::Arc};

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;

use crate::{
    Capabilities, Direction, Durability, Entry, Error, ErrorKind, Keyspace, Result, Scan, Snapshot,
    SnapshotSupport, Staging, Store, WriteBatch, merge::Group,
};

type Map = BTreeMap<Bytes, Bytes>;
type Content = BTreeMap<Keyspace, Arc<Map>>;

const NAME: &str = "memory";

/// An ordered store in memory. Cloning a handle shares the content.
///
/// It loses everything with the process and says so in its capabilities. For tests it can
/// also lose what a power cut would: [`MemStore::crash`].
#[derive(Clone, Debug)]
pub struct MemStore {
    keyspaces: Arc<[Keyspace]>,
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    content: Content,
    // What undoes each batch that is committed and not synced, oldest first: the content
    // after a power cut is the content with a suffix of these applied backward.
    unsynced: Vec<Vec<Undo>>,
    staging: bool,
    closed: bool,
}

#[derive(Debug)]
struct Undo {
    keyspace: Keyspace,
    key: Bytes,
    before: Option<Bytes>,
}

impl MemStore {
    /// An empty store with these keyspaces.
    #[must_use]
    pub fn new(keyspaces: &[Keyspace]) -> Self {
        let content = keyspaces
            .iter()
            .map(|keyspace| (*keyspace, Arc::default()))
            .collect();
        Self::with_content(keyspaces.into(), content)
    }

    fn with_content(keyspaces: Arc<[Keyspace]>, content: Content) -> Self {
        let state = State {
            content,
            unsynced: Vec::new(),
            staging: false,
            closed: false,
        };
        Self {
            keyspaces,
            state: Arc::new(Mutex::new(state)),
        }
    }

    /// How many batches a power cut could lose now.
    #[must_use]
    pub fn unsynced_count(&self) -> usize {
        self.state.lock().unsynced.len()
    }

    /// The store as it is after a power cut that kept the first `keep` unsynced batches.
    ///
    /// This handle and its clones are closed: their calls are refused as `Poisoned`.
    #[must_use]
    pub fn crash(&self, keep: usize) -> Self {
        let mut state = self.state.lock();
        state.closed = true;
        let mut content = std::mem::take(&mut state.content);
        let kept = keep.min(state.unsynced.len());
        for undo in state
            .unsynced
            .drain(kept..)
            .rev()
            .flat_map(|batch| batch.into_iter().rev())
        {
            let map = content.entry(undo.keyspace).or_default();
            match undo.before {
                Some(value) => Arc::make_mut(map).insert(undo.key, value),
                None => Arc::make_mut(map).remove(&undo.key),
            };
        }
        Self::with_content(Arc::clone(&self.keyspaces), content)
    }

    fn open(&self, operation: &'static str) -> Result<parking_lot::MutexGuard<'_, State>> {
        let state = self.state.lock();
        if state.closed {
            return Err(Error::new(ErrorKind::Poisoned, NAME, operation)
                .with_detail("the store was closed"));
        }
        Ok(state)
    }
}

impl State {
    fn map(&self, keyspace: Keyspace, operation: &'static str) -> Result<&Arc<Map>> {
        self.content
            .get(&keyspace)
            .ok_or_else(|| unknown(keyspace, operation))
    }

    fn apply(&mut self, group: &Group) {
        let mut undo = Vec::new();
        for (keyspace, start, end) in group.range_deletes() {
            let map = Arc::make_mut(self.content.entry(*keyspace).or_default());
            let doomed: Vec<_> = map
                .range::<Bytes, _>((Bound::Included(start), Bound::Excluded(end)))
                .map(|(key, _)| key.clone())
                .collect();
            for key in doomed {
                let before = map.remove(&key);
                undo.push(Undo {
                    keyspace: *keyspace,
                    key,
                    before,
                });
            }
        }
        for (keyspace, key, value) in group.operations() {
            let map = Arc::make_mut(self.content.entry(keyspace).or_default());
            let before = match value {
                Some(value) => map.insert(key.clone(), value.clone()),
                None => map.remove(key),
            };
            undo.push(Undo {
                keyspace,
                key: key.clone(),
                before,
            });
        }
        if !undo.is_empty() {
            self.unsynced.push(undo);
        }
    }
}

fn unknown(keyspace: Keyspace, operation: &'static str) -> Error {
    Error::new(ErrorKind::Invalid, NAME, operation).with_detail(format!(
        "keyspace {keyspace} is not one this store was opened with"
    ))
}

fn scan_map(map: &Map, scan: &Scan) -> Vec<Entry> {
    if scan.is_empty() {
        return Vec::new();
    }
    let end = scan.end.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
    let range = map.range::<Bytes, _>((Bound::Included(&scan.start), end));
    let entry = |(key, value): (&Bytes, &Bytes)| {
        Ok::<_, std::convert::Infallible>(Entry {
            key: key.clone(),
            value: value.clone(),
        })
    };
    let taken = match scan.direction {
        Direction::Forward => scan.collect(range.map(entry)),
        Direction::Backward => scan.collect(range.rev().map(entry)),
    };
    match taken {
        Ok(entries) => entries,
        Err(never) => match never {},
    }
}

#[async_trait]
impl Store for MemStore {
    fn name(&self) -> &'static str {
        NAME
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::core()
            .with_snapshot(SnapshotSupport::Cheap)
            .with_replace()
            .with_cheap_range_delete()
    }

    fn keyspaces(&self) -> &[Keyspace] {
        &self.keyspaces
    }

    async fn write(&self, batch: WriteBatch, durability: Durability) -> Result<()> {
        batch.check(NAME, &self.keyspaces)?;
        let mut state = self.open("write")?;
        let mut group = Group::new();
        group.add(NAME, batch, |keyspace, key| {
            Ok(state.map(keyspace, "write")?.get(key).cloned())
        })?;
        state.apply(&group);
        if durability == Durability::Synced {
            state.unsynced.clear();
        }
        Ok(())
    }

    async fn get(&self, keyspace: Keyspace, key: &[u8]) -> Result<Option<Bytes>> {
        Ok(self.open("get")?.map(keyspace, "get")?.get(key).cloned())
    }

    async fn scan(&self, keyspace: Keyspace, scan: Scan) -> Result<Vec<Entry>> {
        Ok(scan_map(self.open("scan")?.map(keyspace, "scan")?, &scan))
    }

    async fn snapshot(&self) -> Result<Arc<dyn Snapshot>> {
        let content = self.open("snapshot")?.content.clone();
        Ok(Arc::new(MemSnapshot { content }))
    }

    async fn begin_replace(&self, keyspaces: &[Keyspace]) -> Result<Box<dyn Staging>> {
        let mut state = self.open("begin_replace")?;
        for keyspace in keyspaces {
            state.map(*keyspace, "begin_replace")?;
        }
        if std::mem::replace(&mut state.staging, true) {
            return Err(Error::new(ErrorKind::Unavailable, NAME, "begin_replace")
                .with_detail("another staging is open: publish or abort it first"));
        }
        Ok(Box::new(MemStaging {
            store: self.clone(),
            content: keyspaces
                .iter()
                .map(|keyspace| (*keyspace, Map::new()))
                .collect(),
        }))
    }

    async fn close(&self) -> Result<()> {
        let mut state = self.state.lock();
        state.closed = true;
        state.unsynced.clear();
        Ok(())
    }
}

#[derive(Debug)]
struct MemSnapshot {
    content: Content,
}

impl MemSnapshot {
    fn map(&self, keyspace: Keyspace, operation: &'static str) -> Result<&Arc<Map>> {
        self.content
            .get(&keyspace)
            .ok_or_else(|| unknown(keyspace, operation))
    }
}

#[async_trait]
impl Snapshot for MemSnapshot {
    async fn get(&self, keyspace: Keyspace, key: &[u8]) -> Result<Option<Bytes>> {
        Ok(self.map(keyspace, "snapshot get")?.get(key).cloned())
    }

    async fn scan(&self, keyspace: Keyspace, scan: Scan) -> Result<Vec<Entry>> {
        Ok(scan_map(self.map(keyspace, "snapshot scan")?, &scan))
    }
}

#[derive(Debug)]
struct MemStaging {
    store: MemStore,
    content: BTreeMap<Keyspace, Map>,
}

impl Drop for MemStaging {
    fn drop(&mut self) {
        self.store.state.lock().staging = false;
    }
}

#[async_trait]
impl Staging for MemStaging {
    async fn load(&mut self, keyspace: Keyspace, entries: Vec<Entry>) -> Result<()> {
        let map = self.content.get_mut(&keyspace).ok_or_else(|| {
            Error::new(ErrorKind::Invalid, NAME, "load")
                .with_detail(format!("keyspace {keyspace} is not staged"))
        })?;
        // What no batch could carry must not come in beside the batches either.
        let mut batch = WriteBatch::new();
        for entry in &entries {
            batch.put(keyspace, entry.key.clone(), entry.value.clone());
        }
        batch.check(NAME, &[keyspace])?;
        map.extend(entries.into_iter().map(|entry| (entry.key, entry.value)));
        Ok(())
    }

    async fn publish(mut self: Box<Self>) -> Result<()> {
        let staged = std::mem::take(&mut self.content);
        let mut state = self.store.open("publish")?;
        for (keyspace, map) in staged {
            state.content.insert(keyspace, Arc::new(map));
        }
        // The switch is synced, and with it all that was committed before.
        state.unsynced.clear();
        Ok(())
    }

    async fn abort(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}
