//! What an embedded engine must do, and the store that [`EngineStore`] makes of it.
//!
//! An engine is blocking and knows nothing of batches with preconditions, of generations,
//! of durability levels or of waiters. All of that is here, once: a group committer in
//! front of the engine (`writer`), a small pool for reads (`readers`), generations and the
//! switch record (`layout`), snapshots of engines that have none (`preimage`) and staged loads
//! (`staging`, `loader`). A new embedded backend is an [`Engine`] and a function that opens it.

mod answer;
mod bootstrap;
mod checkpoint;
mod core;
mod disk;
mod layout;
mod loader;
mod options;
pub(super) mod pace;
mod preimage;
mod readers;
pub(crate) mod record;
mod resume;
mod snapshot;
mod staged;
mod staging;
mod store;
mod writer;

#[cfg(test)]
mod tests;

use std::{fmt, fmt::Debug, sync::Arc};

use bytes::Bytes;

#[cfg(feature = "rocksdb")]
pub(crate) use bootstrap::holds_what_was_synced;
pub use options::OpenOptions;
pub use store::EngineStore;

use crate::{Capabilities, Entry, Estimate, Result, Rows, Scan};

/// A blocking, ordered key-value engine.
///
/// All writes, syncs and space changes come from one thread; reads come from others at the
/// same time, and so does a [bulk load](Self::bulk_load).
///
/// # Errors
///
/// A [refusal](crate::ErrorKind::is_refusal) from [`apply`](Self::apply) states that nothing
/// happened. Any other error or a panic from a writing method poisons
/// the store. Errors of reads are handed to the caller as they are.
pub trait Engine: Debug + Send + Sync + 'static {
    /// The backend's name, as configuration and errors call it.
    fn name(&self) -> &'static str;

    /// What a store on this engine can do. The store itself adds snapshots and staged replace.
    fn capabilities(&self) -> Capabilities;

    /// The spaces that exist.
    fn spaces(&self) -> Result<Vec<Space>>;

    /// Makes `space` if it is not there, and readies it for reads and writes.
    ///
    /// # Contract
    ///
    /// On return the space survives a power cut.
    fn open_space(&self, space: &Space) -> Result<()>;

    /// Deletes `space` and all that is in it.
    ///
    /// # Contract
    ///
    /// Nothing reads or writes it any more. A crash may leave it whole or absent, and
    /// nothing else changed.
    fn drop_space(&self, space: &Space) -> Result<()>;

    /// Applies `changes` as one unit: range deletes on the content before, then operations.
    ///
    /// # Contract
    ///
    /// - All or nothing over all spaces, after a crash at any point too.
    /// - On return reads see it, and it is out of the process: a killed process loses nothing.
    /// - Once a read saw a part of it, later reads see all of it, in any space.
    /// - With `sync`, this and everything applied before survives a power cut.
    /// - A crash loses a suffix of what was applied, never a hole.
    fn apply(&self, changes: &Changes, sync: bool) -> Result<()>;

    /// Makes everything applied before survive a power cut.
    fn sync(&self) -> Result<()>;

    /// Reads one key.
    fn get(&self, space: &Space, key: &[u8]) -> Result<Option<Bytes>>;

    /// Reads a range in key order, of one moment; [`Scan::collect`] applies the limits.
    fn scan(&self, space: &Space, scan: &Scan) -> Result<Vec<Entry>>;

    /// A view of all spaces as of now; called between two [`apply`](Self::apply)s.
    ///
    /// `None` from an engine that has none: the store then keeps what is written over, for as
    /// long as a snapshot is open.
    ///
    /// # Contract
    ///
    /// Later writes don't show in it. Dropping it releases everything it held of the engine.
    fn snapshot(&self) -> Result<Option<Arc<dyn EngineSnapshot>>> {
        Ok(None)
    }

    /// About how much is in `space`; `None` if that would have to be counted.
    fn estimate(&self, space: &Space) -> Result<Option<Estimate>> {
        let _ = space;
        Ok(None)
    }

    /// Whether the engine has a faster way into an empty space than [`apply`](Self::apply).
    fn has_bulk_load(&self) -> bool {
        false
    }

    /// Calls `work` with a loader, where [`has_bulk_load`](Self::has_bulk_load) says so.
    ///
    /// # Contract
    ///
    /// Called on a thread that belongs to one staged load, so that what loading borrows may
    /// live on its stack. Files that the loader made and did not finish stay until the space
    /// is dropped, or [`sweep_bulk_loads`](Self::sweep_bulk_loads).
    fn bulk_load(&self, work: &mut dyn FnMut(&mut dyn BulkLoader)) {
        let _ = work;
    }

    /// Goes back to the first `files` files that bulk loads put aside for `space`.
    ///
    /// # Contract
    ///
    /// Called while nothing loads into it. False if they are not all there, or `space` is not
    /// empty any more.
    fn resume_bulk_load(&self, space: &Space, files: u32) -> Result<bool> {
        let _ = (space, files);
        Ok(false)
    }

    /// Deletes what earlier bulk loads left aside, except for `kept`; called at open.
    fn sweep_bulk_loads(&self, kept: &[Space]) -> Result<()> {
        let _ = kept;
        Ok(())
    }
}

