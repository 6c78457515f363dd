//! The store on [fjall](https://docs.rs/fjall): a log-structured engine in Rust alone.
//!
//! - One journal carries all spaces, so a group is one journal batch. The items of a batch
//!   share a sequence number: two for one key would be undefined, and a group has one.
//! - There is no range delete that is part of a batch, so a range becomes a delete a key.
//! - A buffered group is handed to the operating system before it is answered. A synced one
//!   takes `fdatasync` of the journal, which is enough: a journal's length is set and synced
//!   when it is made, and a full one is synced whole before the next one is begun.
//! - Reads go through a snapshot: fjall's plain reads see a batch that is half applied.
//! - Before a tree is deleted, and before the first one is made after an open, one with a
//!   higher number is made and stays (`pin-N`): fjall would give the number of a tree that is
//!   gone, or whose making was cut, to another tree, and lose that one.

mod error;
mod journal;
mod key;
mod pin;

#[cfg(test)]
mod tests;

use std::{
    collections::{HashMap, HashSet},
    fmt, fs, io,
    ops::Bound,
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    sync::Arc,
};

use bytes::Bytes;
use fjall::{Database, Keyspace as Tree, KeyspaceCreateOptions, PersistMode, Readable};
use parking_lot::{Mutex, RwLock};

use self::pin::Pins;
use super::{
    engine::{Changes, Engine, EngineSnapshot, EngineStore, OpenOptions, Space},
    folder::{DataFolder, remove_unfinished, sync_folder},
};
use crate::{Capabilities, Direction, Entry, Error, ErrorKind, Estimate, Result, Scan};

const NAME: &str = "fjall";
// fjall's first worker leaves compactions to the others: with few of them it spins while
// each is busy with one.
const WORKERS: usize = 4;
const CACHE_BYTES: u64 = 64 << 20;
// In memtables. With them it bounds what an open has to read again, and what idle spaces
// keep on disk by holding back old journals: the store's own space is in every one of them.
const JOURNALS_MAX: u64 = 4;
// fjall takes no less.
const JOURNALS_BYTES_MIN: u64 = 64 << 20;
// A new journal is made with this much room, and fjall begins another one above it.
const JOURNAL_BYTES: u64 = 64 << 20;
// Where fjall keeps its trees. It does not sync this folder when it adds one.
const TREES: &str = "keyspaces";
// How the name of a file begins before it is renamed: as the crate `tempfile` has it.
const UNFINISHED: &str = ".tmp";

/// A store on fjall.
pub type FjallStore = EngineStore<FjallEngine>;

impl FjallStore {
    /// Opens the store in the folder `path`, which is made if it is not there.
    ///
    /// It blocks: call it before the runtime serves, or from a thread that may block.
    ///
    /// # Errors
    ///
    /// `Locked` if another process has the folder, `Incompatible` if another backend or
    /// format has it, `Corrupt` if its files are damaged or end before what was synced,
    /// `Unavailable` if they can't be read or written.
    pub fn open(path: impl AsRef<Path>, options: OpenOptions) -> Result<Self> {
        let folder = DataFolder::claim(path, NAME)?;
        let path = folder.engine(|path| {
            let engine = FjallEngine::open(path, options.memtable_bytes)?;
            // The first tree, as the check of the journals knows it.
            engine.open_space(&Space::system())
        })?;
        remove_unfinished_in_trees(&path.join(TREES))
            .map_err(|it| error::open_failed(it.into()))?;
        let trial = journal::check(&path, folder.high_water()?.sequence())?;
        let started = FjallEngine::open(&path, options.memtable_bytes)
            .and_then(|engine| Self::start(engine, Some(folder), &options));
        let settled = match started {
            Ok(_) => trial.confirm(),
            Err(_) => trial.undo(),
        };
        if let Err(error) = settled {
            // The next open tries again.
            tracing::warn!(path = %path.display(), %error, "a journal's copy is left");
        }
        started
    }
}

/// fjall names the version of a tree in a file that it renames, and never looks for one that a
/// crash came before.
fn remove_unfinished_in_trees(trees: &Path) -> io::Result<()> {
    for tree in fs::read_dir(trees)? {
        let tree = tree?.path();
        if tree.is_dir() {
            remove_unfinished(&tree, |name| name.starts_with(UNFINISHED))?;
        }
    }
    Ok(())
}

/// fjall as an [`Engine`].
pub struct FjallEngine {
    // Before the database, because a tree keeps the database's files open.
    trees: RwLock<HashMap<Space, Tree>>,
    pins: Mutex<Pins>,
    database: Database,
    memtable_bytes: u64,
    path: PathBuf,
}

