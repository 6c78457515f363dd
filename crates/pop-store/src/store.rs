//! The seam: what an ordered store must do to carry a queue that can't lose a message.

use std::{fmt::Debug, sync::Arc};

use async_trait::async_trait;
use bytes::Bytes;

use crate::{Entry, Error, ErrorKind, Estimate, Keyspace, Result, Rows, Scan, WriteBatch};

/// When a write is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Durability {
    /// Once it is committed: readers see it, a crash of the process or a power cut may
    /// lose it together with everything that was committed after it. Backends sync
    /// buffered writes within [`Capabilities::buffered_sync_ms_max`].
    Buffered,
    /// Once it and everything committed before it survives a power cut.
    Synced,
}

/// How a backend gives a consistent view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SnapshotSupport {
    /// It can't: [`Store::snapshot`] is refused as unsupported.
    None,
    /// Cheap to take, of any size, while writes go on.
    Cheap,
}

/// What a backend can do beyond the core of the contract, stated so that a caller can
/// refuse early and by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    /// Whether anything outlives the process.
    pub durable: bool,
    /// How [`Store::snapshot`] works.
    pub snapshot: SnapshotSupport,
    /// Whether [`Store::begin_replace`] works.
    pub replace: bool,
    /// Whether [`Store::resume_replace`] works.
    pub resumable_replace: bool,
    /// Whether a range delete costs less than deleting key by key.
    pub cheap_range_delete: bool,
    /// A buffered write is synced after at most this long, if the backend is durable.
    pub buffered_sync_ms_max: u64,
    /// Fit for production; `false` is said aloud when a server starts on it.
    pub production: bool,
}

impl Capabilities {
    /// Nothing beyond the core: no snapshot, no replace, nothing durable.
    #[must_use]
    pub const fn core() -> Self {
        Self {
            durable: false,
            snapshot: SnapshotSupport::None,
            replace: false,
            resumable_replace: false,
            cheap_range_delete: false,
            buffered_sync_ms_max: 0,
            production: false,
        }
    }

    /// Sets whether anything outlives the process, and how soon a buffered write is synced.
    #[must_use]
    pub const fn with_durable(mut self, buffered_sync_ms_max: u64) -> Self {
        self.durable = true;
        self.buffered_sync_ms_max = buffered_sync_ms_max;
        self
    }

    /// Sets how snapshots work.
    #[must_use]
    pub const fn with_snapshot(mut self, snapshot: SnapshotSupport) -> Self {
        self.snapshot = snapshot;
        self
    }

    /// States that staged replace works.
    #[must_use]
    pub const fn with_replace(mut self) -> Self {
        self.replace = true;
        self
    }

    /// States that staged replace works, and that a later process can go on with one.
    #[must_use]
    pub const fn with_resumable_replace(mut self) -> Self {
        self.replace = true;
        self.resumable_replace = true;
        self
    }

    /// States that range deletes are cheap.
    #[must_use]
    pub const fn with_cheap_range_delete(mut self) -> Self {
        self.cheap_range_delete = true;
        self
    }

    /// States that the backend is fit for production.
    #[must_use]
    pub const fn for_production(mut self) -> Self {
        self.production = true;
        self
    }
}

