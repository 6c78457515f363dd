//! Staged replace as its caller holds it: rows go to the loader's thread where the engine
//! has a bulk load, and else to the writer's.

use std::{fmt, sync::Arc};

use async_trait::async_trait;

use super::{
    Engine,
    answer::Answer,
    loader::{Loader, Loading},
    store::Shared,
    writer::{Job, Writer},
};
use crate::{Entry, ErrorKind, Keyspace, Result, Staging, WriteBatch};

/// A generation being loaded. Dropped unpublished, it is thrown away.
pub(super) struct EngineStaging<E: Engine> {
    shared: Arc<Shared<E>>,
    id: u64,
    loader: Option<Arc<Loader>>,
}

impl<E: Engine> EngineStaging<E> {
    pub(super) fn new(shared: Arc<Shared<E>>) -> Self {
        let id = shared.core.next_staging_id();
        Self {
            shared,
            id,
            loader: None,
        }
    }

    pub(super) async fn begin(&mut self, keyspaces: Vec<Keyspace>) -> Result<()> {
        let id = self.id;
        let begin = move |writer: &mut Writer<E>| writer.begin_staging(id, &keyspaces);
        self.loader = self.shared.ask("begin_replace", begin).await?;
        Ok(())
    }

    /// Runs `order` on the loader's thread.
    async fn order<T: Send + 'static>(
        &self,
        loader: &Loader,
        operation: &'static str,
        order: impl FnOnce(&mut Loading<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (answer, waiter) = Answer::new(self.shared.core.name, operation);
        loader.send(move |loading| answer.send(loading.run(operation, order)));
        waiter.wait().await
    }

    /// Writes rows as a batch.
    async fn write(&self, keyspace: Keyspace, entries: Vec<Entry>, bytes: usize) -> Result<()> {
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
        let Some(loader) = &self.loader else {
            return self.write(keyspace, entries, bytes).await;
        };
        let load = move |loading: &mut Loading<'_>| loading.load(keyspace, entries);
        let plain = self.order(loader, "load", load).await?;
        if plain.is_empty() {
            return Ok(());
        }
        self.write(keyspace, plain, bytes).await
    }

    async fn publish(self: Box<Self>) -> Result<()> {
        let Some(loader) = &self.loader else {
            return self.shared.ask("publish", Writer::publish_staging).await;
        };
        let finish = |loading: &mut Loading<'_>| loading.finish_all();
        let plain = self.order(loader, "publish", finish).await?;
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
            .ask("abort", move |writer| writer.abort_staging(id))
            .await
    }
}
