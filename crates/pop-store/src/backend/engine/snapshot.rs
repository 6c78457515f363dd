//! A store's content as of one moment: the engine's own view, or a copy.

use std::{collections::BTreeMap, fmt, sync::Arc};

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::RwLock;

use super::{
    Engine, EngineSnapshot,
    layout::Layout,
    store::Shared,
    writer::{Job, Writer},
};
use crate::{Direction, Entry, ErrorKind, Keyspace, Result, Scan, Snapshot, SnapshotSupport};

/// What a snapshot reads from. Closing the store takes it away, so that a snapshot that is
/// still held somewhere does not keep the folder locked.
#[derive(Debug)]
pub(super) struct View(RwLock<Option<Held>>);

#[derive(Debug)]
enum Held {
    Engine {
        view: Arc<dyn EngineSnapshot>,
        // Also keeps the generations of that moment from being dropped.
        layout: Arc<Layout>,
    },
    Copied(BTreeMap<Keyspace, Vec<Entry>>),
}

impl View {
    pub(super) fn release(&self) {
        *self.0.write() = None;
    }
}

impl Held {
    fn get(&self, keyspace: Keyspace, key: &[u8]) -> Result<Option<Bytes>> {
        match self {
            Self::Engine { view, layout } => match layout.space(keyspace) {
                Some(space) => view.get(space, key),
                None => Ok(None),
            },
            Self::Copied(content) => Ok(content.get(&keyspace).and_then(|entries| {
                let at = entries.binary_search_by(|it| (*it.key).cmp(key)).ok()?;
                Some(entries.get(at)?.value.clone())
            })),
        }
    }

    fn scan(&self, keyspace: Keyspace, scan: &Scan) -> Result<Vec<Entry>> {
        match self {
            Self::Engine { view, layout } => match layout.space(keyspace) {
                Some(space) => view.scan(space, scan),
                None => Ok(Vec::new()),
            },
            Self::Copied(content) => {
                let entries = content.get(&keyspace).map_or(&[][..], Vec::as_slice);
                scan_sorted(entries, scan)
            }
        }
    }
}

fn scan_sorted(entries: &[Entry], scan: &Scan) -> Result<Vec<Entry>> {
    let start = entries.partition_point(|it| it.key < scan.start);
    let end = scan.end.as_ref().map_or(entries.len(), |end| {
        entries.partition_point(|it| it.key < *end)
    });
    let range = entries.get(start..end).unwrap_or_default().iter().cloned();
    match scan.direction {
        Direction::Forward => scan.collect(range.map(Ok)),
        Direction::Backward => scan.collect(range.rev().map(Ok)),
    }
}

impl<E: Engine> Writer<E> {
    /// Takes a view on the writer's thread: nothing writes meanwhile.
    pub(super) fn take_view(&mut self) -> Result<Arc<View>> {
        let held = match self.core.capabilities.snapshot {
            SnapshotSupport::None => None,
            SnapshotSupport::CopiedUpTo { bytes_max } => Some(self.copy_content(bytes_max)?),
            SnapshotSupport::Cheap => {
                let layout = Arc::clone(&self.core.layout.read());
                self.read_engine(|engine| engine.snapshot())?
                    .map(|view| Held::Engine { view, layout })
            }
        };
        let held = held.ok_or_else(|| {
            self.core
                .error(ErrorKind::Unsupported, "snapshot")
                .with_detail("this engine has no consistent view; ask its capabilities first")
        })?;
        let view = Arc::new(View(RwLock::new(Some(held))));
        let mut views = self.core.views.lock();
        views.retain(|it| it.strong_count() > 0);
        views.push(Arc::downgrade(&view));
        Ok(view)
    }

    fn copy_content(&self, bytes_max: u64) -> Result<Held> {
        let layout = Arc::clone(&self.core.layout.read());
        let mut content = BTreeMap::new();
        let mut bytes = 0;
        for &keyspace in &*self.core.keyspaces {
            let Some(space) = layout.space(keyspace) else {
                continue;
            };
            let mut entries: Vec<Entry> = Vec::new();
            let mut scan = Scan::all();
            loop {
                let page = self.read_engine(|engine| engine.scan(space, &scan))?;
                let Some(last) = page.last() else { break };
                scan.start = [&last.key[..], &[0]].concat().into();
                for entry in page {
                    bytes += (entry.key.len() + entry.value.len()) as u64;
                    entries.push(entry);
                }
                if bytes > bytes_max {
                    return Err(self
                        .core
                        .error(ErrorKind::Unsupported, "snapshot")
                        .with_detail(format!(
                            "the content is above {bytes_max} bytes, the most that this backend \
                             copies for a snapshot while writes wait; use a backend with cheap \
                             snapshots"
                        )));
                }
            }
            content.insert(keyspace, entries);
        }
        Ok(Held::Copied(content))
    }
}

/// The snapshot that callers hold. Its reads run on the store's readers.
pub(super) struct StoreSnapshot<E: Engine> {
    shared: Arc<Shared<E>>,
    view: Arc<View>,
}

impl<E: Engine> StoreSnapshot<E> {
    pub(super) fn new(shared: Arc<Shared<E>>, view: Arc<View>) -> Self {
        Self { shared, view }
    }

    async fn read<T: Send + 'static>(
        &self,
        operation: &'static str,
        keyspace: Keyspace,
        read: impl FnOnce(&Held) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.shared.core.check_keyspace(keyspace, operation)?;
        let (core, view) = (Arc::clone(&self.shared.core), Arc::clone(&self.view));
        self.shared
            .read(operation, move |_| match &*view.0.read() {
                Some(held) => read(held),
                None => Err(core.stopped_error(operation)),
            })
            .await
    }
}

impl<E: Engine> fmt::Debug for StoreSnapshot<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreSnapshot").finish_non_exhaustive()
    }
}

impl<E: Engine> Drop for StoreSnapshot<E> {
    fn drop(&mut self) {
        self.view.release();
        self.shared.send(Job::Task(Box::new(Writer::drop_retired)));
    }
}

#[async_trait]
impl<E: Engine> Snapshot for StoreSnapshot<E> {
    async fn get(&self, keyspace: Keyspace, key: &[u8]) -> Result<Option<Bytes>> {
        let key = Bytes::copy_from_slice(key);
        self.read("snapshot get", keyspace, move |held| {
            held.get(keyspace, &key)
        })
        .await
    }

    async fn scan(&self, keyspace: Keyspace, scan: Scan) -> Result<Vec<Entry>> {
        if scan.is_empty() {
            self.shared.core.check_keyspace(keyspace, "snapshot scan")?;
            self.shared.core.check("snapshot scan")?;
            return Ok(Vec::new());
        }
        self.read("snapshot scan", keyspace, move |held| {
            held.scan(keyspace, &scan)
        })
        .await
    }
}
