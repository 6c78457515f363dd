//! The store in memory, with one mistake.

use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::AtomicBool},
};

use async_trait::async_trait;
use bytes::Bytes;

use super::{
    Mistake, Mistake as M, pause,
    views::{
        FragileSnapshot, HastySnapshot, LateSnapshot, LiveSnapshot, PatchedSnapshot, PickyStaging,
        ResumedStaging, VagueSnapshot, WrongStaging,
    },
};
use crate::{
    Capabilities, Direction, Durability, Entry, Keyspace, MemStore, Result, Resumed, Scan,
    Snapshot, Staging, Store, WriteBatch, batch::Precondition, testkit::KEYSPACES,
};

#[derive(Clone, Debug)]
pub(super) struct WrongStore {
    pub(super) inner: MemStore,
    pub(super) mistake: Mistake,
    lock: Arc<tokio::sync::Mutex<()>>,
    pub(super) aborted: Arc<parking_lot::Mutex<Vec<(Keyspace, Entry)>>>,
    pub(super) snapshots_ended: Arc<AtomicBool>,
}

impl WrongStore {
    pub(super) fn new(mistake: Mistake) -> Self {
        Self {
            inner: MemStore::new(&KEYSPACES),
            mistake,
            lock: Arc::default(),
            aborted: Arc::default(),
            snapshots_ended: Arc::default(),
        }
    }

    /// Writes the parts of a batch as batches of their own, with a pause between.
    async fn write_apart(&self, parts: Vec<WriteBatch>) -> Result<()> {
        for part in parts.into_iter().filter(|it| !it.is_empty()) {
            self.inner.write(part, Durability::Buffered).await?;
            pause().await;
        }
        Ok(())
    }

    /// A batch by keyspace, preconditions first and apart.
    fn by_keyspace(batch: &WriteBatch) -> Vec<WriteBatch> {
        let mut asks = WriteBatch::new();
        asks.preconditions.clone_from(&batch.preconditions);
        let mut parts = vec![asks];
        for keyspace in KEYSPACES {
            let mut part = WriteBatch::new();
            for range in &batch.range_deletes {
                if range.keyspace == keyspace {
                    part.delete_range(keyspace, range.start.clone(), range.end.clone());
                }
            }
            for (_, key) in batch.deletes.iter().filter(|it| it.0 == keyspace) {
                part.delete(keyspace, key.clone());
            }
            for (_, key, value) in batch.puts.iter().filter(|it| it.0 == keyspace) {
                part.put(keyspace, key.clone(), value.clone());
            }
            parts.push(part);
        }
        parts
    }

    /// All entries of a range, as the checks' ranges are small.
    pub(super) async fn whole(&self, keyspace: Keyspace, scan: &Scan) -> Result<Vec<Entry>> {
        let mut scan = scan.clone();
        scan.entries_max = usize::MAX;
        scan.bytes_max = usize::MAX;
        self.inner.scan(keyspace, scan).await
    }
}

#[async_trait]
impl Store for WrongStore {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn capabilities(&self) -> Capabilities {
        match self.mistake {
            M::SaysThatItIsDurable => self.inner.capabilities().with_durable(0),
            _ => self.inner.capabilities(),
        }
    }

    fn keyspaces(&self) -> &[Keyspace] {
        self.inner.keyspaces()
    }

    async fn write(&self, mut batch: WriteBatch, durability: Durability) -> Result<()> {
        match self.mistake {
            M::DropsPreconditions => batch.preconditions.clear(),
            M::ForgetsThatAKeyMustBeAbsent => batch
                .preconditions
                .retain(|it: &Precondition| it.expected.is_some()),
            M::ChecksPreconditionsBeforeItsTurn => {
                let mut asks = WriteBatch::new();
                asks.preconditions = std::mem::take(&mut batch.preconditions);
                return self.write_apart(vec![asks, batch]).await;
            }
            M::WritesBeforePreconditions => {
                let mut parts = Self::by_keyspace(&batch);
                parts.rotate_left(1);
                return self.write_apart(parts).await;
            }
            M::PutsBeforeRangeDeletes => {
                let mut ranges = WriteBatch::new();
                ranges.range_deletes = std::mem::take(&mut batch.range_deletes);
                return self.write_apart(vec![batch, ranges]).await;
            }
            M::DeletesAfterPuts => {
                let mut deletes = WriteBatch::new();
                deletes.deletes = std::mem::take(&mut batch.deletes);
                return self.write_apart(vec![batch, deletes]).await;
            }
            M::LosesAKeyspace => batch.puts.retain(|it| it.0 != KEYSPACES[2]),
            M::WritesKeyspaceByKeyspace => {
                return self.write_apart(Self::by_keyspace(&batch)).await;
            }
            M::SplitsWhatIsTooBig if batch.key_count() > WriteBatch::KEYS_MAX => {
                let mut rest = WriteBatch::new();
                rest.puts = batch.puts.split_off(1);
                return self.write_apart(vec![batch, rest]).await;
            }
            M::AnswersBeforeItIsDone => {
                let store = self.inner.clone();
                tokio::spawn(async move {
                    pause().await;
                    store.write(batch, durability).await
                });
                return Ok(());
            }
            M::HoldsALockAcrossAnAwait => {
                let _guard = self.lock.lock().await;
                pause().await;
                return self.inner.write(batch, durability).await;
            }
            M::EmptyKeyIsMissing => batch.puts.retain(|it| !it.1.is_empty()),
            M::OneTreeForAll => {
                for put in &mut batch.puts {
                    put.0 = KEYSPACES[0];
                }
            }
            _ => {}
        }
        self.inner.write(batch, durability).await
    }

