//! [`Store`] on top of any [`Engine`].

use std::{
    fmt,
    sync::{
        Arc,
        mpsc::{self, Sender},
    },
    thread::{self, JoinHandle},
};

use async_trait::async_trait;
use bytes::Bytes;

use super::{
    Engine, OpenOptions, Space,
    answer::Answer,
    bootstrap::bootstrap,
    core::Core,
    disk::DiskGuard,
    layout::Layout,
    preimage::Watched,
    readers::{Read, Readers},
    snapshot::StoreSnapshot,
    staged::Retired,
    staging::EngineStaging,
    writer::{Job, Pending, Writer},
};
use crate::{
    Capabilities, Durability, Entry, ErrorKind, Keyspace, Result, Resumed, Scan, Snapshot,
    SnapshotSupport, Staging, Store, WriteBatch, backend::folder::DataFolder,
};

/// A store on a blocking engine. Clones share it.
///
/// [`Store::close`] is the way to end it. Dropping the last handle, snapshot and staging
/// does the same and waits for it, with nobody to tell an error to.
pub struct EngineStore<E: Engine> {
    shared: Arc<Shared<E>>,
}

impl<E: Engine> Clone for EngineStore<E> {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
        }
    }
}

impl<E: Engine> fmt::Debug for EngineStore<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EngineStore")
            .field("name", &self.shared.core.name)
            .field("keyspaces", &self.shared.core.keyspaces)
            .finish_non_exhaustive()
    }
}

/// What all handles of a store share: the ends of its queues.
pub(super) struct Shared<E: Engine> {
    pub(super) core: Arc<Core>,
    // `None` only while the last handle is dropped.
    jobs: Option<Sender<Job<E>>>,
    reads: Sender<Read<E>>,
    writer: Option<JoinHandle<()>>,
}

impl<E: Engine> EngineStore<E> {
    /// Starts a store on `engine`, which was opened inside `folder`. It blocks: call it
    /// before the runtime serves, or from a thread that may block.
    ///
    /// Without a folder nothing watches the free space, and a history that the engine cut
    /// goes unnoticed.
    ///
    /// # Errors
    ///
    /// `Incompatible` for an unknown format, `Corrupt` for damaged records or for a history
    /// that ends before what was synced, and the engine's errors.
    pub fn start(engine: E, folder: Option<DataFolder>, options: &OpenOptions) -> Result<Self> {
        let mut high_water = folder.as_ref().map(DataFolder::high_water).transpose()?;
        let start = bootstrap(&engine, high_water.as_mut(), options)?;
        let mut capabilities = engine
            .capabilities()
            .with_snapshot(SnapshotSupport::Cheap)
            .with_resumable_replace();
        if capabilities.durable {
            let buffered_sync_ms = options.buffered_sync.as_millis();
            capabilities =
                capabilities.with_durable(u64::try_from(buffered_sync_ms).unwrap_or(u64::MAX));
        }
        let core = Arc::new(Core::new(
            engine.name(),
            capabilities,
            start.layout,
            options,
        ));
        let engine = Arc::new(engine);
        let readers = Readers::start(&engine, &core, options.reader_count)?;
        let reads = readers.sender();
        let (jobs, inbox) = mpsc::channel();
        let writer = Writer {
            core: Arc::clone(&core),
            engine,
            inbox,
            readers,
            disk: folder
                .as_ref()
                .map(|it| DiskGuard::new(it.path().to_owned(), options.free_bytes_min)),
            folder,
            high_water,
            buffered_sync: options.buffered_sync,
            system: Space::system(),
            sequence: start.sequence,
            dirty_since: None,
            staging: None,
            kept: start.kept,
            retired: Retired::default(),
            watched: Watched::new(options.snapshot_bytes),
            carried: None,
        };
        let writer = thread::Builder::new()
            .name("store-writer".to_owned())
            .spawn(move || writer.run())
            .map_err(|error| {
                core.error(ErrorKind::Unavailable, "open")
                    .with_detail("the writer thread could not be started")
                    .with_source(error)
            })?;
        let shared = Shared {
            core,
            jobs: Some(jobs),
            reads,
            writer: Some(writer),
        };
        Ok(Self {
            shared: Arc::new(shared),
        })
    }

    async fn read_space<T: Send + 'static>(
        &self,
        operation: &'static str,
        keyspace: Keyspace,
        read: impl FnOnce(&E, &Space) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.shared.core.check_keyspace(keyspace, operation)?;
        let core = Arc::clone(&self.shared.core);
        self.shared
            .read(operation, move |engine| {
                let layout = core.layout.read();
                read(engine, opened_space(&layout, keyspace))
            })
            .await
    }
}

#[cfg(test)]
impl<E: Engine> EngineStore<E> {
    /// Has the writer's thread die between two groups, as our own bug would.
    pub(super) fn kill_writer(&self) {
        self.shared.send(Job::Die);
    }
}

fn opened_space(layout: &Layout, keyspace: Keyspace) -> &Space {
    layout
        .space(keyspace)
        .expect("every opened keyspace is in the layout")
}

impl<E: Engine> Shared<E> {
    /// Hands `job` to the writer. Once that has stopped, the job is dropped, which answers it.
    pub(super) fn send(&self, job: Job<E>) {
        if let Some(jobs) = &self.jobs {
            let _ = jobs.send(job);
        }
    }

