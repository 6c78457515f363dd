//! What a dumper did so far, and how its sessions go on.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use tokio::time::Instant;

use super::Dumper;
use crate::{ErrorKind, machine::sender::Far};

/// What a dumper did since it was made, and what goes on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DumpStats {
    /// Sessions that were begun.
    pub begun: u64,
    /// Those that run.
    pub running: u64,
    /// How the others ended, by [`Served::name`](super::Served::name), and channels that never were
    /// one: `refused` and `nothing`.
    pub ended: BTreeMap<&'static str, u64>,
    /// Rows that were read to be sent.
    pub rows: u64,
    /// Bytes of rows that the rate limit has let through.
    pub bytes: u64,
    /// How long the session that stands still the longest has read nothing, sent nothing and
    /// been acknowledged nothing.
    pub still: Option<Duration>,
}

/// The counts as they go.
#[derive(Debug, Default)]
pub(super) struct Counts {
    begun: AtomicU64,
    ended: Mutex<BTreeMap<&'static str, u64>>,
    rows: AtomicU64,
    bytes: AtomicU64,
}

/// How far a session has come, as it tells.
#[derive(Clone, Debug)]
pub(crate) struct Watched(Arc<Watch>);

#[derive(Debug)]
struct Watch {
    counts: Arc<Counts>,
    state: Mutex<(Far, Instant)>,
}

impl Counts {
    pub(super) fn begun(&self) {
        // Relaxed, here and below: nothing else is read on the strength of it.
        self.begun.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts the end of a channel when it is dropped, whichever way that happens.
    pub(super) fn ending(&self) -> Ending<'_> {
        let (counts, how) = (self, ErrorKind::TaskLost.name());
        Ending { counts, how }
    }
}

/// The end of a channel that goes on.
pub(super) struct Ending<'a> {
    counts: &'a Counts,
    /// How it ends, by [`Served::name`](super::Served::name).
    pub(super) how: &'static str,
}

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        *self.counts.ended.lock().entry(self.how).or_default() += 1;
    }
}

impl Watched {
    pub(super) fn new(counts: &Arc<Counts>) -> Self {
        let counts = Arc::clone(counts);
        let state = Mutex::new((Far::default(), Instant::now()));
        Self(Arc::new(Watch { counts, state }))
    }

    /// Takes over how far a session is now.
    pub(crate) fn is_at(&self, far: Far) {
        let mut state = self.0.state.lock();
        let (before, _) = *state;
        if far == before {
            return;
        }
        let counts = &self.0.counts;
        counts
            .rows
            .fetch_add(far.rows - before.rows, Ordering::Relaxed);
        counts
            .bytes
            .fetch_add(far.bytes - before.bytes, Ordering::Relaxed);
        *state = (far, Instant::now());
    }

    fn still(&self) -> Duration {
        let (_, at) = *self.0.state.lock();
        at.elapsed()
    }
}

impl Dumper {
    /// What it did so far, and what goes on.
    #[must_use]
    pub fn stats(&self) -> DumpStats {
        let counts = &self.0.counts;
        let state = self.0.state.lock();
        DumpStats {
            begun: counts.begun.load(Ordering::Relaxed),
            running: u64::try_from(state.running.len()).unwrap_or(u64::MAX),
            ended: counts.ended.lock().clone(),
            rows: counts.rows.load(Ordering::Relaxed),
            bytes: counts.bytes.load(Ordering::Relaxed),
            still: state.running.values().map(|it| it.watched.still()).max(),
        }
    }
}
