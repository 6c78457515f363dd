//! A store's content as of one moment: the engine's own view, or the present with what was
//! kept of that moment.

use std::{fmt, sync::Arc};

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::RwLock;

use super::{
    Engine, EngineSnapshot,
    layout::Layout,
    preimage::PreImages,
    store::Shared,
    writer::{Job, Writer},
};
use crate::{Entry, Estimate, Keyspace, Result, Rows, Scan, Snapshot};

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
    Kept(Arc<PreImages>),
}

impl View {
    pub(super) fn release(&self) {
        *self.0.write() = None;
    }
}

impl Held {
    fn get(&self, engine: &dyn Engine, keyspace: Keyspace, key: &[u8]) -> Result<Option<Bytes>> {
        match self {
            Self::Engine { view, layout } => match layout.space(keyspace) {
                Some(space) => view.get(space, key),
                None => Ok(None),
            },
            Self::Kept(images) => images.get(engine, keyspace, key),
        }
    }

    fn scan(&self, engine: &dyn Engine, keyspace: Keyspace, scan: &Scan) -> Result<Vec<Entry>> {
        match self {
            Self::Engine { view, layout } => match layout.space(keyspace) {
                Some(space) => view.scan(space, scan),
                None => Ok(Vec::new()),
            },
            Self::Kept(images) => images.scan(engine, keyspace, scan),
        }
    }

    /// Of the present: what was written since is little beside a content that is worth a
    /// percentage.
    fn estimate(&self, engine: &dyn Engine, keyspace: Keyspace) -> Result<Option<Estimate>> {
        match self {
            Self::Engine { layout, .. } => match layout.space(keyspace) {
                Some(space) => engine.estimate(space),
                None => Ok(Some(Estimate::default())),
            },
            Self::Kept(_) => Ok(None),
        }
    }

    fn rows(&self, engine: &dyn Engine, keyspace: Keyspace, scan: &Scan) -> Result<Rows> {
        match self {
            Self::Engine { view, layout } => match layout.space(keyspace) {
                Some(space) => view.rows(space, scan),
                None => Ok(Rows::default()),
            },
            Self::Kept(images) => Ok(images.scan(engine, keyspace, scan)?.into()),
        }
    }
}

impl<E: Engine> Writer<E> {
    /// Takes a view on the writer's thread: nothing writes meanwhile.
    pub(super) fn take_view(&mut self) -> Result<Arc<View>> {
        let held = match self.read_engine(|engine| engine.snapshot())? {
            Some(view) => Held::Engine {
                view,
                layout: Arc::clone(&self.core.layout.read()),
            },
            None => Held::Kept(self.watch()),
        };
        let view = Arc::new(View(RwLock::new(Some(held))));
        let mut views = self.core.views.lock();
        views.retain(|it| it.strong_count() > 0);
        views.push(Arc::downgrade(&view));
        Ok(view)
    }

    /// Gives back what only a snapshot that is gone had need of.
    fn snapshot_dropped(&mut self) {
        self.forget_dropped_snapshots();
        self.drop_retired();
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

    /// Reads what `scan` wants; nothing for a range in which no key can lie.
    async fn read_range<T: Default + Send + 'static>(
        &self,
        keyspace: Keyspace,
        scan: Scan,
        read: impl FnOnce(&Held, &dyn Engine, Keyspace, &Scan) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let operation = "snapshot scan";
        if scan.is_empty() {
            self.shared.core.check_keyspace(keyspace, operation)?;
            self.shared.core.check(operation)?;
            return Ok(T::default());
        }
        self.read(operation, keyspace, move |held, engine| {
            read(held, engine, keyspace, &scan)
        })
        .await
    }

    async fn read<T: Send + 'static>(
        &self,
        operation: &'static str,
        keyspace: Keyspace,
        read: impl FnOnce(&Held, &dyn Engine) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.shared.core.check_keyspace(keyspace, operation)?;
        let (core, view) = (Arc::clone(&self.shared.core), Arc::clone(&self.view));
        self.shared
            .read(operation, move |engine| match &*view.0.read() {
                Some(held) => read(held, engine),
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
        self.shared
            .send(Job::Task(Box::new(Writer::snapshot_dropped)));
    }
}

#[async_trait]
impl<E: Engine> Snapshot for StoreSnapshot<E> {
    async fn get(&self, keyspace: Keyspace, key: &[u8]) -> Result<Option<Bytes>> {
        let key = Bytes::copy_from_slice(key);
        self.read("snapshot get", keyspace, move |held, engine| {
            held.get(engine, keyspace, &key)
        })
        .await
    }

    async fn scan(&self, keyspace: Keyspace, scan: Scan) -> Result<Vec<Entry>> {
        self.read_range(keyspace, scan, Held::scan).await
    }

    async fn rows(&self, keyspace: Keyspace, scan: Scan) -> Result<Rows> {
        self.read_range(keyspace, scan, Held::rows).await
    }

    async fn estimate(&self, keyspace: Keyspace) -> Result<Option<Estimate>> {
        self.read("snapshot estimate", keyspace, move |held, engine| {
            held.estimate(engine, keyspace)
        })
        .await
    }
}