    /// Runs `task` on the writer's thread, in order with the writes.
    pub(super) async fn ask<T: Send + 'static>(
        &self,
        operation: &'static str,
        task: impl FnOnce(&mut Writer<E>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.core.check(operation)?;
        let (mut answer, waiter) = Answer::new(self.core.name, operation);
        self.send(Job::Task(Box::new(move |writer| {
            let result = writer.core.check(operation).and_then(|()| {
                answer.begin();
                task(writer)
            });
            answer.send(result);
        })));
        waiter.wait().await
    }

    /// Runs `read` on a reader's thread.
    pub(super) async fn read<T: Send + 'static>(
        &self,
        operation: &'static str,
        read: impl FnOnce(&E) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.core.check(operation)?;
        let permit = self.core.read_room(operation).await?;
        let (answer, waiter) = Answer::new(self.core.name, operation);
        let core = Arc::clone(&self.core);
        let run = Box::new(move |engine: &E| {
            answer.send(core.check(operation).and_then(|()| read(engine)));
        });
        // Without readers the read is dropped, which answers it.
        let _ = self.reads.send(Read::Run(run, permit));
        waiter.wait().await
    }
}

impl<E: Engine> Drop for Shared<E> {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(writer) = self.writer.take() {
            // The writer's panic was answered by its waiters' guards.
            let _ = writer.join();
        }
    }
}

#[async_trait]
impl<E: Engine> Store for EngineStore<E> {
    fn name(&self) -> &'static str {
        self.shared.core.name
    }

    fn capabilities(&self) -> Capabilities {
        self.shared.core.capabilities
    }

    fn keyspaces(&self) -> &[Keyspace] {
        &self.shared.core.keyspaces
    }

    async fn write(&self, batch: WriteBatch, durability: Durability) -> Result<()> {
        let core = &self.shared.core;
        batch.check(core.name, &core.keyspaces)?;
        core.check("write")?;
        let permit = core.room_for(&batch).await?;
        let (answer, waiter) = Answer::new(core.name, "write");
        self.shared.send(Job::Write(Pending {
            batch,
            durability,
            answer,
            permit,
        }));
        waiter.wait().await
    }

    async fn get(&self, keyspace: Keyspace, key: &[u8]) -> Result<Option<Bytes>> {
        let key = Bytes::copy_from_slice(key);
        self.read_space("get", keyspace, move |engine, space| {
            engine.get(space, &key)
        })
        .await
    }

    async fn multi_get(&self, keyspace: Keyspace, keys: &[Bytes]) -> Result<Vec<Option<Bytes>>> {
        let keys = keys.to_vec();
        self.read_space("multi_get", keyspace, move |engine, space| {
            keys.iter().map(|key| engine.get(space, key)).collect()
        })
        .await
    }

    async fn scan(&self, keyspace: Keyspace, scan: Scan) -> Result<Vec<Entry>> {
        if scan.is_empty() {
            self.shared.core.check_keyspace(keyspace, "scan")?;
            self.shared.core.check("scan")?;
            return Ok(Vec::new());
        }
        self.read_space("scan", keyspace, move |engine, space| {
            engine.scan(space, &scan)
        })
        .await
    }

    async fn snapshot(&self) -> Result<Arc<dyn Snapshot>> {
        let view = self.shared.ask("snapshot", Writer::take_view).await?;
        let shared = Arc::clone(&self.shared);
        Ok(Arc::new(StoreSnapshot::new(shared, view)))
    }

    async fn begin_replace(&self, keyspaces: &[Keyspace]) -> Result<Box<dyn Staging>> {
        for keyspace in keyspaces {
            self.shared
                .core
                .check_keyspace(*keyspace, "begin_replace")?;
        }
        // Owned before it exists: if this future is dropped, so is what the writer began.
        let mut staging = EngineStaging::new(Arc::clone(&self.shared));
        staging.begin(keyspaces, None).await?;
        Ok(Box::new(staging))
    }

    async fn resume_replace(&self, keyspaces: &[Keyspace], name: Bytes) -> Result<Resumed> {
        let core = &self.shared.core;
        for keyspace in keyspaces {
            core.check_keyspace(*keyspace, "resume_replace")?;
        }
        if name.len() > Resumed::NAME_BYTES_MAX {
            let (length, max) = (name.len(), Resumed::NAME_BYTES_MAX);
            return Err(core
                .error(ErrorKind::Invalid, "resume_replace")
                .with_detail(format!("the name has {length} bytes, the limit is {max}")));
        }
        let mut staging = EngineStaging::new(Arc::clone(&self.shared));
        let point = staging.begin(keyspaces, Some(name)).await?;
        let staging = Box::new(staging);
        Ok(Resumed { staging, point })
    }

    async fn resumable(&self) -> Result<Option<Bytes>> {
        let name = |writer: &mut Writer<E>| Ok(writer.kept.as_ref().map(|it| it.name.clone()));
        self.shared.ask("resumable", name).await
    }

    async fn close(&self) -> Result<()> {
        if self.shared.core.is_closed() {
            return Ok(());
        }
        let (answer, waiter) = Answer::new(self.shared.core.name, "close");
        self.shared.send(Job::Close(answer));
        waiter.wait().await
    }
}
