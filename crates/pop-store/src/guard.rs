//! A guard above every call of a store: it ends, whatever the engine does.

use std::{
    future::poll_fn,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::Poll,
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;

use crate::{
    Capabilities, Durability, Entry, Error, ErrorKind, Keyspace, Result, Resumed, Scan, Snapshot,
    Staging, Store, WriteBatch,
};

/// A store whose calls are all answered within a time limit, also where the engine hangs
/// or panics.
///
/// Neither is an outcome: a write that hung or panicked is in doubt, and from then on the
/// store counts as poisoned, so that whoever holds it opens it anew and reads what became
/// of the write.
#[derive(Debug)]
pub struct Guarded {
    inner: Arc<dyn Store>,
    limit: Duration,
    failed: AtomicBool,
}

impl Guarded {
    /// Answers every call of `inner` within `limit`.
    #[must_use]
    pub fn new(inner: Arc<dyn Store>, limit: Duration) -> Self {
        Self {
            inner,
            limit,
            failed: AtomicBool::new(false),
        }
    }

    async fn within<T>(
        &self,
        operation: &'static str,
        call: impl Future<Output = Result<T>> + Send,
    ) -> Result<T> {
        // Only refuses sooner what the engine may leave hanging, so no ordering is needed.
        if self.failed.load(Ordering::Relaxed) {
            return Err(Error::new(ErrorKind::Poisoned, self.name(), operation)
                .with_detail("an earlier call hung or panicked"));
        }
        let answer = self.ended(operation, call).await;
        if let Err(error) = &answer
            && error.kind() == ErrorKind::InDoubt
        {
            self.failed.store(true, Ordering::Relaxed);
        }
        answer
    }

    /// The answer of a call, or a doubt where it gives none.
    async fn ended<T>(
        &self,
        operation: &'static str,
        call: impl Future<Output = Result<T>> + Send,
    ) -> Result<T> {
        let doubt = |detail: String| {
            Err(Error::new(ErrorKind::InDoubt, self.name(), operation).with_detail(detail))
        };
        let mut call = pin!(call);
        let caught = poll_fn(|context| {
            let poll = catch_unwind(AssertUnwindSafe(|| call.as_mut().poll(context)));
            poll.map_or(Poll::Ready(None), |poll| poll.map(Some))
        });
        match tokio::time::timeout(self.limit, caught).await {
            Ok(Some(answer)) => answer,
            Ok(None) => doubt("the store panicked".into()),
            Err(_) => doubt(format!("no answer within {:?}", self.limit)),
        }
    }
}

#[async_trait]
impl Store for Guarded {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn keyspaces(&self) -> &[Keyspace] {
        self.inner.keyspaces()
    }

    async fn write(&self, batch: WriteBatch, durability: Durability) -> Result<()> {
        self.within("write", self.inner.write(batch, durability))
            .await
    }

    async fn get(&self, keyspace: Keyspace, key: &[u8]) -> Result<Option<Bytes>> {
        self.within("get", self.inner.get(keyspace, key)).await
    }

    async fn multi_get(&self, keyspace: Keyspace, keys: &[Bytes]) -> Result<Vec<Option<Bytes>>> {
        self.within("multi_get", self.inner.multi_get(keyspace, keys))
            .await
    }

    async fn scan(&self, keyspace: Keyspace, scan: Scan) -> Result<Vec<Entry>> {
        self.within("scan", self.inner.scan(keyspace, scan)).await
    }

    async fn snapshot(&self) -> Result<Arc<dyn Snapshot>> {
        self.within("snapshot", self.inner.snapshot()).await
    }

    async fn begin_replace(&self, keyspaces: &[Keyspace]) -> Result<Box<dyn Staging>> {
        self.within("begin_replace", self.inner.begin_replace(keyspaces))
            .await
    }

    async fn resume_replace(&self, keyspaces: &[Keyspace], name: Bytes) -> Result<Resumed> {
        let resumed = self.inner.resume_replace(keyspaces, name);
        self.within("resume_replace", resumed).await
    }

    async fn resumable(&self) -> Result<Option<Bytes>> {
        self.within("resumable", self.inner.resumable()).await
    }

    async fn close(&self) -> Result<()> {
        // Also of a store that failed: what it holds should be let go of.
        self.ended("close", self.inner.close()).await
    }
}
