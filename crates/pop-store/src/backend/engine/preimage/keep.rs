//! The writer's side: keeps what a group is about to write over.

use std::{
    collections::BTreeMap,
    sync::{Arc, Weak, atomic::AtomicU64},
};

use bytes::Bytes;
use parking_lot::RwLock;

use super::{Kept, PreImage, PreImages, Room};
use crate::{
    Result, Scan,
    backend::engine::{Changes, Engine, Operation, Space, writer::Writer},
    ext::successor,
};

// More than this is written before the group, in several parts; a range delete may be of
// any size.
const SPILL_BYTES_MAX: usize = 4 << 20;

/// The snapshots that are open, as the writer knows them.
#[derive(Debug)]
pub(in crate::backend::engine) struct Watched {
    open: Vec<(Weak<PreImages>, Scratch)>,
    taken_count: u64,
    room: Arc<Room>,
}

/// The space of one snapshot, and whether it was made.
#[derive(Debug)]
struct Scratch {
    space: Space,
    is_made: bool,
}

/// Pre-images that have no room in memory, by their key in the scratch space.
#[derive(Default)]
struct Spill {
    rows: BTreeMap<Bytes, Bytes>,
    bytes: usize,
}

impl Watched {
    pub(in crate::backend::engine) fn new(bytes_max: u64) -> Self {
        let taken = AtomicU64::new(0);
        Self {
            open: Vec::new(),
            taken_count: 0,
            room: Arc::new(Room { taken, bytes_max }),
        }
    }
}

impl<E: Engine> Writer<E> {
    /// Opens a snapshot of now.
    pub(in crate::backend::engine) fn watch(&mut self) -> Arc<PreImages> {
        self.watched.taken_count += 1;
        // No keyspace has a generation zero.
        let scratch = Space::new(&format!("snapshot_{}", self.watched.taken_count), 0);
        let images = Arc::new(PreImages {
            name: self.core.name,
            layout: Arc::clone(&self.core.layout.read()),
            scratch: scratch.clone(),
            room: Arc::clone(&self.watched.room),
            kept: RwLock::new(Kept::default()),
        });
        let scratch = Scratch {
            space: scratch,
            is_made: false,
        };
        self.watched.open.push((Arc::downgrade(&images), scratch));
        images
    }

    /// Keeps for each open snapshot what `changes` is about to write over.
    ///
    /// Where that fails, it ends the snapshot: a write is worth more.
    pub(in crate::backend::engine) fn keep_pre_images(&mut self, changes: &mut Changes) {
        if self.watched.open.is_empty() {
            return;
        }
        self.forget_dropped_snapshots();
        let open: Vec<_> = self.watched.open.iter().map(|it| it.0.upgrade()).collect();
        let mut spilled = Vec::new();
        for (at, images) in open.into_iter().enumerate() {
            let Some(images) = images.filter(|it| it.kept.read().ended.is_none()) else {
                continue;
            };
            let mut spill = Spill::default();
            let kept = self
                .keep_all(at, &images, changes, &mut spill)
                .and_then(|()| self.admit(spill.bytes));
            match kept {
                Ok(()) => spilled.extend(spill.into_operations(&images.scratch)),
                Err(error) => images.end(&error),
            }
        }
        changes.operations.extend(spilled);
    }

    /// Drops what dropped snapshots had on disk.
    pub(in crate::backend::engine) fn forget_dropped_snapshots(&mut self) {
        let is_gone = |it: &mut (Weak<PreImages>, Scratch)| it.0.strong_count() == 0;
        let gone: Vec<_> = self.watched.open.extract_if(.., is_gone).collect();
        for (_, scratch) in gone.into_iter().filter(|it| it.1.is_made) {
            let space = scratch.space;
            // A failure has poisoned the store; the next open sweeps what is left.
            if let Err(error) = self.write_engine("snapshot", |it| it.drop_space(&space)) {
                tracing::warn!(%space, %error, "what a snapshot had on disk could not be dropped");
            }
        }
    }

    fn keep_all(
        &mut self,
        at: usize,
        images: &PreImages,
        changes: &Changes,
        spill: &mut Spill,
    ) -> Result<()> {
        for (space, start, end) in &changes.range_deletes {
            if !images.covers(space) {
                continue;
            }
            // What is not there is not deleted, so no absence needs to be kept.
            let mut page = Scan::range(start.clone(), end.clone());
            while !page.is_empty() {
                let rows = self.read_engine(|engine| engine.scan(space, &page))?;
                let Some(last) = rows.last() else { break };
                page.start = successor(&last.key);
                for row in rows {
                    if !self.is_kept(images, space, &row.key, spill)? {
                        self.keep(at, images, space, row.key, Some(row.value), spill)?;
                    }
                }
            }
        }
        for Operation { space, key, .. } in &changes.operations {
            if images.covers(space) && !self.is_kept(images, space, key, spill)? {
                let image = self.read_engine(|engine| engine.get(space, key))?;
                // A copy, so that it holds nothing of the batch that the key came in.
                let key = Bytes::copy_from_slice(key);
                self.keep(at, images, space, key, image, spill)?;
            }
        }
        Ok(())
    }

    fn is_kept(
        &self,
        images: &PreImages,
        space: &Space,
        key: &[u8],
        spill: &Spill,
    ) -> Result<bool> {
        if !spill.rows.is_empty() && spill.rows.contains_key(&PreImages::scratch_key(space, key)) {
            return Ok(true);
        }
        self.read_engine(|engine| Ok(images.find(engine, space, key)?.is_some()))
    }

    fn keep(
        &mut self,
        at: usize,
        images: &PreImages,
        space: &Space,
        key: Bytes,
        image: PreImage,
        spill: &mut Spill,
    ) -> Result<()> {
        if images.keep(space, &key, &image) {
            return Ok(());
        }
        self.make_scratch(at, images)?;
        spill.add(
            PreImages::scratch_key(space, &key),
            PreImages::encode(&image),
        );
        if spill.bytes >= SPILL_BYTES_MAX {
            let spill = std::mem::take(spill);
            self.admit(spill.bytes)?;
            let part = Changes {
                operations: spill.into_operations(&images.scratch).collect(),
                ..Changes::default()
            };
            self.write_engine("snapshot", |engine| engine.apply(&part, false))?;
        }
        Ok(())
    }

    fn make_scratch(&mut self, at: usize, images: &PreImages) -> Result<()> {
        if self.watched.open.get(at).is_none_or(|it| it.1.is_made) {
            return Ok(());
        }
        self.write_engine("snapshot", |engine| engine.open_space(&images.scratch))?;
        if let Some((_, scratch)) = self.watched.open.get_mut(at) {
            scratch.is_made = true;
        }
        images.kept.write().spilled = true;
        Ok(())
    }
}

impl Spill {
    fn add(&mut self, key: Bytes, row: Bytes) {
        self.bytes += key.len() + row.len();
        self.rows.insert(key, row);
    }

    fn into_operations(self, scratch: &Space) -> impl Iterator<Item = Operation> {
        self.rows.into_iter().map(|(key, row)| Operation {
            space: scratch.clone(),
            key,
            value: Some(row),
        })
    }
}