/// An ordered key-value store.
///
/// Keys sort as unsigned bytes. A key or a value may be empty. One handle is shared by
/// many tasks: every method takes `&self`.
///
/// # Contract
///
/// Beside what each method says:
///
/// - **One order.** All writes of a store have one commit order; a read sees every write
///   that was answered before the read began.
/// - **Prefix durability.** A crash at any moment loses a suffix of the commit order,
///   never a hole in it.
/// - **Poison.** After a write or sync that failed in the engine, every later call is
///   refused as [`Poisoned`](crate::ErrorKind::Poisoned) until the store is opened anew: a
///   later sync proves nothing about pages that a failed one dropped.
/// - **Nothing hangs on a caller.** Dropping a future drops only its answer.
///
/// The conformance kit (feature `testkit`) checks all of this.
#[async_trait]
pub trait Store: Debug + Send + Sync + 'static {
    /// The backend's name, as configuration and errors call it.
    fn name(&self) -> &'static str;

    /// What this backend can do beyond the core.
    fn capabilities(&self) -> Capabilities;

    /// The keyspaces that this store was opened with.
    fn keyspaces(&self) -> &[Keyspace];

    /// Applies `batch` as one unit, over all its keyspaces.
    ///
    /// # Contract
    ///
    /// - [`WriteBatch::check`] comes first.
    /// - Preconditions are looked at against everything committed before; one that fails
    ///   refuses this batch alone, as a conflict that names the key.
    /// - Then range deletes, deletes, puts, in that order.
    /// - All or nothing, after a crash at any point too.
    /// - `Ok` under [`Durability::Synced`] means that the batch and all before it survive
    ///   a power cut.
    /// - An empty batch is committed; under `Synced` it makes everything before durable.
    ///
    /// # Errors
    ///
    /// [`Error::outcome`](crate::Error::outcome) tells a refused write from one in doubt.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops only the answer: the write may still happen, as a whole.
    async fn write(&self, batch: WriteBatch, durability: Durability) -> Result<()>;

    /// Reads one key.
    ///
    /// # Errors
    ///
    /// Missing is `None`; errors are the store's.
    async fn get(&self, keyspace: Keyspace, key: &[u8]) -> Result<Option<Bytes>>;

    /// Reads several keys of one keyspace, in the order asked.
    ///
    /// # Contract
    ///
    /// Each key is read on its own: a concurrent write may be seen by one and not by another.
    async fn multi_get(&self, keyspace: Keyspace, keys: &[Bytes]) -> Result<Vec<Option<Bytes>>> {
        let mut values = Vec::with_capacity(keys.len());
        for key in keys {
            values.push(self.get(keyspace, key).await?);
        }
        Ok(values)
    }

    /// Reads a range in key order.
    ///
    /// # Contract
    ///
    /// The entries are those of one moment. Fewer than `entries_max` means that the range
    /// ends there or that `bytes_max` was reached: only an empty answer proves the end.
    async fn scan(&self, keyspace: Keyspace, scan: Scan) -> Result<Vec<Entry>>;

    /// A view of all keyspaces as of one moment between two batches.
    ///
    /// # Contract
    ///
    /// Holds everything answered before the call, and nothing that was begun after it returned.
    ///
    /// # Errors
    ///
    /// [`Unsupported`](crate::ErrorKind::Unsupported) where [`Capabilities::snapshot`] says so.
    async fn snapshot(&self) -> Result<Arc<dyn Snapshot>>;

    /// Begins to load a new content for `keyspaces`, beside the one in use.
    ///
    /// # Contract
    ///
    /// Until [`Staging::publish`] returns, readers, writers and every crash see the old
    /// content, whole. A staging that is dropped or left by a crash leaves nothing behind
    /// after the next open. One staging at a time: another is refused as `Unavailable`.
    ///
    /// # Errors
    ///
    /// [`Unsupported`](crate::ErrorKind::Unsupported) where [`Capabilities::replace`] is false.
    async fn begin_replace(&self, keyspaces: &[Keyspace]) -> Result<Box<dyn Staging>>;

    /// Begins to load a new content that a later process can go on with, or goes on with one.
    ///
    /// # Contract
    ///
    /// As [`begin_replace`](Self::begin_replace), and beside that:
    ///
    /// - A staging that was [checkpointed](Staging::checkpoint) under this name and for these
    ///   keyspaces, and then dropped or left by a crash, is opened again with exactly the rows
    ///   that it had at its last checkpoint, and its point is returned. Else a new one begins.
    /// - The rows of each keyspace strictly ascend, from load to load too, also after the
    ///   last row of a checkpoint; others are refused as `Invalid`.
    /// - At most one checkpoint is kept: any other staging that is begun, a publish and an
    ///   abort end it. How long it outlives its process, beyond the next open, is the backend's.
    ///
    /// # Errors
    ///
    /// [`Unsupported`](crate::ErrorKind::Unsupported) where
    /// [`Capabilities::resumable_replace`] is false; `Invalid` for a name of more than
    /// [`Resumed::NAME_BYTES_MAX`] bytes.
    async fn resume_replace(&self, keyspaces: &[Keyspace], name: Bytes) -> Result<Resumed> {
        let _ = (keyspaces, name);
        let error = Error::new(ErrorKind::Unsupported, self.name(), "resume_replace");
        Err(error.with_detail("its stagings end with their process"))
    }

    /// The name of the load that [`resume_replace`](Self::resume_replace) would go on with,
    /// while no staging is open.
    ///
    /// # Errors
    ///
    /// Those of the store.
    async fn resumable(&self) -> Result<Option<Bytes>> {
        Ok(None)
    }

    /// Makes everything durable and lets go of threads, files and locks.
    ///
    /// # Contract
    ///
    /// After `Ok` the same folder can be opened at once, also while other handles of this
    /// store are still held; their calls are refused as `Poisoned`.
    async fn close(&self) -> Result<()>;
}

