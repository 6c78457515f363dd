//! Snapshots and stagings of a store that misbehaves: they misbehave with it.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;

use super::{script::Call, store::Held};
use crate::{Entry, Estimate, Keyspace, Result, Rows, Scan, Snapshot, Staging, Store};

#[derive(Debug)]
pub(super) struct FaultSnapshot<S> {
    pub(super) inner: Arc<dyn Snapshot>,
    pub(super) shared: Held<S>,
}

#[async_trait]
impl<S: Store> Snapshot for FaultSnapshot<S> {
    async fn get(&self, keyspace: Keyspace, key: &[u8]) -> Result<Option<Bytes>> {
        let act = |_| self.inner.get(keyspace, key);
        self.shared.call(Call::Get, "snapshot get", act).await
    }

    async fn scan(&self, keyspace: Keyspace, scan: Scan) -> Result<Vec<Entry>> {
        let act = |_| self.inner.scan(keyspace, scan);
        self.shared.call(Call::Scan, "snapshot scan", act).await
    }

    async fn estimate(&self, keyspace: Keyspace) -> Result<Option<Estimate>> {
        // Nobody depends on it.
        self.inner.estimate(keyspace).await
    }

    async fn rows(&self, keyspace: Keyspace, scan: Scan) -> Result<Rows> {
        let act = |_| self.inner.rows(keyspace, scan);
        self.shared.call(Call::Scan, "snapshot scan", act).await
    }
}

#[derive(Debug)]
pub(super) struct FaultStaging<S> {
    pub(super) inner: Box<dyn Staging>,
    pub(super) shared: Held<S>,
}

#[async_trait]
impl<S: Store> Staging for FaultStaging<S> {
    async fn load(&mut self, keyspace: Keyspace, entries: Vec<Entry>) -> Result<()> {
        let Self { inner, shared } = self;
        let act = |_| inner.load(keyspace, entries);
        shared.call(Call::Load, "load", act).await
    }

    async fn load_rows(&mut self, keyspace: Keyspace, rows: Rows) -> Result<()> {
        let Self { inner, shared } = self;
        let act = |_| inner.load_rows(keyspace, rows);
        shared.call(Call::Load, "load", act).await
    }

    async fn checkpoint(&mut self, point: Bytes) -> Result<()> {
        let Self { inner, shared } = self;
        let act = |_| inner.checkpoint(point);
        shared.call(Call::Checkpoint, "checkpoint", act).await
    }

    fn forget_checkpoint(&mut self) {
        self.inner.forget_checkpoint();
    }

    async fn publish(self: Box<Self>) -> Result<()> {
        // If it is not to happen, the staging below is dropped and with it thrown away.
        let Self { inner, shared } = *self;
        let act = |_| inner.publish();
        shared.call(Call::Publish, "publish", act).await
    }

    async fn abort(self: Box<Self>) -> Result<()> {
        self.inner.abort().await
    }
}
