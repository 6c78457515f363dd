//! Snapshots and stagings of a store with a mistake.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, atomic::Ordering::SeqCst},
};

use async_trait::async_trait;
use bytes::Bytes;

use super::{Mistake, Mistake as M, pause, store::WrongStore};
use crate::{
    Durability, Entry, Estimate, Keyspace, MemStore, Result, Scan, Snapshot, Staging, Store,
    WriteBatch, testkit::KEYSPACES,
};

#[derive(Debug)]
pub(super) struct LiveSnapshot(pub(super) MemStore);

#[async_trait]
impl Snapshot for LiveSnapshot {
    async fn get(&self, keyspace: Keyspace, key: &[u8]) -> Result<Option<Bytes>> {
        self.0.get(keyspace, key).await
    }

    async fn scan(&self, keyspace: Keyspace, scan: Scan) -> Result<Vec<Entry>> {
        self.0.scan(keyspace, scan).await
    }
}

#[derive(Debug)]
pub(super) struct PatchedSnapshot(pub(super) BTreeMap<Keyspace, Arc<dyn Snapshot>>);

#[async_trait]
impl Snapshot for PatchedSnapshot {
    async fn get(&self, keyspace: Keyspace, key: &[u8]) -> Result<Option<Bytes>> {
        self.0[&keyspace].get(keyspace, key).await
    }

    async fn scan(&self, keyspace: Keyspace, scan: Scan) -> Result<Vec<Entry>> {
        self.0[&keyspace].scan(keyspace, scan).await
    }
}

/// Looks first at what changed since its moment, and at the present after that.
#[derive(Debug)]
pub(super) struct LateSnapshot {
    pub(super) store: WrongStore,
    pub(super) then: Arc<dyn Snapshot>,
}

#[async_trait]
impl Snapshot for LateSnapshot {
    async fn get(&self, keyspace: Keyspace, key: &[u8]) -> Result<Option<Bytes>> {
        self.then.get(keyspace, key).await
    }

    async fn scan(&self, keyspace: Keyspace, scan: Scan) -> Result<Vec<Entry>> {
        let page = self.then.scan(keyspace, scan.clone()).await?;
        let (Some(first), Some(last)) = (page.first(), page.last()) else {
            return Ok(page);
        };
        let (low, high) = match first.key < last.key {
            true => (first, last),
            false => (last, first),
        };
        let stretch = Scan::range(low.key.clone(), [&high.key[..], &[0]].concat());
        let before = self.store.whole(keyspace, &stretch).await?;
        pause().await;
        let after = self.store.whole(keyspace, &stretch).await?;
        Ok(page
            .into_iter()
            .filter_map(|then| match before.contains(&then) {
                true => after.iter().find(|it| it.key == then.key).cloned(),
                false => Some(then),
            })
            .collect())
    }
}

/// Shows the present once any snapshot of its store was dropped.
#[derive(Debug)]
pub(super) struct FragileSnapshot {
    pub(super) store: WrongStore,
    pub(super) then: Arc<dyn Snapshot>,
}

impl FragileSnapshot {
    fn is_over(&self) -> bool {
        self.store.snapshots_ended.load(SeqCst)
    }
}

impl Drop for FragileSnapshot {
    fn drop(&mut self) {
        self.store.snapshots_ended.store(true, SeqCst);
    }
}

#[async_trait]
impl Snapshot for FragileSnapshot {
    async fn get(&self, keyspace: Keyspace, key: &[u8]) -> Result<Option<Bytes>> {
        match self.is_over() {
            true => self.store.get(keyspace, key).await,
            false => self.then.get(keyspace, key).await,
        }
    }

    async fn scan(&self, keyspace: Keyspace, scan: Scan) -> Result<Vec<Entry>> {
        match self.is_over() {
            true => self.store.scan(keyspace, scan).await,
            false => self.then.scan(keyspace, scan).await,
        }
    }
}

/// Takes any page but the first for the one behind the last that it read.
#[derive(Debug)]
pub(super) struct HastySnapshot {
    pub(super) then: Arc<dyn Snapshot>,
    pub(super) behind: parking_lot::Mutex<Bytes>,
}

#[async_trait]
impl Snapshot for HastySnapshot {
    async fn get(&self, keyspace: Keyspace, key: &[u8]) -> Result<Option<Bytes>> {
        self.then.get(keyspace, key).await
    }

    async fn scan(&self, keyspace: Keyspace, mut scan: Scan) -> Result<Vec<Entry>> {
        if !scan.start.is_empty() {
            scan.start = self.behind.lock().clone();
        }
        let page = self.then.scan(keyspace, scan).await?;
        if let Some(last) = page.last() {
            *self.behind.lock() = [&last.key[..], &[0]].concat().into();
        }
        Ok(page)
    }
}

/// Says of each keyspace what all of them have.
#[derive(Debug)]
pub(super) struct VagueSnapshot(pub(super) Arc<dyn Snapshot>);

#[async_trait]
impl Snapshot for VagueSnapshot {
    async fn get(&self, keyspace: Keyspace, key: &[u8]) -> Result<Option<Bytes>> {
        self.0.get(keyspace, key).await
    }

