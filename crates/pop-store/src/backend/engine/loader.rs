//! The thread that a staged load has to itself, for engines with a bulk load.
//!
//! Sorting rows into files takes as long as it takes; on the writer's thread every batch
//! would wait for it. Few rows are not worth a file: they are kept here until the publish,
//! and then written as batches.

use std::{
    collections::BTreeMap,
    fmt, mem,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        mpsc::{self, Sender},
    },
    thread::{self, JoinHandle},
};

use bytes::Bytes;
use parking_lot::Mutex;

use super::{BulkLoader, Engine, Space, checkpoint::Checkpoint, core::Core, disk::DiskGuard};
use crate::{Entry, Error, ErrorKind, Keyspace, Result, Rows, run_in_background};

// Up to this many bytes a staged load is written as batches: a file costs some 30 ms,
// whatever is in it.
const HELD_BYTES_MAX: usize = 2 << 20;

type Order = Box<dyn FnOnce(&mut Loading<'_>) + Send>;

/// Rows of one keyspace that are to be written as batches, in this order.
pub(super) type Plain = Vec<(Keyspace, Vec<Entry>)>;

/// The handle of the thread. It ends with the last order, or when it is stopped.
pub(super) struct Loader {
    orders: Mutex<Option<Sender<Order>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl fmt::Debug for Loader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Loader").finish_non_exhaustive()
    }
}

impl Loader {
    pub(super) fn start<E: Engine>(
        engine: Arc<E>,
        core: Arc<Core>,
        disk: Option<DiskGuard>,
        spaces: &BTreeMap<Keyspace, Space>,
        checkpoint: Option<&Checkpoint>,
    ) -> Result<Arc<Self>> {
        let (orders, inbox) = mpsc::channel::<Order>();
        let places = spaces.iter().map(|(keyspace, space)| {
            let mark = checkpoint.and_then(|it| it.mark(*keyspace));
            let place = Place {
                space: space.clone(),
                content: match mark {
                    None => Content::Held(BTreeMap::new()),
                    Some(mark) => Content::Sorted {
                        last: mark.last.clone(),
                    },
                },
            };
            (*keyspace, place)
        });
        let mut places = Some(places.collect::<BTreeMap<_, _>>());
        let mut disk = Some(disk);
        let name = core.name;
        let thread = thread::Builder::new()
            .name("store-loader".to_owned())
            .spawn(move || {
                run_in_background();
                engine.bulk_load(&mut |bulk| {
                    let mut loading = Loading {
                        core: &core,
                        bulk,
                        disk: disk.take().flatten(),
                        places: places.take().unwrap_or_default(),
                        held_bytes: 0,
                        broken: None,
                    };
                    for order in &inbox {
                        order(&mut loading);
                    }
                });
            })
            .map_err(|error| {
                Error::new(ErrorKind::Unavailable, name, "begin_replace")
                    .with_detail("the loader's thread could not be started")
                    .with_source(error)
            })?;
        Ok(Arc::new(Self {
            orders: Mutex::new(Some(orders)),
            thread: Mutex::new(Some(thread)),
        }))
    }

    /// Has `order` run after all that came before. Once the thread was stopped it is dropped.
    pub(super) fn send(&self, order: impl FnOnce(&mut Loading<'_>) + Send + 'static) {
        if let Some(orders) = &*self.orders.lock() {
            // A thread that is gone drops it, too.
            let _ = orders.send(Box::new(order));
        }
    }

    /// Waits until the thread is through with its orders and lets go of the engine.
    pub(super) fn stop(&self) {
        self.orders.lock().take();
        if let Some(thread) = self.thread.lock().take() {
            // Orders catch the panics of the engine.
            let _ = thread.join();
        }
    }
}

/// What a staged load has come to, on its thread.
pub(super) struct Loading<'a> {
    core: &'a Core,
    bulk: &'a mut dyn BulkLoader,
    disk: Option<DiskGuard>,
    places: BTreeMap<Keyspace, Place>,
    held_bytes: usize,
    // A file that failed is not tried again: nobody knows what is in it.
    broken: Option<String>,
}

struct Place {
    space: Space,
    content: Content,
}

enum Content {
    /// In memory, because there are few.
    Held(BTreeMap<Bytes, Bytes>),
    /// In files, up to this key.
    Sorted { last: Option<Bytes> },
    /// Finished, because a row came that was not above the last one: what comes later is
    /// written by batches, over what is there.
    Plain,
}

