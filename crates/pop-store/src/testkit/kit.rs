//! What a backend hands to the kit, and the room in which one check runs.

use std::{
    fmt,
    path::{Path, PathBuf},
    time::Duration,
};

use tempfile::TempDir;

use crate::{Keyspace, Result, Store};

/// The keyspaces of the kit. One name is the beginning of another, for backends that
/// tell keyspaces apart by a prefix.
pub const KEYSPACES: [Keyspace; 3] = [
    Keyspace::new("kit"),
    Keyspace::new("kit_2"),
    Keyspace::new("other"),
];

/// Set in the environment of a child that is there to be killed: the folder to work in.
pub(super) const CRASH_FOLDER: &str = "POP_STORE_CRASH_FOLDER";

// Turns a call that hangs into a failed check; no check comes near it.
const CHECK_SECONDS_MAX: u64 = 240;

/// Opens stores of one backend for the kit.
pub trait StoreFactory: Send + Sync + 'static {
    /// The backend.
    type Store: Store;

    /// Opens a store with the keyspaces [`KEYSPACES`] whose content lives in `folder`.
    ///
    /// # Contract
    ///
    /// The folder exists; it is empty the first time and is removed after the check. A
    /// durable store finds its content again when it is opened there once more, after a
    /// close or after its process was killed. A backend that keeps no files makes a name
    /// from the folder's. A volatile one starts empty each time.
    fn open(&self, folder: &Path) -> impl Future<Output = Result<Self::Store>> + Send;
}

/// The room of one check: a factory and a folder of its own.
pub struct Kit<F> {
    factory: F,
    test: &'static str,
    folder: PathBuf,
    // Removes the folder; a child works in its parent's and must leave it.
    owned: Option<TempDir>,
}

impl<F> fmt::Debug for Kit<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kit")
            .field("test", &self.test)
            .field("folder", &self.folder)
            .finish_non_exhaustive()
    }
}

impl<F: StoreFactory> Kit<F> {
    fn new(test: &'static str, factory: F) -> Self {
        if let Some(folder) = std::env::var_os(CRASH_FOLDER) {
            return Self {
                factory,
                test,
                folder: folder.into(),
                owned: None,
            };
        }
        let owned = tempfile::Builder::new()
            .prefix("pop-store-kit-")
            .tempdir()
            .expect("a check needs a temporary folder");
        Self {
            factory,
            test,
            folder: owned.path().to_path_buf(),
            owned: Some(owned),
        }
    }

    /// Opens the store of this check.
    ///
    /// # Panics
    ///
    /// If it can't be opened, which fails the check.
    pub async fn open(&self) -> F::Store {
        match self.try_open().await {
            Ok(store) => store,
            Err(error) => panic!("the store opens: {error:?}"),
        }
    }

    /// Tries to open the store of this check.
    ///
    /// # Errors
    ///
    /// Those of the factory.
    pub async fn try_open(&self) -> Result<F::Store> {
        drop(FORKS.read());
        self.factory.open(&self.folder).await
    }

    /// Where the content lives.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The path of the test as the test harness knows it, to start it again as a child.
    pub(super) fn test(&self) -> &str {
        self.test
            .split_once("::")
            .map_or(self.test, |(_krate, path)| path)
    }

    /// Whether this process is a child that is there to be killed.
    pub(super) fn is_child(&self) -> bool {
        self.owned.is_none()
    }
}

/// Held while a child is forked and until it is another program. In between it has a copy
/// of every open file, and with it of the lock of a store that another check has closed:
/// whoever opens waits for that to be over.
pub(super) static FORKS: parking_lot::RwLock<()> = parking_lot::RwLock::new(());

/// Runs one check on a runtime of its own. `test` is the path of the `#[test]` that calls
/// it, crate first, because a crash check starts itself again as a child.
///
/// # Panics
///
/// If the check fails, or does not end in time.
pub fn run<F: StoreFactory>(test: &'static str, factory: F, check: impl AsyncFn(&Kit<F>)) {
    let kit = Kit::new(test, factory);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a check needs a runtime");
    let limit = Duration::from_secs(CHECK_SECONDS_MAX);
    let outcome = runtime.block_on(async { tokio::time::timeout(limit, check(&kit)).await });
    // A thread that hangs in the backend must not hang the test as well.
    runtime.shutdown_background();
    assert!(
        outcome.is_ok(),
        "{test} has not ended after {CHECK_SECONDS_MAX} s: a call of the store hangs"
    );
}
