//! Staged replace as its caller holds it: rows go to the loader's thread where the engine
//! has a bulk load, and else to the writer's.

use std::{
    collections::{BTreeMap, VecDeque},
    fmt, mem,
    sync::Arc,
};

use async_trait::async_trait;
use bytes::Bytes;

use super::{
    Engine,
    answer::{Answer, Waiter},
    checkpoint::{Checkpoint, Mark},
    loader::{Loader, Loading},
    store::Shared,
    writer::{Job, Writer},
};
use crate::{Entry, Error, ErrorKind, Keyspace, Result, Resumed, Rows, Staging, WriteBatch};

/// A generation being loaded. Dropped unpublished, it is thrown away, or goes back to its
/// last checkpoint.
pub(super) struct EngineStaging<E: Engine> {
    shared: Arc<Shared<E>>,
    id: u64,
    keyspaces: Vec<Keyspace>,
    loader: Option<Arc<Loader>>,
    // What the loader was given and has not answered, oldest first.
    ahead: VecDeque<(Keyspace, Waiter<Rows>)>,
    // A call was begun and its end was not waited for.
    is_torn: bool,
    resumable: Option<Resumable>,
}

/// What is known of a staging that can be resumed.
struct Resumable {
    name: Bytes,
    marks: BTreeMap<Keyspace, Mark>,
    /// Whether a checkpoint outlives the drop.
    keep: bool,
}

impl<E: Engine> EngineStaging<E> {
    pub(super) fn new(shared: Arc<Shared<E>>) -> Self {
        let id = shared.core.next_staging_id();
        Self {
            shared,
            id,
            keyspaces: Vec::new(),
            loader: None,
            ahead: VecDeque::new(),
            is_torn: false,
            resumable: None,
        }
    }

    /// Opens it, and says with which point it goes on.
    pub(super) async fn begin(
        &mut self,
        keyspaces: &[Keyspace],
        name: Option<Bytes>,
    ) -> Result<Option<Bytes>> {
        let (id, asked, called) = (self.id, keyspaces.to_vec(), name.clone());
        let begin = move |writer: &mut Writer<E>| writer.begin_staging(id, &asked, called.as_ref());
        let begun = self.shared.ask("begin_replace", begin).await?;
        self.loader = begun.loader;
        self.keyspaces = keyspaces.to_vec();
        let layout = Arc::clone(&self.shared.core.layout.read());
        let mark = |keyspace: Keyspace| {
            let found = begun.checkpoint.as_ref().and_then(|it| it.mark(keyspace));
            found.cloned().unwrap_or_else(|| Mark {
                generation: layout.next_generation(keyspace.name()),
                ..Mark::default()
            })
        };
        self.resumable = name.map(|name| Resumable {
            name,
            marks: keyspaces.iter().map(|it| (*it, mark(*it))).collect(),
            keep: true,
        });
        Ok(begun.checkpoint.map(|it| it.point))
    }

    fn invalid(&self, operation: &'static str, detail: impl Into<String>) -> Error {
        let error = self.shared.core.error(ErrorKind::Invalid, operation);
        error.with_detail(detail)
    }

    /// Begins a step: if its end is not waited for, nobody knows what is in.
    fn begin_step(&mut self, operation: &'static str) -> Result<()> {
        if mem::replace(&mut self.is_torn, true) {
            return Err(self
                .shared
                .core
                .error(ErrorKind::Unavailable, operation)
                .with_detail("an earlier call was given up half-way; open the load again"));
        }
        Ok(())
    }

    fn end_step(&mut self) {
        self.is_torn = false;
    }