impl FjallEngine {
    /// Opens or makes a database at `path`, whose spaces gather so much in memory.
    ///
    /// # Errors
    ///
    /// `Corrupt` for damaged files, `Unavailable` if they can't be read or written.
    pub fn open(path: &Path, memtable_bytes: u64) -> Result<Self> {
        let journals = memtable_bytes.saturating_mul(JOURNALS_MAX);
        let journals = journals.max(JOURNALS_BYTES_MIN);
        pin::skip_number(&path.join(TREES)).map_err(|it| error::open_failed(it.into()))?;
        // A damaged length in its files can run into an assertion of fjall.
        let opened = catch_unwind(AssertUnwindSafe(|| {
            Database::builder(path)
                .cache_size(CACHE_BYTES)
                .worker_threads(WORKERS)
                .max_journaling_size(journals)
                .open()
        }));
        let database = opened
            .map_err(|_| {
                Error::new(ErrorKind::Corrupt, NAME, "open").with_detail(
                    "the engine panicked over its files: restore the folder from a backup",
                )
            })?
            .map_err(error::open_failed)?;
        let pins = Pins::of(&database).map_err(error::open_failed)?;
        let engine = Self {
            trees: RwLock::default(),
            pins: Mutex::new(pins),
            database,
            memtable_bytes,
            path: path.to_owned(),
        };
        for space in engine.spaces()? {
            engine.open_space(&space)?;
        }
        Ok(engine)
    }

    fn tree(&self, space: &Space) -> Result<Tree> {
        self.trees
            .read()
            .get(space)
            .cloned()
            .ok_or_else(|| unknown(space))
    }

    /// Gives back the room of what a dropped space had written to the journal: fjall
    /// begins a new one only when a tree is flushed, and drops an old one only when all are.
    fn relieve_journal(&self, trees: &HashMap<Space, Tree>) -> fjall::Result<()> {
        if self.database.journal_disk_space()? <= JOURNAL_BYTES {
            return Ok(());
        }
        for tree in trees.values() {
            tree.rotate_memtable()?;
        }
        Ok(())
    }

    /// The keys of a range that `changes` does not rewrite anyway.
    fn doomed_keys(
        &self,
        tree: &Tree,
        space: &Space,
        range: (&Bytes, &Bytes),
        rewritten: &HashSet<(&Space, &Bytes)>,
    ) -> Result<Vec<Bytes>> {
        let (start, end) = (key::encode(range.0), key::encode(range.1));
        let mut doomed = Vec::new();
        for guard in tree.range(&*start..&*end) {
            let key = key::decode(&guard.key().map_err(error::write_failed)?);
            if !rewritten.contains(&(space, &key)) {
                doomed.push(key);
            }
        }
        Ok(doomed)
    }
}

fn unknown(space: &Space) -> Error {
    Error::new(ErrorKind::Invalid, NAME, "open").with_detail(format!("space {space} is not open"))
}

impl fmt::Debug for FjallEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FjallEngine")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