/// A store's content as of one moment.
///
/// # Contract
///
/// It is that of its moment for as long as it is held, whatever is written, published or
/// deleted meanwhile. A backend that can't keep it so, for lack of room say, lets every later
/// read of it fail and goes on with the writes.
#[async_trait]
pub trait Snapshot: Debug + Send + Sync + 'static {
    /// Reads one key as of that moment.
    async fn get(&self, keyspace: Keyspace, key: &[u8]) -> Result<Option<Bytes>>;

    /// Reads a range as of that moment; limits as in [`Store::scan`].
    async fn scan(&self, keyspace: Keyspace, scan: Scan) -> Result<Vec<Entry>>;

    /// About how much a keyspace holds; `None` where that would have to be counted.
    ///
    /// # Contract
    ///
    /// It costs no more than a few reads, however much it is. Rows that were deleted or
    /// written over may be in it, and what was written since that moment.
    async fn estimate(&self, keyspace: Keyspace) -> Result<Option<Estimate>> {
        let _ = keyspace;
        Ok(None)
    }

    /// The same, in one piece of memory: for whoever moves many rows, and lets go of them
    /// together.
    async fn rows(&self, keyspace: Keyspace, scan: Scan) -> Result<Rows> {
        Ok(self.scan(keyspace, scan).await?.into())
    }
}

/// A staging that [`Store::resume_replace`] opened.
#[derive(Debug)]
pub struct Resumed {
    /// The staging.
    pub staging: Box<dyn Staging>,
    /// The caller's bytes of the last checkpoint; `None` if there is nothing to go on with.
    pub point: Option<Bytes>,
}

impl Resumed {
    /// The longest name of a resumable load.
    pub const NAME_BYTES_MAX: usize = 256;
    /// The most bytes of a checkpoint's point.
    pub const POINT_BYTES_MAX: usize = 16 << 10;
}

/// A content being loaded beside the one in use.
#[async_trait]
pub trait Staging: Debug + Send + 'static {
    /// Adds entries to one of the staged keyspaces; the later put of a key wins.
    ///
    /// # Contract
    ///
    /// Entries come in any order, within a call and from call to call. A backend may be
    /// faster where the keys of a keyspace ascend throughout.
    ///
    /// # Errors
    ///
    /// `Invalid` for a keyspace that is not staged or entries above a batch's limits.
    ///
    /// # Cancel safety
    ///
    /// Dropped half-way, as of each call here, nobody knows what is in: drop the staging.
    async fn load(&mut self, keyspace: Keyspace, entries: Vec<Entry>) -> Result<()>;

    /// Adds rows like [`load`](Self::load), as many as there are, and may return before they
    /// are in.
    ///
    /// # Contract
    ///
    /// At most one such call is ahead of its rows: a second one returns after those of the
    /// first are in, every other method after all are.
    ///
    /// # Errors
    ///
    /// Those of `load`, for a row that no batch could carry; also those of rows of the call
    /// before. What is in after an error nobody knows: drop the staging.
    async fn load_rows(&mut self, keyspace: Keyspace, rows: Rows) -> Result<()> {
        for entries in rows.batches() {
            self.load(keyspace, entries).await?;
        }
        Ok(())
    }

    /// Makes the loaded content the content of the staged keyspaces, at one synced moment.
    ///
    /// # Contract
    ///
    /// Writes that were answered before `publish` began and went to the staged keyspaces
    /// are gone with the old content; other keyspaces are untouched. After an error the
    /// old content is in use, or the store is poisoned and a reopen shows one of the two, whole.
    async fn publish(self: Box<Self>) -> Result<()>;

    /// Makes what was loaded, and `point` with it, survive this process and a power cut.
    ///
    /// # Contract
    ///
    /// From its return on, [`Store::resume_replace`] finds this staging. What is loaded later
    /// is not part of it before the next checkpoint.
    ///
    /// # Errors
    ///
    /// `Unsupported` for a staging that [`Store::resume_replace`] did not open; `Invalid` for
    /// a point of more than [`Resumed::POINT_BYTES_MAX`] bytes.
    async fn checkpoint(&mut self, point: Bytes) -> Result<()> {
        let _ = point;
        Err(Error::new(ErrorKind::Unsupported, "staging", "checkpoint"))
    }

    /// Has the drop of this staging throw everything away, also what was checkpointed.
    fn forget_checkpoint(&mut self) {}

    /// Throws the loaded content away, also what was checkpointed.
    async fn abort(self: Box<Self>) -> Result<()>;
}
