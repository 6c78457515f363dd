//! The store in memory: always compiled, the model that the durable backends are held against.

use std::{collections::BTreeMap, ops::Bound, sync::Arc};

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;

use crate::{
    Capabilities, Direction, Durability, Entry, Error, ErrorKind, Estimate, Keyspace, Result,
    Resumed, Scan, Snapshot, SnapshotSupport, Staging, Store, WriteBatch, merge::Group,
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
    // The last checkpoint of a staging. It is durable: a power cut leaves it.
    kept: Option<Kept>,
    closed: bool,
}

/// A staging that may be resumed.
#[derive(Clone, Debug)]
struct Kept {
    name: Bytes,
    point: Bytes,
    content: BTreeMap<Keyspace, Map>,
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
        Self::with_content(keyspaces.into(), content, None)
    }

    fn with_content(keyspaces: Arc<[Keyspace]>, content: Content, kept: Option<Kept>) -> Self {
        let state = State {
            content,
            unsynced: Vec::new(),
            staging: false,
            kept,
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

    /// How many bytes of rows are kept for a staging that may be resumed.
    #[must_use]
    pub fn kept_bytes(&self) -> usize {
        let state = self.state.lock();
        let maps = state.kept.iter().flat_map(|it| it.content.values());
        maps.flatten()
            .map(|(key, value)| key.len() + value.len())
            .sum()
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
        let kept = state.kept.take();
        Self::with_content(Arc::clone(&self.keyspaces), content, kept)
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

    /// Takes the one place for a staging.
    fn begin(&mut self, keyspaces: &[Keyspace]) -> Result<&mut Self> {
        for keyspace in keyspaces {
            self.map(*keyspace, "begin_replace")?;
        }
        if std::mem::replace(&mut self.staging, true) {
            return Err(Error::new(ErrorKind::Unavailable, NAME, "begin_replace")
                .with_detail("another staging is open: publish or abort it first"));
        }
        Ok(self)
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

fn empty(keyspaces: &[Keyspace]) -> BTreeMap<Keyspace, Map> {
    keyspaces.iter().map(|it| (*it, Map::new())).collect()
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
            .with_resumable_replace()
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
        self.open("begin_replace")?.begin(keyspaces)?.kept = None;
        Ok(Box::new(MemStaging {
            store: self.clone(),
            content: empty(keyspaces),
            name: None,
            keep: false,
        }))
    }

    async fn resume_replace(&self, keyspaces: &[Keyspace], name: Bytes) -> Result<Resumed> {
        if name.len() > Resumed::NAME_BYTES_MAX {
            return Err(Error::new(ErrorKind::Invalid, NAME, "resume_replace")
                .with_detail("the name is too long"));
        }
        let mut state = self.open("resume_replace")?;
        let state = state.begin(keyspaces)?;
        state
            .kept
            .take_if(|it| it.name != name || !it.content.keys().eq(empty(keyspaces).keys()));
        let kept = state.kept.clone();
        let (content, point) = match kept {
            Some(kept) => (kept.content, Some(kept.point)),
            None => (empty(keyspaces), None),
        };
        let staging = Box::new(MemStaging {
            store: self.clone(),
            content,
            name: Some(name),
            keep: true,
        });
        Ok(Resumed { staging, point })
    }

    async fn resumable(&self) -> Result<Option<Bytes>> {
        let state = self.open("resumable")?;
        Ok(state.kept.as_ref().map(|it| it.name.clone()))
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

    async fn estimate(&self, keyspace: Keyspace) -> Result<Option<Estimate>> {
        let rows = self.map(keyspace, "snapshot estimate")?.len();
        Ok(Some(Estimate {
            rows: u64::try_from(rows).unwrap_or(u64::MAX),
            // To know them, each would have to be looked at.
            bytes: None,
        }))
    }
}

#[derive(Debug)]
struct MemStaging {
    store: MemStore,
    content: BTreeMap<Keyspace, Map>,
    // Of one that can be resumed.
    name: Option<Bytes>,
    keep: bool,
}

impl Drop for MemStaging {
    fn drop(&mut self) {
        let mut state = self.store.state.lock();
        state.staging = false;
        if !self.keep {
            state.kept = None;
        }
    }
}

#[async_trait]
impl Staging for MemStaging {
    async fn load(&mut self, keyspace: Keyspace, entries: Vec<Entry>) -> Result<()> {
        let invalid = |detail| Error::new(ErrorKind::Invalid, NAME, "load").with_detail(detail);
        let map = self
            .content
            .get_mut(&keyspace)
            .ok_or_else(|| invalid(format!("keyspace {keyspace} is not staged")))?;
        // What no batch could carry must not come in beside the batches either.
        let mut batch = WriteBatch::new();
        for entry in &entries {
            batch.put(keyspace, entry.key.clone(), entry.value.clone());
        }
        batch.check(NAME, &[keyspace])?;
        let last = map.last_key_value().map(|(key, _)| key);
        let keys = last.into_iter().chain(entries.iter().map(|it| &it.key));
        if self.name.is_some() && !keys.is_sorted_by(|a, b| a < b) {
            return Err(invalid(format!("keys of {keyspace} don't ascend")));
        }
        map.extend(entries.into_iter().map(|entry| (entry.key, entry.value)));
        Ok(())
    }

    async fn checkpoint(&mut self, point: Bytes) -> Result<()> {
        let Some(name) = self.name.clone() else {
            return Err(Error::new(ErrorKind::Unsupported, NAME, "checkpoint")
                .with_detail("open the load with resume_replace"));
        };
        if point.len() > Resumed::POINT_BYTES_MAX {
            return Err(Error::new(ErrorKind::Invalid, NAME, "checkpoint")
                .with_detail("the point is too long"));
        }
        self.store.open("checkpoint")?.kept = Some(Kept {
            name,
            point,
            content: self.content.clone(),
        });
        Ok(())
    }

    fn forget_checkpoint(&mut self) {
        self.keep = false;
    }

    async fn publish(mut self: Box<Self>) -> Result<()> {
        let staged = std::mem::take(&mut self.content);
        let mut state = self.store.open("publish")?;
        for (keyspace, map) in staged {
            state.content.insert(keyspace, Arc::new(map));
        }
        // The switch is synced, and with it all that was committed before.
        state.unsynced.clear();
        state.kept = None;
        Ok(())
    }

    async fn abort(mut self: Box<Self>) -> Result<()> {
        self.keep = false;
        Ok(())
    }
}