impl Engine for FjallEngine {
    fn name(&self) -> &'static str {
        NAME
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::core().with_durable(0).for_production()
    }

    fn spaces(&self) -> Result<Vec<Space>> {
        let names = self.database.list_keyspace_names();
        Ok(names.iter().filter_map(|it| Space::from_name(it)).collect())
    }

    fn open_space(&self, space: &Space) -> Result<()> {
        let mut trees = self.trees.write();
        if trees.contains_key(space) {
            return Ok(());
        }
        let mut pins = self.pins.lock();
        // In a database that is made nothing was ever cut: it gets its name when it is whole.
        let is_made = self.database.keyspace_count() == 0;
        if !is_made && !self.database.keyspace_exists(space.name()) {
            pins.lead(&self.database, || sync_folder(&self.path.join(TREES)))
                .map_err(error::write_failed)?;
        }
        pins.a_tree_was_made();
        let tree = self
            .database
            .keyspace(space.name(), || {
                KeyspaceCreateOptions::default().max_memtable_size(self.memtable_bytes)
            })
            .map_err(error::write_failed)?;
        sync_folder(&self.path.join(TREES)).map_err(|it| error::write_failed(it.into()))?;
        trees.insert(space.clone(), tree);
        Ok(())
    }

    fn drop_space(&self, space: &Space) -> Result<()> {
        let mut trees = self.trees.write();
        if let Some(tree) = trees.remove(space) {
            self.pins
                .lock()
                .outnumber(&self.database, || sync_folder(&self.path.join(TREES)))
                .map_err(error::write_failed)?;
            self.database
                .delete_keyspace(tree)
                .and_then(|()| self.relieve_journal(&trees))
                .map_err(error::write_failed)?;
        }
        Ok(())
    }

    fn apply(&self, changes: &Changes, sync: bool) -> Result<()> {
        let mut batch = self.database.batch().durability(Some(if sync {
            PersistMode::SyncData
        } else {
            PersistMode::Buffer
        }));
        if !changes.range_deletes.is_empty() {
            // Ranges may overlap each other and the operations; a key is named once.
            let mut deleted = HashSet::new();
            let rewritten = changes
                .operations
                .iter()
                .map(|it| (&it.space, &it.key))
                .collect();
            for (space, start, end) in &changes.range_deletes {
                let tree = self.tree(space)?;
                for key in self.doomed_keys(&tree, space, (start, end), &rewritten)? {
                    if deleted.insert((space, key.clone())) {
                        batch.remove(&tree, &*key::encode(&key));
                    }
                }
            }
        }
        // They lie in order, so that a tree is looked up once.
        let runs = changes.operations.chunk_by(|a, b| a.space == b.space);
        for run in runs {
            let Some(first) = run.first() else {
                continue;
            };
            let tree = self.tree(&first.space)?;
            for operation in run {
                let key = key::encode(&operation.key);
                match &operation.value {
                    Some(value) => batch.insert(&tree, &*key, &**value),
                    None => batch.remove(&tree, &*key),
                }
            }
        }
        batch.commit().map_err(error::write_failed)
    }

    fn sync(&self) -> Result<()> {
        self.database
            .persist(PersistMode::SyncData)
            .map_err(error::write_failed)
    }

    fn get(&self, space: &Space, key: &[u8]) -> Result<Option<Bytes>> {
        read(&self.database.snapshot(), &self.tree(space)?, key)
    }

    fn scan(&self, space: &Space, scan: &Scan) -> Result<Vec<Entry>> {
        read_range(&self.database.snapshot(), &self.tree(space)?, scan)
    }

    fn snapshot(&self) -> Result<Option<Arc<dyn EngineSnapshot>>> {
        Ok(Some(Arc::new(FjallSnapshot {
            trees: self.trees.read().clone(),
            snapshot: self.database.snapshot(),
        })))
    }

    /// Its tables are compressed, and nothing says what they would be without that.
    fn estimate(&self, space: &Space) -> Result<Option<Estimate>> {
        let rows = self.tree(space)?.approximate_len();
        Ok(Some(Estimate {
            rows: u64::try_from(rows).unwrap_or(u64::MAX),
            bytes: None,
        }))
    }
}

fn read(snapshot: &fjall::Snapshot, tree: &Tree, key: &[u8]) -> Result<Option<Bytes>> {
    let value = snapshot.get(tree, key::encode(key));
    let value = value.map_err(error::read_failed)?;
    Ok(value.map(|it| Bytes::copy_from_slice(&it)))
}

fn read_range(snapshot: &fjall::Snapshot, tree: &Tree, scan: &Scan) -> Result<Vec<Entry>> {
    let end = scan.end.as_deref().map(key::encode);
    let bounds = (
        Bound::Included(key::encode(&scan.start)),
        end.map_or(Bound::Unbounded, Bound::Excluded),
    );
    let range = snapshot.range(tree, bounds);
    let entry = |guard: fjall::Guard| {
        let (key, value) = guard.into_inner().map_err(error::read_failed)?;
        Ok(Entry {
            key: key::decode(&key),
            value: Bytes::copy_from_slice(&value),
        })
    };
    match scan.direction {
        Direction::Forward => scan.collect(range.map(entry)),
        Direction::Backward => scan.collect(range.rev().map(entry)),
    }
}

struct FjallSnapshot {
    trees: HashMap<Space, Tree>,
    snapshot: fjall::Snapshot,
}

impl FjallSnapshot {
    fn tree(&self, space: &Space) -> Result<&Tree> {
        self.trees.get(space).ok_or_else(|| unknown(space))
    }
}

impl fmt::Debug for FjallSnapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FjallSnapshot").finish_non_exhaustive()
    }
}

impl EngineSnapshot for FjallSnapshot {
    fn get(&self, space: &Space, key: &[u8]) -> Result<Option<Bytes>> {
        read(&self.snapshot, self.tree(space)?, key)
    }

    fn scan(&self, space: &Space, scan: &Scan) -> Result<Vec<Entry>> {
        read_range(&self.snapshot, self.tree(space)?, scan)
    }
}