/// Fills spaces that nobody reads yet, beside the batches.
///
/// # Errors
///
/// After any error of a space nothing more of it is asked than that it be dropped.
pub trait BulkLoader {
    /// Takes rows, strictly ascending and above all rows of `space` that came before.
    fn load(&mut self, space: &Space, rows: &Rows) -> Result<()>;

    /// Makes what was put aside survive a power cut, and says how many files that is, those
    /// of earlier loads included.
    fn checkpoint(&mut self, space: &Space) -> Result<u32>;

    /// Makes what was loaded the content of `space`, which was empty before.
    ///
    /// # Contract
    ///
    /// On return it survives a power cut.
    fn finish(&mut self, space: &Space) -> Result<()>;
}

/// An engine's content as of one moment.
pub trait EngineSnapshot: Debug + Send + Sync + 'static {
    /// Reads one key as of that moment.
    fn get(&self, space: &Space, key: &[u8]) -> Result<Option<Bytes>>;

    /// Reads a range as of that moment; limits as in [`Engine::scan`].
    fn scan(&self, space: &Space, scan: &Scan) -> Result<Vec<Entry>>;

    /// The same, in one piece of memory.
    fn rows(&self, space: &Space, scan: &Scan) -> Result<Rows> {
        Ok(self.scan(space, scan)?.into())
    }
}

/// One ordered map inside an engine: a generation of a keyspace, named `keyspace@generation`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Space(Arc<str>);

impl Space {
    /// The space that generation `generation` of the keyspace `keyspace` lives in.
    #[must_use]
    pub fn new(keyspace: &str, generation: u64) -> Self {
        Self(format!("{keyspace}@{generation}").into())
    }

    /// The space of the store's own records. No keyspace has a generation zero.
    pub(crate) fn system() -> Self {
        Self::new("pop", 0)
    }

    /// Reads back a name that an engine stored.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        let (keyspace, generation) = name.split_once('@')?;
        let space = Self::new(keyspace, generation.parse().ok()?);
        (space.name() == name).then_some(space)
    }

    /// The name, of at most 53 bytes of `a-z`, `0-9`, `_` and one `@`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0
    }
}

impl Debug for Space {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Space({})", self.0)
    }
}

impl fmt::Display for Space {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// One group of writes, in the shape every engine can take.
#[derive(Debug, Default)]
pub struct Changes {
    /// Ranges `start..end` to delete from the content before, none of them empty.
    pub range_deletes: Vec<(Space, Bytes, Bytes)>,
    /// At most one operation a key.
    pub operations: Vec<Operation>,
}

/// What becomes of one key.
#[derive(Clone, Debug)]
pub struct Operation {
    /// Where the key lives.
    pub space: Space,
    /// The key.
    pub key: Bytes,
    /// Its new value; `None` deletes it.
    pub value: Option<Bytes>,
}
