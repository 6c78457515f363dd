//! What a restorer did so far, and how its sessions go on.

use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use parking_lot::Mutex;
use tokio::time::Instant;

use super::Restorer;
use crate::{Phase, Progress, SessionId, registry::Outcome};

/// What a restorer did since it was made, and what goes on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RestoreStats {
    /// Sessions that were begun.
    pub begun: u64,
    /// Those that run, and those that wait for their turn.
    pub running: u64,
    /// How the others ended, by [`ErrorKind::name`](crate::ErrorKind::name), or `installed`, or
    /// `already` where nothing was to be moved; and requests that never were a session: `refused`.
    pub ended: BTreeMap<&'static str, u64>,
    /// Rows that came and were in order.
    pub rows: u64,
    /// Bytes of their keys and values.
    pub bytes: u64,
    /// Sessions that went on with what an earlier one had moved.
    pub resumed: u64,
    /// Rows that these did not have to move again.
    pub rows_before: u64,
    /// Bytes of those.
    pub bytes_before: u64,
    /// How long sessions were in each phase, also those that run.
    pub phases: BTreeMap<Phase, Duration>,
    /// How long the session that stands still the longest has received nothing and stayed in
    /// its phase.
    pub still: Option<Duration>,
}

/// The counts as they go.
#[derive(Debug, Default)]
pub(crate) struct Counts(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    stats: RestoreStats,
    running: HashMap<SessionId, Watch>,
}

/// How far a session has come.
#[derive(Debug)]
struct Watch {
    last: Progress,
    phase_since: Instant,
    moved: Instant,
}

impl Counts {
    pub(crate) fn refused(&self) {
        let mut inner = self.0.lock();
        *inner.stats.ended.entry("refused").or_default() += 1;
    }

    pub(crate) fn begun(&self, id: SessionId) {
        let now = Instant::now();
        let mut inner = self.0.lock();
        inner.stats.begun += 1;
        let watch = Watch {
            last: Progress::default(),
            phase_since: now,
            moved: now,
        };
        inner.running.insert(id, watch);
    }

    /// Takes over how far a session is now.
    pub(crate) fn is_at(&self, id: SessionId, now: &Progress) {
        let Inner { stats, running } = &mut *self.0.lock();
        if let Some(watch) = running.get_mut(&id) {
            watch.goes_on(now, stats);
        }
    }

    pub(crate) fn ended(&self, id: SessionId, outcome: &Outcome) {
        let how = match outcome {
            Ok(installed) if installed.already => "already",
            Ok(_) => "installed",
            Err(error) => error.kind().name(),
        };
        let Inner { stats, running } = &mut *self.0.lock();
        if let Some(watch) = running.remove(&id) {
            watch.add_phase(stats);
        }
        *stats.ended.entry(how).or_default() += 1;
    }

    /// What became of all of them.
    pub(crate) fn read(&self) -> RestoreStats {
        let inner = self.0.lock();
        let mut stats = inner.stats.clone();
        let running = inner.running.values();
        stats.running = u64::try_from(running.len()).unwrap_or(u64::MAX);
        for watch in running {
            watch.add_phase(&mut stats);
            stats.still = stats.still.max(Some(watch.moved.elapsed()));
        }
        stats
    }
}

impl Watch {
    fn goes_on(&mut self, now: &Progress, stats: &mut RestoreStats) {
        let last = std::mem::replace(&mut self.last, *now);
        if last == *now {
            return;
        }
        let at = Instant::now();
        if last.phase != now.phase {
            *stats.phases.entry(last.phase).or_default() += at - self.phase_since;
            self.phase_since = at;
        }
        if (last.phase, last.rows) != (now.phase, now.rows) {
            self.moved = at;
        }
        if last.rows_before == 0 && now.rows_before > 0 {
            stats.resumed += 1;
            stats.rows_before += now.rows_before;
            stats.bytes_before += now.bytes_before;
        }
        // Less than before is a session that begins anew.
        let (rows, bytes) = came(&last);
        let (rows_now, bytes_now) = came(now);
        let anew = rows_now < rows;
        stats.rows += rows_now - if anew { 0 } else { rows };
        stats.bytes += bytes_now - if anew { 0 } else { bytes };
    }

    fn add_phase(&self, stats: &mut RestoreStats) {
        *stats.phases.entry(self.last.phase).or_default() += self.phase_since.elapsed();
    }
}

/// What came in this session.
fn came(progress: &Progress) -> (u64, u64) {
    (
        progress.rows.saturating_sub(progress.rows_before),
        progress.bytes.saturating_sub(progress.bytes_before),
    )
}

impl Restorer {
    /// What it did so far, and what goes on.
    #[must_use]
    pub fn stats(&self) -> RestoreStats {
        self.registry.stats()
    }
}