impl Loading<'_> {
    /// Runs `work`, unless an earlier one failed; a panic breaks the load like an error.
    pub(super) fn run<T>(
        &mut self,
        operation: &'static str,
        work: impl FnOnce(&mut Self) -> Result<T>,
    ) -> Result<T> {
        self.check(operation)?;
        catch_unwind(AssertUnwindSafe(|| work(self))).unwrap_or_else(|_| {
            self.broken = Some("the engine panicked in a load".to_owned());
            Err(self.broken_error(operation))
        })
    }

    /// Takes rows, and gives back those that are to be written as batches. Whoever knows that
    /// they ascend says so.
    pub(super) fn load(
        &mut self,
        keyspace: Keyspace,
        rows: Rows,
        known_to_ascend: bool,
    ) -> Result<Rows> {
        if let Some(disk) = &mut self.disk {
            disk.admit(self.core.name, rows.byte_count())?;
        }
        let place = self.places.get_mut(&keyspace).ok_or_else(|| {
            self.core
                .error(ErrorKind::Invalid, "load")
                .with_detail(format!("keyspace {keyspace} is not staged"))
        })?;
        match &mut place.content {
            Content::Held(held) => {
                held.extend(rows.entries().map(|it| (it.key, it.value)));
                self.held_bytes += rows.byte_count();
                if self.held_bytes > HELD_BYTES_MAX {
                    self.spill()?;
                }
                Ok(Rows::default())
            }
            Content::Plain => Ok(rows),
            Content::Sorted { last } => {
                let before = last.iter().map(AsRef::as_ref);
                let ascends = known_to_ascend
                    || before
                        .chain(rows.iter().map(|(key, _)| key))
                        .is_sorted_by(|a, b| a < b);
                if !ascends {
                    place.content = Content::Plain;
                    let space = place.space.clone();
                    self.finish(&space)?;
                    return Ok(rows);
                }
                if let Some((key, _)) = rows.last() {
                    // A copy, which keeps no rows in memory.
                    *last = Some(Bytes::copy_from_slice(key));
                    let loaded = self.bulk.load(&place.space, &rows);
                    self.note(loaded)?;
                }
                Ok(Rows::default())
            }
        }
    }

    /// The same for one who does not wait for the answer before the next load: that must not
    /// come in without this one.
    pub(super) fn load_ahead(
        &mut self,
        keyspace: Keyspace,
        rows: Rows,
        known_to_ascend: bool,
    ) -> Result<Rows> {
        let loaded = self.load(keyspace, rows, known_to_ascend);
        if let Err(error) = &loaded {
            self.broken.get_or_insert_with(|| error.to_string());
        }
        loaded
    }

    /// Makes everything in files the content of its spaces; what is in memory is given back,
    /// to be written as batches.
    pub(super) fn finish_all(&mut self) -> Result<Plain> {
        let mut plain = Plain::new();
        for (keyspace, place) in mem::take(&mut self.places) {
            match place.content {
                Content::Held(held) => {
                    let rows = held.into_iter().map(|(key, value)| Entry { key, value });
                    plain.push((keyspace, rows.collect()));
                }
                Content::Sorted { last: None } | Content::Plain => {}
                Content::Sorted { last: Some(_) } => self.finish(&place.space)?,
            }
        }
        Ok(plain)
    }

    /// Makes everything that came survive a power cut, in files, and says in how many.
    pub(super) fn checkpoint(&mut self) -> Result<BTreeMap<Keyspace, u32>> {
        self.spill()?;
        let mut files = BTreeMap::new();
        let mut outcome = Ok(());
        for (keyspace, place) in &self.places {
            if let Content::Sorted { last: Some(_) } = &place.content {
                match self.bulk.checkpoint(&place.space) {
                    Ok(count) => drop(files.insert(*keyspace, count)),
                    Err(error) => outcome = Err(error),
                }
            }
        }
        self.note(outcome)?;
        Ok(files)
    }

    /// Puts everything that is in memory into files. From here on everything goes there.
    fn spill(&mut self) -> Result<()> {
        self.held_bytes = 0;
        let mut outcome = Ok(());
        for place in self.places.values_mut() {
            let Content::Held(held) = &mut place.content else {
                continue;
            };
            let rows = mem::take(held).into_iter();
            let rows: Vec<_> = rows.map(|(key, value)| Entry { key, value }).collect();
            let last = rows.last().map(|it| it.key.clone());
            if last.is_some() && outcome.is_ok() {
                outcome = self.bulk.load(&place.space, &rows.into());
            }
            place.content = Content::Sorted { last };
        }
        self.note(outcome)
    }

    fn finish(&mut self, space: &Space) -> Result<()> {
        let finished = self.bulk.finish(space);
        self.note(finished)
    }

    fn check(&self, operation: &'static str) -> Result<()> {
        self.core.check(operation)?;
        match &self.broken {
            None => Ok(()),
            Some(_) => Err(self.broken_error(operation)),
        }
    }

    fn broken_error(&self, operation: &'static str) -> Error {
        let cause = self.broken.as_deref().unwrap_or("the load failed");
        self.core
            .error(ErrorKind::Unavailable, operation)
            .with_detail(format!("{cause}; begin the load anew"))
    }

    fn note(&mut self, outcome: Result<()>) -> Result<()> {
        if let Err(error) = &outcome {
            self.broken = Some(error.to_string());
        }
        outcome
    }
}
