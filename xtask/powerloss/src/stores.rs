//! The stores, opened with so little memory that all they do to their files happens within
//! seconds: memtables fill, logs roll over, tables are merged.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::{Context, Result};
use async_trait::async_trait;
use pop_broker::{OpenStore, stores::Backend};
use pop_store::{
    Error, ErrorKind, Keyspace, OpenOptions, Store,
    backend::{
        engine::{Engine, EngineStore, Space},
        folder::DataFolder,
    },
    table::KEYSPACES,
};

use crate::litter;

const MEMTABLE_BYTES: u64 = 256 << 10;
// Where an engine keeps its files in the folder of a store.
const ENGINE: &str = "engine";

/// The store of a backend in a folder.
#[derive(Clone, Debug)]
pub(crate) struct Opener {
    backend: Backend,
    folder: PathBuf,
    options: OpenOptions,
    engine_alone: bool,
}

impl Opener {
    pub(crate) fn new(backend: Backend, folder: &Path) -> Self {
        Self::with_keyspaces(backend, folder, &KEYSPACES)
    }

    /// With fewer keyspaces: each costs an open some time.
    pub(crate) fn with_keyspaces(backend: Backend, folder: &Path, keyspaces: &[Keyspace]) -> Self {
        Self {
            backend,
            folder: folder.to_owned(),
            options: OpenOptions::new(keyspaces).with_memtable_bytes(MEMTABLE_BYTES),
            engine_alone: false,
        }
    }

    /// Whether it keeps a staging that was checkpointed.
    pub(crate) fn keeping_staging(mut self, keeps: bool) -> Self {
        self.options.keep_staging = keeps;
        self
    }

    /// Whether the engine opens what is there by itself, without what the store looks at
    /// before. To check the check.
    pub(crate) fn engine_alone(mut self, alone: bool) -> Self {
        self.engine_alone = alone;
        self
    }

    /// Opens it for a workload on the store alone.
    pub(crate) async fn store(&self) -> Result<Arc<dyn Store>> {
        self.open().await.context("the store does not open")
    }

    /// Opens it, and says which spaces the engine had before the store looked at them: what
    /// the open before this one left.
    pub(crate) async fn store_with_spaces(&self) -> Result<(Vec<Space>, Arc<dyn Store>)> {
        let Self {
            backend,
            folder,
            options,
            ..
        } = self.clone();
        let opened = move || open_with_spaces(backend, &folder, &options);
        let opened = tokio::task::spawn_blocking(opened).await;
        opened?.context("the store does not open again")
    }

    /// What the closed store has in its folder, and should not.
    pub(crate) fn litter(&self) -> Result<Vec<String>> {
        litter::find(self.backend, &self.folder).context("the folder can't be looked at")
    }
}

#[async_trait]
impl OpenStore for Opener {
    async fn open(&self) -> pop_store::Result<Arc<dyn Store>> {
        let Self {
            backend,
            folder,
            options,
            engine_alone,
        } = self.clone();
        let opened = tokio::task::spawn_blocking(move || match engine_alone {
            true => open_with_spaces(backend, &folder, &options).map(|(_, store)| store),
            false => open(backend, &folder, options),
        })
        .await;
        opened.unwrap_or_else(|panic| {
            let error = Error::new(ErrorKind::Corrupt, self.backend.name(), "open");
            Err(error.with_detail("the engine panicked").with_source(panic))
        })
    }
}

fn open(
    backend: Backend,
    folder: &Path,
    options: OpenOptions,
) -> pop_store::Result<Arc<dyn Store>> {
    match backend {
        #[cfg(feature = "fjall")]
        Backend::Fjall => Ok(Arc::new(pop_store::FjallStore::open(folder, options)?)),
        #[cfg(feature = "rocksdb")]
        Backend::Rocksdb => Ok(Arc::new(pop_store::RocksStore::open(folder, options)?)),
        #[cfg(feature = "sled")]
        Backend::Sled => Ok(Arc::new(pop_store::SledStore::open(folder, options)?)),
        other => Err(unsupported(other)),
    }
}

fn open_with_spaces(
    backend: Backend,
    folder: &Path,
    options: &OpenOptions,
) -> pop_store::Result<(Vec<Space>, Arc<dyn Store>)> {
    let path = folder.join(ENGINE);
    let claimed = || DataFolder::claim(folder, backend.name());
    match backend {
        #[cfg(feature = "fjall")]
        Backend::Fjall => start(claimed()?, options, || {
            pop_store::backend::fjall::FjallEngine::open(&path, options.memtable_bytes)
        }),
        #[cfg(feature = "rocksdb")]
        Backend::Rocksdb => start(claimed()?, options, || {
            pop_store::backend::rocksdb::RocksEngine::open(&path, options.memtable_bytes)
        }),
        #[cfg(feature = "sled")]
        Backend::Sled => start(claimed()?, options, || {
            pop_store::backend::sled::SledEngine::open(&path)
        }),
        other => Err(unsupported(other)),
    }
}

fn start<E: Engine>(
    folder: DataFolder,
    options: &OpenOptions,
    open: impl FnOnce() -> pop_store::Result<E>,
) -> pop_store::Result<(Vec<Space>, Arc<dyn Store>)> {
    let engine = open()?;
    let spaces = engine.spaces()?;
    let store = EngineStore::start(engine, Some(folder), options)?;
    Ok((spaces, Arc::new(store)))
}

fn unsupported(backend: Backend) -> Error {
    let error = Error::new(ErrorKind::Unsupported, backend.name(), "open");
    error.with_detail("keeps nothing in a folder, or is not compiled in")
}
