//! The stores, opened with so little memory that all they do to their files happens within
//! seconds: memtables fill, logs roll over, tables are merged.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::{Context, Result};
use async_trait::async_trait;
use pop_broker::{OpenStore, stores::Backend};
use pop_store::{Error, ErrorKind, OpenOptions, Store, table::KEYSPACES};

const MEMTABLE_BYTES: u64 = 256 << 10;

/// The store of a backend in a folder.
#[derive(Clone, Debug)]
pub(crate) struct Opener {
    backend: Backend,
    folder: PathBuf,
}

impl Opener {
    pub(crate) fn new(backend: Backend, folder: &Path) -> Self {
        Self {
            backend,
            folder: folder.to_owned(),
        }
    }

    /// Opens it for the workload on the store alone.
    pub(crate) async fn store(&self) -> Result<Arc<dyn Store>> {
        self.open().await.context("the store does not open")
    }
}

#[async_trait]
impl OpenStore for Opener {
    async fn open(&self) -> pop_store::Result<Arc<dyn Store>> {
        let Self { backend, folder } = self.clone();
        let opened = tokio::task::spawn_blocking(move || open(backend, &folder)).await;
        opened.unwrap_or_else(|panic| {
            let error = Error::new(ErrorKind::Corrupt, self.backend.name(), "open");
            Err(error.with_detail("the engine panicked").with_source(panic))
        })
    }
}

fn open(backend: Backend, folder: &Path) -> pop_store::Result<Arc<dyn Store>> {
    let options = OpenOptions::new(&KEYSPACES).with_memtable_bytes(MEMTABLE_BYTES);
    match backend {
        #[cfg(feature = "fjall")]
        Backend::Fjall => Ok(Arc::new(pop_store::FjallStore::open(folder, options)?)),
        #[cfg(feature = "rocksdb")]
        Backend::Rocksdb => Ok(Arc::new(pop_store::RocksStore::open(folder, options)?)),
        #[cfg(feature = "sled")]
        Backend::Sled => Ok(Arc::new(pop_store::SledStore::open(folder, options)?)),
        other => {
            let error = Error::new(ErrorKind::Unsupported, other.name(), "open");
            Err(error.with_detail("keeps nothing in a folder, or is not compiled in"))
        }
    }
}
