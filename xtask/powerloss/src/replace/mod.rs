//! The workload that replaces the content of some keyspaces, while a lane writes others.
//!
//! Contents are numbered, and what a content has follows from its number, so that what a
//! power cut left is the whole of one of them or a violation. Among them are contents that
//! are published, aborted, let go of, gone on with after a reopen, and swept by one.
//!
//! Mutants: syncs of RocksDB's and fjall's logs or of sled's file count for nothing, so that
//! the switch is not durable when it is answered; those of bulk files count for nothing.

mod judge;

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use anyhow::{Result, ensure};
use bytes::Bytes;
pub(crate) use judge::judge;
use pop_broker::stores::Backend;
use pop_store::{
    Durability, Entry, Keyspace, Staging, Store, WriteBatch,
    table::{DUE, LEASE, LOG, META, PROGRESS, RETRY, TIMER},
};

use crate::{
    marks::{Mark, Marks, ReplaceMark},
    raw,
    stores::Opener,
};

/// What is replaced.
pub(crate) const STAGED: [Keyspace; 3] = [DUE, PROGRESS, TIMER];
// With those of the lane.
const KEYSPACES: [Keyspace; 7] = [DUE, PROGRESS, TIMER, META, LEASE, LOG, RETRY];
/// In how many parts a content is loaded; after each of them it may be checkpointed.
const PARTS: u64 = 4;
// The lane writes while contents are loaded, and no faster than they are.
const PAUSE: Duration = Duration::from_millis(2);

pub(crate) fn opener(backend: Backend, folder: &Path) -> Opener {
    Opener::with_keyspaces(backend, folder, &KEYSPACES)
}

/// What a content is called when it may be gone on with.
fn name(version: u64) -> Bytes {
    format!("content-{version}").into()
}

/// What stands in the point after so many parts.
fn point(parts: u64) -> Bytes {
    parts.to_string().into()
}

/// After how many parts a point was made; none without one.
fn parts(point: Option<&[u8]>) -> Result<u64> {
    match point {
        None => Ok(0),
        Some(point) => Ok(std::str::from_utf8(point)?.parse()?),
    }
}

/// The rows of a content in one keyspace. Keys are those of every content, so that a mixture
/// shows; some have more rows than others, and one in three keyspaces is empty.
fn rows(version: u64, keyspace: Keyspace) -> Vec<Entry> {
    let place = STAGED.iter().position(|it| *it == keyspace).unwrap_or(0) as u64;
    let (count, bytes) = match (version, place) {
        (0, _) => (0, 0),
        // Above what RocksDB's adapter holds back, so that it makes a file.
        (LARGE, 0) => (36, 64 << 10),
        (_, 0) => (20 + version, 1_500),
        (_, 1) => (5 + version % 3, 4_000),
        _ if version.is_multiple_of(3) => (0, 0),
        _ => (9, 300),
    };
    let row = |number: u64| Entry {
        key: format!("{number:04}").into(),
        value: value([version, place, number], bytes),
    };
    (0..count).map(row).collect()
}

/// The number of the content, and bytes that don't compress.
fn value(of: [u64; 3], length: usize) -> Bytes {
    let mut state = of.iter().fold(1, |state: u64, word| {
        state
            .wrapping_mul(0x9E37_79B9_7F4A_7C15)
            .wrapping_add(*word)
    });
    let mut value = of[0].to_be_bytes().to_vec();
    while value.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        value.extend_from_slice(&state.to_be_bytes());
    }
    value.into()
}

/// The rows of one part, which ascend from part to part.
fn part(version: u64, keyspace: Keyspace, part: u64) -> Vec<Entry> {
    let rows = rows(version, keyspace);
    let count = rows.len() as u64;
    let numbered = (0..).zip(rows);
    let of_part = numbered.filter(|(number, _)| number * PARTS / count == part);
    of_part.map(|(_, row)| row).collect()
}

/// Loads the parts `from..to`.
async fn load(staging: &mut dyn Staging, version: u64, from: u64, to: u64) -> Result<()> {
    for number in from..to {
        for keyspace in STAGED {
            let rows = part(version, keyspace, number);
            staging.load(keyspace, rows).await?;
        }
    }
    Ok(())
}