    async fn scan(&self, keyspace: Keyspace, scan: Scan) -> Result<Vec<Entry>> {
        self.0.scan(keyspace, scan).await
    }

    async fn estimate(&self, _: Keyspace) -> Result<Option<Estimate>> {
        let mut all = Some(Estimate::default());
        for keyspace in KEYSPACES {
            let one = self.0.estimate(keyspace).await?;
            all = all.zip(one).map(|(all, one)| all + one);
        }
        Ok(all)
    }
}

/// Keeps its rows itself, so that it can publish them in a wrong way.
#[derive(Debug)]
pub(super) struct WrongStaging {
    pub(super) store: WrongStore,
    pub(super) keyspaces: Vec<Keyspace>,
    pub(super) rows: Vec<(Keyspace, Entry)>,
}

impl WrongStaging {
    fn batch(&self) -> WriteBatch {
        let mut batch = WriteBatch::new();
        for (keyspace, row) in &self.rows {
            batch.put(*keyspace, row.key.clone(), row.value.clone());
        }
        batch
    }
}

#[async_trait]
impl Staging for WrongStaging {
    async fn load(&mut self, keyspace: Keyspace, entries: Vec<Entry>) -> Result<()> {
        self.rows
            .extend(entries.into_iter().map(|row| (keyspace, row)));
        if self.store.mistake == M::LoadsIntoTheLive {
            let inner = &self.store.inner;
            inner.write(self.batch(), Durability::Buffered).await?;
        }
        Ok(())
    }

    async fn publish(self: Box<Self>) -> Result<()> {
        let inner = &self.store.inner;
        if self.store.mistake == M::PublishesIntoTheOld {
            return inner.write(self.batch(), Durability::Synced).await;
        }
        for keyspace in &self.keyspaces {
            let mut staging = inner.begin_replace(&[*keyspace]).await?;
            let rows = self.rows.iter().filter(|it| it.0 == *keyspace);
            staging
                .load(*keyspace, rows.map(|it| it.1.clone()).collect())
                .await?;
            staging.publish().await?;
            pause().await;
        }
        Ok(())
    }

    async fn abort(mut self: Box<Self>) -> Result<()> {
        if self.store.mistake == M::KeepsAbortedRows {
            *self.store.aborted.lock() = std::mem::take(&mut self.rows);
        }
        Ok(())
    }
}

/// Leaves rows out that do not come as it likes them.
#[derive(Debug)]
pub(super) struct PickyStaging {
    inner: Box<dyn Staging>,
    mistake: Mistake,
    seen: BTreeSet<(Keyspace, Bytes)>,
}

impl PickyStaging {
    pub(super) fn new(inner: Box<dyn Staging>, mistake: Mistake) -> Self {
        Self {
            inner,
            mistake,
            seen: BTreeSet::new(),
        }
    }

    fn likes(&self, keyspace: Keyspace, key: &Bytes) -> bool {
        let place = (keyspace, key.clone());
        match self.mistake {
            M::KeepsTheFirstLoadOfAKey => !self.seen.contains(&place),
            _ => !self.seen.range(place..).any(|(of, _)| *of == keyspace),
        }
    }
}

#[async_trait]
impl Staging for PickyStaging {
    async fn load(&mut self, keyspace: Keyspace, mut entries: Vec<Entry>) -> Result<()> {
        entries.retain(|it| {
            let liked = self.likes(keyspace, &it.key);
            self.seen.insert((keyspace, it.key.clone()));
            liked
        });
        self.inner.load(keyspace, entries).await
    }

    async fn publish(self: Box<Self>) -> Result<()> {
        self.inner.publish().await
    }

    async fn abort(self: Box<Self>) -> Result<()> {
        self.inner.abort().await
    }
}

/// Goes on with a load in a wrong way.
#[derive(Debug)]
pub(super) struct ResumedStaging {
    pub(super) inner: Box<dyn Staging>,
    pub(super) mistake: Mistake,
    pub(super) point: Option<Bytes>,
}

#[async_trait]
impl Staging for ResumedStaging {
    async fn load(&mut self, keyspace: Keyspace, entries: Vec<Entry>) -> Result<()> {
        let loaded = self.inner.load(keyspace, entries).await;
        if self.mistake == M::ResumesInAnyOrder {
            return Ok(());
        }
        if let Some(point) = &self.point
            && self.mistake == M::KeepsRowsAfterTheCheckpoint
        {
            self.inner.checkpoint(point.clone()).await?;
        }
        loaded
    }

    async fn checkpoint(&mut self, point: Bytes) -> Result<()> {
        self.point = Some(point.clone());
        self.inner.checkpoint(point).await
    }

    fn forget_checkpoint(&mut self) {
        if self.mistake != M::KeepsWhatWasForgotten {
            self.inner.forget_checkpoint();
        }
    }

    async fn publish(self: Box<Self>) -> Result<()> {
        self.inner.publish().await
    }

    async fn abort(self: Box<Self>) -> Result<()> {
        self.inner.abort().await
    }
}