    /// A resumable load only ascends, so that a key says what came before it.
    fn check_order<'a>(
        &'a self,
        keyspace: Keyspace,
        keys: impl Iterator<Item = &'a [u8]>,
    ) -> Result<()> {
        let Some(resumable) = &self.resumable else {
            return Ok(());
        };
        let mark = resumable.marks.get(&keyspace);
        let last = mark.and_then(|it| it.last.as_deref());
        if last.into_iter().chain(keys).is_sorted_by(|a, b| a < b) {
            return Ok(());
        }
        Err(self.invalid(
            "load",
            format!("keys of {keyspace} don't ascend: a resumable load takes them in order"),
        ))
    }

    fn set_last(&mut self, keyspace: Keyspace, last: Option<Bytes>) {
        let resumable = self.resumable.as_mut();
        let mark = resumable.and_then(|it| it.marks.get_mut(&keyspace));
        if let (Some(mark), Some(_)) = (mark, &last) {
            mark.last = last;
        }
    }

    /// Gives rows to the loader's thread and waits until at most `ahead` loads are not in.
    async fn hand_over(&mut self, keyspace: Keyspace, rows: Rows, ahead: usize) -> Result<()> {
        if let Some(loader) = &self.loader {
            // Else they were refused.
            let ascend = self.resumable.is_some();
            let load = move |loading: &mut Loading<'_>| match ahead {
                0 => loading.load(keyspace, rows, ascend),
                _ => loading.load_ahead(keyspace, rows, ascend),
            };
            let waiter = self.order(loader, "load", load);
            self.ahead.push_back((keyspace, waiter));
        }
        self.settle(ahead).await
    }

    /// Waits until at most `ahead` loads are not in.
    async fn settle(&mut self, ahead: usize) -> Result<()> {
        while self.ahead.len() > ahead
            && let Some((keyspace, waiter)) = self.ahead.pop_front()
        {
            let plain = waiter.wait().await?;
            for entries in plain.batches() {
                self.write(keyspace, entries).await?;
            }
        }
        Ok(())
    }

    async fn record(&self, mut checkpoint: Checkpoint) -> Result<()> {
        if let Some(loader) = &self.loader {
            let settle = |loading: &mut Loading<'_>| loading.checkpoint();
            for (keyspace, files) in self.order(loader, "checkpoint", settle).wait().await? {
                if let Some(mark) = checkpoint.marks.get_mut(keyspace.name()) {
                    mark.files = files;
                }
            }
        }
        let id = self.id;
        self.shared
            .ask("checkpoint", move |writer| {
                writer.checkpoint(id, checkpoint)
            })
            .await
    }

    /// Has `order` run on the loader's thread.
    fn order<T: Send + 'static>(
        &self,
        loader: &Loader,
        operation: &'static str,
        order: impl FnOnce(&mut Loading<'_>) -> Result<T> + Send + 'static,
    ) -> Waiter<T> {
        let (answer, waiter) = Answer::new(self.shared.core.name, operation);
        loader.send(move |loading| answer.send(loading.run(operation, order)));
        waiter
    }

    /// Writes rows as a batch.
    async fn write(&self, keyspace: Keyspace, entries: Vec<Entry>) -> Result<()> {
        let bytes: usize = entries.iter().map(|it| it.key.len() + it.value.len()).sum();
        // An empty load costs something too.
        let permit = self.shared.core.room(bytes + 1, "load").await?;
        self.shared
            .ask("load", move |writer| {
                let _permit = permit;
                writer.load(keyspace, entries)
            })
            .await
    }

    /// A load has the limits of a batch, so that a loaded entry can be written again.
    fn check_entries(&self, entries: &[Entry]) -> Result<()> {
        let bytes: usize = entries.iter().map(|it| it.key.len() + it.value.len()).sum();
        if entries.len() > WriteBatch::KEYS_MAX || bytes > WriteBatch::BYTES_MAX {
            return Err(self.invalid(
                "load",
                format!(
                    "{} entries of {bytes} bytes, the limits are {} and {}: split them",
                    entries.len(),
                    WriteBatch::KEYS_MAX,
                    WriteBatch::BYTES_MAX
                ),
            ));
        }
        self.check_keys(entries.iter().map(|it| it.key.as_ref()))
    }

    fn check_keys<'a>(&self, mut keys: impl Iterator<Item = &'a [u8]>) -> Result<()> {
        match keys.find(|it| it.len() > WriteBatch::KEY_BYTES_MAX) {
            None => Ok(()),
            Some(key) => {
                let (length, max) = (key.len(), WriteBatch::KEY_BYTES_MAX);
                let detail = format!("a key has {length} bytes, the limit is {max}");
                Err(self.invalid("load", detail))
            }
        }
    }

    /// As many rows as there are, each of which a batch could carry.
    fn check_rows(&self, keyspace: Keyspace, rows: &Rows) -> Result<()> {
        if !self.keyspaces.contains(&keyspace) {
            return Err(self.invalid("load", format!("keyspace {keyspace} is not staged")));
        }
        let mut sizes = rows.iter().map(|(key, value)| key.len() + value.len());
        if let Some(bytes) = sizes.find(|it| *it > WriteBatch::BYTES_MAX) {
            let max = WriteBatch::BYTES_MAX;
            let detail = format!("a row has {bytes} bytes, the limit is {max}");
            return Err(self.invalid("load", detail));
        }
        self.check_keys(rows.iter().map(|(key, _)| key))
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
        let keep = self.resumable.as_ref().is_some_and(|it| it.keep);
        // Finds nothing if it was published or aborted.
        self.shared.send(Job::Task(Box::new(move |writer| {
            // A failure has poisoned the store; the next open sweeps what is left.
            if let Err(error) = writer.end_staging(id, keep) {
                tracing::warn!(%error, "a staging could not be dropped");
            }
        })));
    }
}