/// Replaces contents, with a reopen in between and another one that sweeps.
///
/// # Errors
///
/// The store's: nothing fails on a healthy disk.
pub(crate) async fn work(opener: &Opener, marks: &Arc<Marks>) -> Result<()> {
    let mut last = 0;
    for life in [Life::First, Life::Second, Life::Last] {
        let keeps = life != Life::Last;
        if !keeps {
            let version = LEFT;
            marks.add(&Mark::Replace(ReplaceMark::Ending { version }))?;
        }
        let store = opener.clone().keeping_staging(keeps).store().await?;
        let stop = Arc::new(AtomicBool::new(false));
        let lane = tokio::spawn({
            let (store, marks, stop) = (Arc::clone(&store), Arc::clone(marks), Arc::clone(&stop));
            async move { raw::write_lane(&*store, &marks, 0, last, &stop, PAUSE).await }
        });
        life.of(&*store, marks).await?;
        stop.store(true, Ordering::Relaxed);
        last = lane.await??;
        store.close().await?;
    }
    Ok(())
}

// The contents, in the order of their lives.
const OLD: u64 = 1;
/// One whose rows go to files on RocksDB.
const LARGE: u64 = 2;
const ABORTED: u64 = 3;
const CHECKPOINTED: u64 = 4;
const RESUMED: u64 = 5;
const SUPERSEDED: u64 = 6;
const SUPERSEDING: u64 = 7;
pub(crate) const LEFT: u64 = 8;
const LATEST: u64 = 9;

/// What is done between an open and a close.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    First,
    Second,
    Last,
}

impl Life {
    async fn of(self, store: &dyn Store, marks: &Marks) -> Result<()> {
        let worker = Worker { store, marks };
        match self {
            Self::First => {
                worker.write(OLD).await?;
                worker.replace(LARGE).await?;
                worker.abort(ABORTED).await?;
                let (staging, _) = worker.begin(CHECKPOINTED, 0, PARTS).await?;
                worker.publish(CHECKPOINTED, staging).await?;
                // One part more than is kept.
                let (mut staging, _) = worker.begin(RESUMED, 0, 2).await?;
                load(&mut *staging, RESUMED, 2, 3).await
            }
            Self::Second => {
                let (staging, from) = worker.begin(RESUMED, 2, PARTS).await?;
                ensure!(from == 2, "it went on after {from} parts and not after 2");
                worker.publish(RESUMED, staging).await?;
                drop(worker.begin(SUPERSEDED, 0, 2).await?);
                worker.say(ReplaceMark::Ending {
                    version: SUPERSEDED,
                })?;
                worker.replace(SUPERSEDING).await?;
                drop(worker.begin(LEFT, 0, 1).await?);
                Ok(())
            }
            Self::Last => worker.replace(LATEST).await,
        }
    }
}

struct Worker<'a> {
    store: &'a dyn Store,
    marks: &'a Marks,
}

impl Worker<'_> {
    fn say(&self, mark: ReplaceMark) -> Result<()> {
        self.marks.add(&Mark::Replace(mark))
    }

    /// A content that is written as any other row is.
    async fn write(&self, version: u64) -> Result<()> {
        let mut batch = WriteBatch::new();
        for keyspace in STAGED {
            for row in rows(version, keyspace) {
                batch.put(keyspace, row.key, row.value);
            }
        }
        self.say(ReplaceMark::Publishing { version })?;
        self.store.write(batch, Durability::Synced).await?;
        self.say(ReplaceMark::Published { version })
    }

    async fn replace(&self, version: u64) -> Result<()> {
        let mut staging = self.store.begin_replace(&STAGED).await?;
        load(&mut *staging, version, 0, PARTS).await?;
        self.publish(version, staging).await
    }

    async fn publish(&self, version: u64, staging: Box<dyn Staging>) -> Result<()> {
        self.say(ReplaceMark::Publishing { version })?;
        staging.publish().await?;
        self.say(ReplaceMark::Published { version })
    }

    async fn abort(&self, version: u64) -> Result<()> {
        let mut staging = self.store.begin_replace(&STAGED).await?;
        load(&mut *staging, version, 0, PARTS).await?;
        Ok(staging.abort().await?)
    }

    /// Begins a content, or goes on with it; loads it up to part `to` with a checkpoint after
    /// each. Says from which part on.
    async fn begin(&self, version: u64, from: u64, to: u64) -> Result<(Box<dyn Staging>, u64)> {
        let resumed = self.store.resume_replace(&STAGED, name(version)).await?;
        let (mut staging, found) = (resumed.staging, parts(resumed.point.as_deref())?);
        for part in from..to {
            load(&mut *staging, version, part, part + 1).await?;
            let parts = part + 1;
            self.say(ReplaceMark::Keeping { version, parts })?;
            staging.checkpoint(point(parts)).await?;
            self.say(ReplaceMark::Kept { version, parts })?;
        }
        Ok((staging, found))
    }
}
