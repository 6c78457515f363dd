//! A time limit above every call of a store, and an answer where it panics.

use std::{
    any::Any,
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
    Capabilities, Durability, Entry, Error, ErrorKind, Keyspace, Result, Scan, Snapshot, Staging,
    Store, WriteBatch,
};

/// A store whose calls are answered within a time limit, whatever the engine does.
///
/// The limit answers the waiter; it is not an outcome: a write that ran into it is in
/// doubt, and from then on the store counts as poisoned, so that whoever holds it opens
/// it anew and reads what became of the write. A panic of the engine is the same: what
/// waited on the call must not end with it.
#[derive(Debug)]
pub struct TimeLimited {
    inner: Arc<dyn Store>,
    limit: Duration,
    lost: AtomicBool,
}

impl TimeLimited {
    /// Answers every call of `inner` within `limit`.
    #[must_use]
    pub fn new(inner: Arc<dyn Store>, limit: Duration) -> Self {
        Self {
            inner,
            limit,
            lost: AtomicBool::new(false),
        }
    }

    async fn within<T>(
        &self,
        operation: &'static str,
        call: impl Future<Output = Result<T>> + Send,
    ) -> Result<T> {
        // Only refuses sooner what the engine would leave hanging, so no ordering is needed.
        if self.lost.load(Ordering::Relaxed) {
            return Err(Error::new(ErrorKind::Poisoned, self.name(), operation)
                .with_detail("an earlier call was never answered"));
        }
        let why = match tokio::time::timeout(self.limit, panic_caught(call)).await {
            Ok(Ok(answer)) => return answer,
            Ok(Err(_)) => "it panicked".into(),
            Err(_) => format!("no answer within {:?}", self.limit),
        };
        self.lost.store(true, Ordering::Relaxed);
        Err(Error::new(ErrorKind::InDoubt, self.name(), operation).with_detail(why))
    }
}

/// The outcome of `call`, or its panic, of which the panic hook has told already. What the
/// call left half done is behind the poison that follows.
async fn panic_caught<T>(call: impl Future<Output = T> + Send) -> Result<T, Box<dyn Any + Send>> {
    let mut call = pin!(call);
    poll_fn(
        |context| match catch_unwind(AssertUnwindSafe(|| call.as_mut().poll(context))) {
            Ok(poll) => poll.map(Ok),
            Err(panic) => Poll::Ready(Err(panic)),
        },
    )
    .await
}

#[async_trait]
impl Store for TimeLimited {
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

    async fn close(&self) -> Result<()> {
        // Also of a store that is late: what it holds should be let go of.
        let limited = tokio::time::timeout(self.limit, self.inner.close()).await;
        limited.unwrap_or_else(|_| {
            Err(Error::new(ErrorKind::InDoubt, self.name(), "close")
                .with_detail(format!("no answer within {:?}", self.limit)))
        })
    }
}
