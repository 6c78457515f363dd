//! Staged replace on the writer's side: a new generation is loaded beside the one in use,
//! then one record switches.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use bytes::Bytes;

use super::{
    Changes, Engine, Operation, Space,
    checkpoint::Checkpoint,
    disk::DiskGuard,
    layout::Layout,
    loader::{Loader, Plain},
    record,
    writer::Writer,
};
use crate::{Entry, ErrorKind, Keyspace, Result, WriteBatch};

/// The staging that is open, as the writer knows it.
#[derive(Debug)]
pub(super) struct Staged {
    id: u64,
    spaces: BTreeMap<Keyspace, Space>,
    loader: Option<Arc<Loader>>,
    /// What a later process would go on with.
    checkpoint: Option<Checkpoint>,
}

impl Staged {
    pub(super) fn is(&self, id: u64) -> bool {
        self.id == id
    }

    pub(super) fn set_checkpoint(&mut self, checkpoint: Checkpoint) {
        self.checkpoint = Some(checkpoint);
    }

    /// Has the loader let go of the engine.
    pub(super) fn stop(&self) {
        if let Some(loader) = &self.loader {
            loader.stop();
        }
    }
}

/// A staging that was opened.
pub(super) struct Begun {
    pub(super) loader: Option<Arc<Loader>>,
    /// What it goes on with.
    pub(super) checkpoint: Option<Checkpoint>,
}

/// Generations that are out of use: dropped as soon as no snapshot reads them.
#[derive(Debug, Default)]
pub(super) struct Retired(VecDeque<(Arc<Layout>, Vec<Space>)>);

impl<E: Engine> Writer<E> {
    /// Opens a staging: the one that was kept under `name`, or a new one.
    pub(super) fn begin_staging(
        &mut self,
        id: u64,
        keyspaces: &[Keyspace],
        name: Option<&Bytes>,
    ) -> Result<Begun> {
        if self.staging.is_some() {
            return Err(self
                .core
                .error(ErrorKind::Unavailable, "begin_replace")
                .with_detail("another staging is open: publish or abort it first"));
        }
        let layout = Arc::clone(&self.core.layout.read());
        let spaces: BTreeMap<_, _> = keyspaces
            .iter()
            .map(|keyspace| (*keyspace, layout.next_space(*keyspace)))
            .collect();
        let checkpoint = self.resume(keyspaces, name)?;
        if checkpoint.is_none() {
            self.forget_kept()?;
            for space in spaces.values() {
                self.write_engine("begin_replace", |engine| engine.open_space(space))?;
            }
        }
        let loader = match self.engine.has_bulk_load() {
            true => Some(self.start_loader(&spaces, checkpoint.as_ref())?),
            false => None,
        };
        // From here on it is the staging's, and kept again when that is let go of.
        self.kept = None;
        self.staging = Some(Staged {
            id,
            spaces,
            loader: loader.clone(),
            checkpoint: checkpoint.clone(),
        });
        Ok(Begun { loader, checkpoint })
    }

    fn start_loader(
        &self,
        spaces: &BTreeMap<Keyspace, Space>,
        checkpoint: Option<&Checkpoint>,
    ) -> Result<Arc<Loader>> {
        let disk = self.disk.as_ref().map(DiskGuard::another);
        Loader::start(
            Arc::clone(&self.engine),
            Arc::clone(&self.core),
            disk,
            spaces,
            checkpoint,
        )
    }

    /// Writes rows into the staged generation, as a batch.
    pub(super) fn load(&mut self, keyspace: Keyspace, entries: Vec<Entry>) -> Result<()> {
        let staged = self.staging.as_ref();
        let space = staged.and_then(|it| it.spaces.get(&keyspace)).cloned();
        let space = space.ok_or_else(|| {
            self.core
                .error(ErrorKind::Invalid, "load")
                .with_detail(format!("keyspace {keyspace} is not staged"))
        })?;
        // One operation a key, and the later put wins.
        let entries: BTreeMap<Bytes, Bytes> =
            entries.into_iter().map(|it| (it.key, it.value)).collect();
        let mut changes = Changes::default();
        let mut bytes = 0;
        for (key, value) in entries {
            bytes += key.len() + value.len();
            changes.operations.push(Operation {
                space: space.clone(),
                key,
                value: Some(value),
            });
        }
        self.admit(bytes)?;
        self.commit("load", changes, false)
    }

    /// Writes what a loader held back, in batches.
    pub(super) fn load_plain(&mut self, plain: Plain) -> Result<()> {
        for (keyspace, rows) in plain {
            let mut batch = Vec::new();
            let mut bytes = 0;
            for row in rows {
                let size = row.key.len() + row.value.len();
                if batch.len() == WriteBatch::KEYS_MAX || bytes + size > WriteBatch::BYTES_MAX {
                    self.load(keyspace, std::mem::take(&mut batch))?;
                    bytes = 0;
                }
                bytes += size;
                batch.push(row);
            }
            self.load(keyspace, batch)?;
        }
        Ok(())
    }

    pub(super) fn publish_staging(&mut self) -> Result<()> {
        let staged = self.staging.as_ref().expect("its owner publishes it once");
        let old = Arc::clone(&self.core.layout.read());
        let mut new = Layout::clone(&old);
        let mut retired = Vec::new();
        for &keyspace in staged.spaces.keys() {
            retired.extend(old.space(keyspace).cloned());
            new.advance(keyspace);
        }
        let switch = Operation {
            space: self.system.clone(),
            key: Bytes::from_static(record::LAYOUT),
            value: Some(new.encode()),
        };
        let mut changes = Changes {
            operations: vec![switch],
            ..Changes::default()
        };
        if staged.checkpoint.is_some() {
            changes.operations.push(self.no_checkpoint());
        }
        // Synced, so that everything loaded before it is durable with it.
        self.commit("publish", changes, true)?;
        // Waits for the readers that are inside the old generation.
        *self.core.layout.write() = Arc::new(new);
        if let Some(staged) = self.staging.take() {
            staged.stop();
        }
        self.retired.0.push_back((old, retired));
        self.drop_retired();
        Ok(())
    }

    /// Lets go of a staging: it is thrown away, unless it is to be kept and can be resumed.
    pub(super) fn end_staging(&mut self, id: u64, keep: bool) -> Result<()> {
        let Some(staged) = self.staging.take_if(|it| it.id == id) else {
            return Ok(());
        };
        staged.stop();
        if staged.checkpoint.is_some() {
            self.kept = staged.checkpoint;
            return if keep { Ok(()) } else { self.forget_kept() };
        }
        for space in staged.spaces.values() {
            self.write_engine("abort", |engine| engine.drop_space(space))?;
        }
        Ok(())
    }

    /// Drops the old generations that no snapshot reads any more, oldest first.
    pub(super) fn drop_retired(&mut self) {
        while let Some((layout, spaces)) = self.retired.0.pop_front() {
            // A snapshot of this layout or of an older one may read them: the older ones
            // come before it in this queue.
            if Arc::strong_count(&layout) > 1 {
                self.retired.0.push_front((layout, spaces));
                return;
            }
            for space in spaces {
                // A failure has poisoned the store; the next open sweeps what is left.
                if let Err(error) = self.write_engine("publish", |it| it.drop_space(&space)) {
                    tracing::warn!(%space, %error, "an old generation could not be dropped");
                    return;
                }
            }
        }
    }
}
