//! The stores that a broker can be put on, by name.
//!
//! What is chosen at run time may not have been compiled in; the answer then says how to
//! get it.

use std::{
    fmt,
    path::{Path, PathBuf},
    str::FromStr,
    sync::Arc,
};

use async_trait::async_trait;
use parking_lot::Mutex;
use pop_store::{Error, ErrorKind, MemStore, Store};

use crate::{OpenStore, space::KEYSPACES};

// Whether a staging is kept is the second.
type Open = fn(&Path, bool) -> pop_store::Result<Arc<dyn Store>>;

/// A store by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Backend {
    /// In memory: nothing survives the process.
    Memory,
    /// The default: durable, built by rustc alone.
    Fjall,
    /// Durable; C++, so it needs libclang and a C++ compiler to be built.
    Rocksdb,
    /// Durable; for evaluation, not for production.
    Sled,
}

/// A store that this build does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "store {0} is not compiled into this program: build it with `cargo build --release -p pop-broker --features {0}`, or choose another with --store"
)]
pub struct NotCompiledIn(pub Backend);

/// A name that is no store's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no store is called {0:?}: take memory, fjall, rocksdb or sled")]
pub struct UnknownBackend(pub String);

impl Backend {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Memory, Self::Fjall, Self::Rocksdb, Self::Sled];

    /// Its name in flags and configuration; also its Cargo feature, if it has one.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Fjall => "fjall",
            Self::Rocksdb => "rocksdb",
            Self::Sled => "sled",
        }
    }

    /// Whether it keeps anything in a folder.
    #[must_use]
    pub const fn has_folder(self) -> bool {
        !matches!(self, Self::Memory)
    }

    /// What opens it in `folder`, which is made if it is not there.
    ///
    /// # Errors
    ///
    /// If it is not compiled in.
    pub fn opener(self, folder: &Path) -> Result<Arc<dyn OpenStore>, NotCompiledIn> {
        self.opens(folder, false)
    }

    /// The same for whoever fills the folder: what an earlier command loaded and did not bring
    /// to its end is kept, to be gone on with. Any other open throws it away.
    ///
    /// # Errors
    ///
    /// If it is not compiled in.
    pub fn filler(self, folder: &Path) -> Result<Arc<dyn OpenStore>, NotCompiledIn> {
        self.opens(folder, true)
    }

    fn opens(self, folder: &Path, keep_staging: bool) -> Result<Arc<dyn OpenStore>, NotCompiledIn> {
        let open = match self {
            Self::Memory => return Ok(Arc::new(InMemory::new())),
            Self::Fjall => FJALL,
            Self::Rocksdb => ROCKSDB,
            Self::Sled => SLED,
        };
        Ok(Arc::new(InFolder {
            backend: self,
            open: open.ok_or(NotCompiledIn(self))?,
            folder: folder.to_owned(),
            keep_staging,
        }))
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Backend {
    type Err = UnknownBackend;

    fn from_str(name: &str) -> Result<Self, UnknownBackend> {
        let found = Self::ALL.into_iter().find(|backend| backend.name() == name);
        found.ok_or_else(|| UnknownBackend(name.into()))
    }
}

#[cfg(any(feature = "fjall", feature = "rocksdb", feature = "sled"))]
fn options(keep_staging: bool) -> pop_store::OpenOptions {
    let options = pop_store::OpenOptions::new(&KEYSPACES);
    match keep_staging {
        true => options.with_staging_kept(),
        false => options,
    }
}

#[cfg(feature = "fjall")]
const FJALL: Option<Open> = Some(|folder, keep| {
    Ok(Arc::new(pop_store::FjallStore::open(
        folder,
        options(keep),
    )?))
});
#[cfg(not(feature = "fjall"))]
const FJALL: Option<Open> = None;

#[cfg(feature = "rocksdb")]
const ROCKSDB: Option<Open> = Some(|folder, keep| {
    Ok(Arc::new(pop_store::RocksStore::open(
        folder,
        options(keep),
    )?))
});
#[cfg(not(feature = "rocksdb"))]
const ROCKSDB: Option<Open> = None;

#[cfg(feature = "sled")]
const SLED: Option<Open> =
    Some(|folder, keep| Ok(Arc::new(pop_store::SledStore::open(folder, options(keep))?)));
#[cfg(not(feature = "sled"))]
const SLED: Option<Open> = None;

/// A store in a folder. Whoever opens it anew has closed the handle before, which lets go
/// of the folder.
#[derive(Debug)]
struct InFolder {
    backend: Backend,
    open: Open,
    folder: PathBuf,
    keep_staging: bool,
}

#[async_trait]
impl OpenStore for InFolder {
    /// On a thread that may block: an open reads journals, and the runtime's workers have
    /// others to serve.
    async fn open(&self) -> pop_store::Result<Arc<dyn Store>> {
        let (open, folder, keep) = (self.open, self.folder.clone(), self.keep_staging);
        let opened = tokio::task::spawn_blocking(move || open(&folder, keep)).await;
        opened.unwrap_or_else(|panic| {
            let error = Error::new(ErrorKind::Corrupt, self.backend.name(), "open");
            Err(error
                .with_detail(format!(
                    "the engine panicked over the files in {}: restore the folder from a backup",
                    self.folder.display()
                ))
                .with_source(panic))
        })
    }
}

/// The store in memory. Opened anew it has the content that it had.
#[derive(Debug)]
struct InMemory {
    store: Mutex<MemStore>,
}

impl InMemory {
    fn new() -> Self {
        Self {
            store: Mutex::new(MemStore::new(&KEYSPACES)),
        }
    }
}

#[async_trait]
impl OpenStore for InMemory {
    async fn open(&self) -> pop_store::Result<Arc<dyn Store>> {
        let mut store = self.store.lock();
        // A handle that was closed stays closed. Its successor keeps every batch.
        *store = store.crash(usize::MAX);
        Ok(Arc::new(store.clone()))
    }
}

#[cfg(test)]
mod tests {
    use pop_store::{Durability, WriteBatch, table::META};

    use super::*;

    #[test]
    fn a_store_is_found_by_its_name() {
        for backend in Backend::ALL {
            assert_eq!(backend.name().parse(), Ok(backend));
        }
    }

    async fn check_reopen(backend: Backend) {
        let folder = tempfile::tempdir().unwrap();
        let opener = backend.opener(folder.path()).unwrap();
        let mut batch = WriteBatch::new();
        batch.put(META, "key".into(), "value".into());
        let first = opener.open().await.unwrap();
        first.write(batch, Durability::Synced).await.unwrap();
        first.close().await.unwrap();
        // The closed handle is still held, as by a task that was left behind.
        let second = opener.open().await.unwrap();
        let value = second.get(META, b"key").await.unwrap();
        assert_eq!(value.as_deref(), Some(b"value".as_slice()));
        second.close().await.unwrap();
        drop(first);
    }

    #[tokio::test]
    async fn memory_opened_anew_has_what_it_had() {
        check_reopen(Backend::Memory).await;
    }

    #[cfg(feature = "fjall")]
    #[tokio::test]
    async fn fjall_opened_anew_has_what_it_had() {
        check_reopen(Backend::Fjall).await;
    }

    #[cfg(feature = "rocksdb")]
    #[tokio::test]
    async fn rocksdb_opened_anew_has_what_it_had() {
        check_reopen(Backend::Rocksdb).await;
    }

    #[cfg(feature = "sled")]
    #[tokio::test]
    async fn sled_opened_anew_has_what_it_had() {
        check_reopen(Backend::Sled).await;
    }

    #[cfg(not(feature = "rocksdb"))]
    #[test]
    fn a_store_that_is_not_compiled_in_says_how_to_get_it() {
        let error = Backend::Rocksdb.opener(Path::new("unused")).unwrap_err();
        assert!(error.to_string().contains("--features rocksdb"), "{error}");
    }
}