#[async_trait]
impl<E: Engine> Staging for EngineStaging<E> {
    async fn load(&mut self, keyspace: Keyspace, entries: Vec<Entry>) -> Result<()> {
        self.check_entries(&entries)?;
        self.check_order(keyspace, entries.iter().map(|it| it.key.as_ref()))?;
        self.begin_step("load")?;
        let last = entries.last().map(|it| it.key.clone());
        let loaded = match &self.loader {
            Some(_) => self.hand_over(keyspace, entries.into(), 0).await,
            None => self.write(keyspace, entries).await,
        };
        self.end_step();
        loaded?;
        self.set_last(keyspace, last);
        Ok(())
    }

    async fn load_rows(&mut self, keyspace: Keyspace, rows: Rows) -> Result<()> {
        if self.loader.is_none() {
            for entries in rows.batches() {
                self.load(keyspace, entries).await?;
            }
            return Ok(());
        }
        self.check_rows(keyspace, &rows)?;
        self.check_order(keyspace, rows.iter().map(|(key, _)| key))?;
        self.begin_step("load")?;
        // A copy, which keeps no rows in memory.
        let last = rows.last().map(|(key, _)| Bytes::copy_from_slice(key));
        let loaded = self.hand_over(keyspace, rows, 1).await;
        self.end_step();
        loaded?;
        self.set_last(keyspace, last);
        Ok(())
    }

    async fn checkpoint(&mut self, point: Bytes) -> Result<()> {
        let Some(resumable) = &self.resumable else {
            return Err(self
                .shared
                .core
                .error(ErrorKind::Unsupported, "checkpoint")
                .with_detail("open the load with resume_replace"));
        };
        if point.len() > Resumed::POINT_BYTES_MAX {
            let (length, max) = (point.len(), Resumed::POINT_BYTES_MAX);
            let detail = format!("the point has {length} bytes, the limit is {max}");
            return Err(self.invalid("checkpoint", detail));
        }
        let marks = resumable.marks.iter();
        let checkpoint = Checkpoint {
            name: resumable.name.clone(),
            point,
            marks: marks
                .map(|(keyspace, mark)| (keyspace.name().to_owned(), mark.clone()))
                .collect(),
        };
        self.begin_step("checkpoint")?;
        let recorded = match self.settle(0).await {
            Ok(()) => self.record(checkpoint).await,
            Err(error) => Err(error),
        };
        self.end_step();
        recorded
    }

    fn forget_checkpoint(&mut self) {
        if let Some(resumable) = &mut self.resumable {
            resumable.keep = false;
        }
    }

    async fn publish(mut self: Box<Self>) -> Result<()> {
        self.begin_step("publish")?;
        self.settle(0).await?;
        let Some(loader) = &self.loader else {
            return self.shared.ask("publish", Writer::publish_staging).await;
        };
        let finish = |loading: &mut Loading<'_>| loading.finish_all();
        let plain = self.order(loader, "publish", finish).wait().await?;
        self.shared
            .ask("publish", move |writer| {
                writer.load_plain(plain)?;
                writer.publish_staging()
            })
            .await
    }

    async fn abort(self: Box<Self>) -> Result<()> {
        let id = self.id;
        self.shared
            .ask("abort", move |writer| writer.end_staging(id, false))
            .await
    }
}
