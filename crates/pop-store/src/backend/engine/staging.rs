//! Staged replace: a new generation is loaded beside the one in use, then one record switches.

use std::{
    collections::{BTreeMap, VecDeque},
    fmt,
    sync::Arc,
};

use async_trait::async_trait;
use bytes::Bytes;

use super::{
    Changes, Engine, Operation, Space,
    layout::Layout,
    record,
    store::Shared,
    writer::{Job, Writer},
};
use crate::{Entry, ErrorKind, Keyspace, Result, Staging, WriteBatch};

/// The staging that is open, as the writer knows it.
#[derive(Debug)]
pub(super) struct Staged {
    id: u64,
    spaces: BTreeMap<Keyspace, Space>,
}

/// Generations that are out of use: dropped as soon as no snapshot reads them.
#[derive(Debug, Default)]
pub(super) struct Retired(VecDeque<(Arc<Layout>, Vec<Space>)>);

impl<E: Engine> Writer<E> {
    fn begin_staging(&mut self, id: u64, keyspaces: &[Keyspace]) -> Result<()> {
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
        for space in spaces.values() {
            self.write_engine("begin_replace", |engine| engine.open_space(space))?;
        }
        self.staging = Some(Staged { id, spaces });
        Ok(())
    }

    fn load(&mut self, keyspace: Keyspace, entries: Vec<Entry>) -> Result<()> {
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

    fn publish_staging(&mut self) -> Result<()> {
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
        let changes = Changes {
            operations: vec![switch],
            ..Changes::default()
        };
        // Synced, so that everything loaded before it is durable with it.
        self.commit("publish", changes, true)?;
        // Waits for the readers that are inside the old generation.
        *self.core.layout.write() = Arc::new(new);
        self.staging = None;
        self.retired.0.push_back((old, retired));
        self.drop_retired();
        Ok(())
    }

    fn abort_staging(&mut self, id: u64) -> Result<()> {
        let Some(staged) = self.staging.take_if(|it| it.id == id) else {
            return Ok(());
        };
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

/// A generation being loaded. Dropped unpublished, it is thrown away.
pub(super) struct EngineStaging<E: Engine> {
    shared: Arc<Shared<E>>,
    id: u64,
}

impl<E: Engine> EngineStaging<E> {
    pub(super) fn new(shared: Arc<Shared<E>>) -> Self {
        let id = shared.core.next_staging_id();
        Self { shared, id }
    }

    pub(super) async fn begin(&self, keyspaces: Vec<Keyspace>) -> Result<()> {
        let id = self.id;
        self.shared
            .ask("begin_replace", move |writer| {
                writer.begin_staging(id, &keyspaces)
            })
            .await
    }

    /// A load has the limits of a batch, so that a loaded entry can be written again.
    fn check_entries(&self, entries: &[Entry]) -> Result<usize> {
        let invalid = |detail: String| {
            self.shared
                .core
                .error(ErrorKind::Invalid, "load")
                .with_detail(detail)
        };
        let bytes = entries.iter().map(|it| it.key.len() + it.value.len()).sum();
        if entries.len() > WriteBatch::KEYS_MAX || bytes > WriteBatch::BYTES_MAX {
            return Err(invalid(format!(
                "{} entries of {bytes} bytes, the limits are {} and {}: split them",
                entries.len(),
                WriteBatch::KEYS_MAX,
                WriteBatch::BYTES_MAX
            )));
        }
        match entries
            .iter()
            .find(|it| it.key.len() > WriteBatch::KEY_BYTES_MAX)
        {
            None => Ok(bytes),
            Some(entry) => Err(invalid(format!(
                "a key has {} bytes, the limit is {}",
                entry.key.len(),
                WriteBatch::KEY_BYTES_MAX
            ))),
        }
    }
}

impl<E: Engine> fmt::Debug for EngineStaging<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EngineStaging").finish_non_exhaustive()
    }
}

impl<E: Engine> Drop for EngineStaging<E> {
    fn drop(&mut self) {
        let id = self.id;
        // Finds nothing if it was published or aborted.
        self.shared.send(Job::Task(Box::new(move |writer| {
            // A failure has poisoned the store; the next open sweeps what is left.
            if let Err(error) = writer.abort_staging(id) {
                tracing::warn!(%error, "a staging could not be dropped");
            }
        })));
    }
}

#[async_trait]
impl<E: Engine> Staging for EngineStaging<E> {
    async fn load(&mut self, keyspace: Keyspace, entries: Vec<Entry>) -> Result<()> {
        let bytes = self.check_entries(&entries)?;
        // An empty load costs something too.
        let permit = self.shared.core.room(bytes + 1, "load").await?;
        self.shared
            .ask("load", move |writer| {
                let _permit = permit;
                writer.load(keyspace, entries)
            })
            .await
    }

    async fn publish(self: Box<Self>) -> Result<()> {
        self.shared.ask("publish", Writer::publish_staging).await
    }

    async fn abort(self: Box<Self>) -> Result<()> {
        let id = self.id;
        self.shared
            .ask("abort", move |writer| writer.abort_staging(id))
            .await
    }
}