    async fn get(&self, keyspace: Keyspace, key: &[u8]) -> Result<Option<Bytes>> {
        let keyspace = match self.mistake {
            M::UnknownKeyspaceIsEmpty if !KEYSPACES.contains(&keyspace) => return Ok(None),
            M::OneTreeForAll => KEYSPACES[0],
            _ => keyspace,
        };
        let value = self.inner.get(keyspace, key).await?;
        Ok(value.filter(|it| self.mistake != M::EmptyValueIsMissing || !it.is_empty()))
    }

    async fn multi_get(&self, keyspace: Keyspace, keys: &[Bytes]) -> Result<Vec<Option<Bytes>>> {
        let mut keys = keys.to_vec();
        if self.mistake == M::SortsWhatIsAsked {
            keys.sort();
        }
        self.inner.multi_get(keyspace, &keys).await
    }

    async fn scan(&self, keyspace: Keyspace, mut scan: Scan) -> Result<Vec<Entry>> {
        let backward = scan.direction == Direction::Backward;
        match self.mistake {
            M::IncludesTheEnd => {
                scan.end = scan.end.map(|end| [&end[..], &[0]].concat().into());
            }
            M::EndsAtAHighKey => {
                scan.end = scan.end.or_else(|| Some(vec![0xFF; 64].into()));
            }
            M::LimitsTheWrongSide if backward => {
                scan.direction = Direction::Forward;
                let mut entries = self.inner.scan(keyspace, scan).await?;
                entries.reverse();
                return Ok(entries);
            }
            M::IgnoresTheByteLimit => scan.bytes_max = usize::MAX,
            M::HidesWhatIsTooBig => {
                let bytes_max = scan.bytes_max;
                let mut entries = self.inner.scan(keyspace, scan).await?;
                entries.retain(|it| it.key.len() + it.value.len() <= bytes_max);
                return Ok(entries);
            }
            M::ReadsAZeroLimitAsNone if scan.entries_max == 0 => scan.entries_max = usize::MAX,
            M::ScansInSteps => {
                let mut entries = Vec::new();
                for half in 0..2 {
                    let part = self.whole(keyspace, &scan).await?;
                    let middle = part.len() / 2;
                    let range = [0..middle, middle..part.len()];
                    entries.extend_from_slice(&part[range[half].clone()]);
                    pause().await;
                }
                return Ok(entries);
            }
            M::SignedBytes => {
                let mut entries = self.whole(keyspace, &scan).await?;
                let signed = |key: &[u8]| -> Vec<i8> { key.iter().map(|it| *it as i8).collect() };
                entries.sort_by_key(|it| signed(&it.key));
                return Ok(entries);
            }
            _ => {}
        }
        self.inner.scan(keyspace, scan).await
    }

    async fn snapshot(&self) -> Result<Arc<dyn Snapshot>> {
        match self.mistake {
            M::SnapshotIsLive => Ok(Arc::new(LiveSnapshot(self.inner.clone()))),
            M::SnapshotKeyspaceByKeyspace => {
                let mut parts = BTreeMap::new();
                for keyspace in KEYSPACES {
                    parts.insert(keyspace, self.inner.snapshot().await?);
                    pause().await;
                }
                Ok(Arc::new(PatchedSnapshot(parts)))
            }
            M::SnapshotKeptBeforeItsPage => Ok(Arc::new(LateSnapshot {
                store: self.clone(),
                then: self.inner.snapshot().await?,
            })),
            M::SnapshotsEndTogether => Ok(Arc::new(FragileSnapshot {
                store: self.clone(),
                then: self.inner.snapshot().await?,
            })),
            M::SnapshotGoesOn => Ok(Arc::new(HastySnapshot {
                then: self.inner.snapshot().await?,
                behind: parking_lot::Mutex::default(),
            })),
            M::EstimatesTheWholeStore => Ok(Arc::new(VagueSnapshot(self.inner.snapshot().await?))),
            _ => self.inner.snapshot().await,
        }
    }

    async fn begin_replace(&self, keyspaces: &[Keyspace]) -> Result<Box<dyn Staging>> {
        if matches!(
            self.mistake,
            M::LoadsOnlyWhatAscends | M::KeepsTheFirstLoadOfAKey
        ) {
            let inner = self.inner.begin_replace(keyspaces).await?;
            return Ok(Box::new(PickyStaging::new(inner, self.mistake)));
        }
        let patched = matches!(
            self.mistake,
            M::PublishesIntoTheOld
                | M::PublishesKeyspaceByKeyspace
                | M::LoadsIntoTheLive
                | M::OpensASecondStaging
                | M::KeepsAbortedRows
        );
        if !patched {
            return self.inner.begin_replace(keyspaces).await;
        }
        Ok(Box::new(WrongStaging {
            store: self.clone(),
            keyspaces: keyspaces.to_vec(),
            rows: std::mem::take(&mut self.aborted.lock()),
        }))
    }

    async fn resume_replace(&self, keyspaces: &[Keyspace], name: Bytes) -> Result<Resumed> {
        let name = match self.mistake {
            M::ResumesUnderAnyName => Bytes::from_static(b"any"),
            _ => name,
        };
        let Resumed { staging, point } = self.inner.resume_replace(keyspaces, name).await?;
        let staging = Box::new(ResumedStaging {
            inner: staging,
            mistake: self.mistake,
            point: None,
        });
        Ok(Resumed { staging, point })
    }

    async fn resumable(&self) -> Result<Option<Bytes>> {
        match self.mistake {
            M::ForgetsWhatIsResumable => Ok(None),
            _ => self.inner.resumable().await,
        }
    }

    async fn close(&self) -> Result<()> {
        match self.mistake {
            M::GoesOnAfterClose => Ok(()),
            _ => self.inner.close().await,
        }
    }
}
