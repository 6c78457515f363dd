//! The durable revive loop: scan, decide, commit; each due delivery on its own.

use std::{collections::HashSet, sync::Arc, time::Duration};

use bytes::Bytes;
use futures::{StreamExt, stream};
use pop_cache::{Failure, RetrySink, Revival, RevivalKind, decide};
use pop_model::{
    Checkpoint, Clock, DueKey, LeaseTime, Mutant, QuarantineRecord, REVIVE_FAILURES_MAX, ShardId,
    StoredKey, revive_failure_backoff,
};
use pop_store::{
    Durability, Entry, Error, ErrorKind, Outcome, Result, Scan, Store, StoreExt, WriteBatch,
    table::{DUE, DueSchedule, DueTicket, LEASE, QuarantineSequence, lease, meta, quarantine},
};
use tracing::{debug, error, warn};

use crate::{Classified, Due, classify};

/// How the reviver works.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ReviverOptions {
    /// The most hints that one pass over a shard looks at.
    pub hints_max: usize,
    /// The most decisions of one pass that run at a time.
    pub decisions_max: usize,
    /// The most shards that are worked on at a time.
    pub shards_max: usize,
    /// How long one decision may take before it counts as failed.
    pub decision_time_max: Duration,
    /// After how many failed revives a delivery goes to quarantine.
    pub failures_max: u32,
    /// The longest sleep between two looks at the clock.
    pub idle_max: Duration,
}

impl Default for ReviverOptions {
    fn default() -> Self {
        Self {
            hints_max: 512,
            decisions_max: 64,
            shards_max: 8,
            decision_time_max: Duration::from_secs(5),
            failures_max: REVIVE_FAILURES_MAX,
            idle_max: Duration::from_secs(1),
        }
    }
}

/// What one pass over a shard did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PassReport {
    /// Deliveries that are ready again.
    pub retried: usize,
    /// Deliveries that went to a dead-letter topic.
    pub dead_lettered: usize,
    /// Deliveries whose message, topic or group is gone.
    pub gone: usize,
    /// Deliveries whose revive failed: stored again for later.
    pub backed_off: usize,
    /// Records that went to quarantine.
    pub quarantined: usize,
    /// Hints that moved to where a renewal put their row.
    pub moved: usize,
    /// Hints of settled deliveries that were dropped.
    pub dropped: usize,
    /// Hints that are still there, because their row changed or the store would not write.
    pub left: usize,
}

impl PassReport {
    fn count(&mut self, done: Done) {
        let count = match done {
            Done::Revived(RevivalKind::Retried | RevivalKind::Again(_)) => &mut self.retried,
            Done::Revived(RevivalKind::DeadLettered) => &mut self.dead_lettered,
            Done::Revived(RevivalKind::Gone) => &mut self.gone,
            Done::BackedOff => &mut self.backed_off,
            Done::Quarantined => &mut self.quarantined,
            Done::Moved => &mut self.moved,
            Done::Left(_) => &mut self.left,
        };
        *count += 1;
    }
}

/// What happened to one hint.
#[derive(Clone, Copy, Debug)]
enum Done {
    Revived(RevivalKind),
    BackedOff,
    Quarantined,
    Moved,
    Left(LeaseTime),
}

/// Works off what is due. One at a time runs on a store.
#[derive(Debug)]
pub struct Reviver<K> {
    store: Arc<dyn Store>,
    sink: Arc<K>,
    clock: Arc<dyn Clock>,
    schedule: DueSchedule,
    options: ReviverOptions,
    quarantine: Arc<QuarantineSequence>,
}

impl<K: RetrySink> Reviver<K> {
    /// A reviver on `store`. `schedule` is the one that every writer of deadlines announces to.
    pub fn new(
        store: Arc<dyn Store>,
        sink: Arc<K>,
        clock: Arc<dyn Clock>,
        schedule: DueSchedule,
        quarantine: Arc<QuarantineSequence>,
        options: ReviverOptions,
    ) -> Self {
        Self {
            store,
            sink,
            clock,
            schedule,
            options,
            quarantine,
        }
    }

    /// Runs until `stop` completes, or until the store is poisoned.
    ///
    /// # Errors
    ///
    /// The error of a store that must be reopened. Any other error is logged and what
    /// met it is looked at again.
    ///
    /// # Cancel safety
    ///
    /// Dropped in the middle of a pass it leaves every delivery either settled or due.
    pub async fn run(&self, stop: impl Future<Output = ()> + Send) -> Result<()> {
        tokio::pin!(stop);
        loop {
            let pause = self.pass_all().await?;
            let idle_max = self.options.idle_max;
            let earliest = self.schedule.earliest();
            let until_due = earliest.map_or(idle_max, |earliest| {
                earliest.saturating_since(self.clock.lease())
            });
            let wait = until_due.min(idle_max).max(pause);
            tokio::select! {
                biased;
                () = &mut stop => return Ok(()),
                () = tokio::time::sleep(wait) => {}
                () = self.schedule.sooner() => {}
            }
        }
    }

    /// One pass over every shard that has something due. Returns how long to wait at
    /// least: what was left is due still, and must not be tried in a spin.
    async fn pass_all(&self) -> Result<Duration> {
        let due = self.schedule.due_shards(self.clock.lease());
        let passes = stream::iter(due).map(|shard| async move { (shard, self.pass(shard).await) });
        let mut passes = passes.buffer_unordered(self.options.shards_max);
        let mut pause = Duration::ZERO;
        while let Some((shard, outcome)) = passes.next().await {
            match outcome {
                Ok(report) => {
                    if report.left > 0 {
                        pause = pause.max(Duration::from_millis(20));
                    }
                    if report != PassReport::default() {
                        debug!(shard = shard.get(), ?report, "revived what was due");
                    }
                }
                Err(error) if matches!(error.kind(), ErrorKind::Poisoned | ErrorKind::InDoubt) => {
                    return Err(error);
                }
                Err(error) => {
                    warn!(shard = shard.get(), %error, "the due scan failed; it is repeated");
                    pause = Duration::from_millis(500);
                }
            }
        }
        Ok(pause)
    }

    /// One pass over one shard, at the clock's now.
    ///
    /// # Errors
    ///
    /// A read that failed: nothing was changed. Failed writes are in the report as left,
    /// unless they poison the store.
    pub async fn pass(&self, shard: ShardId) -> Result<PassReport> {
        let pass = OpenPass::begin(&self.schedule, shard);
        let now = self.clock.lease();
        let found = self.scan(shard, pass.floor, now).await?;
        let mut report = PassReport::default();
        let mut dead = found.dead;
        let mut work = Vec::new();
        let mut rows_seen = HashSet::new();
        for (classified, row_key) in found.hints {
            match classified {
                Classified::Dead { hint, .. } => dead.push(hint),
                // A renewed delivery may have two hints; the second would only conflict.
                Classified::Due(due) | Classified::Moved(due)
                    if !rows_seen.insert(row_key.clone()) =>
                {
                    dead.push(due.hint);
                }
                other => work.push(other),
            }
        }

        // All are started before any is awaited, up to the bound; each outcome is its own.
        let settling = stream::iter(work).map(|classified| self.settle(classified, now));
        let mut settling = settling.buffer_unordered(self.options.decisions_max);
        let mut lowest_left: Option<LeaseTime> = None;
        while let Some(done) = settling.next().await {
            let done = done?;
            if let Done::Left(at) = done {
                lowest_left = Some(lowest_left.map_or(at, |lowest| lowest.min(at)));
            }
            report.count(done);
        }
        drop(settling);

        report.dropped = dead.len();
        let cleared = lowest_left.map_or(found.cleared, |left| left.min(found.cleared));
        let next = [found.next, lowest_left].into_iter().flatten().min();
        self.finish(pass, dead, cleared, next).await?;
        Ok(report)
    }

    /// Reads the hints that are due, and their rows.
    async fn scan(&self, shard: ShardId, floor: LeaseTime, now: LeaseTime) -> Result<Found> {
        let (_, end) = DueKey::shard_range(shard);
        let scan =
            Scan::range(DueKey::start(shard, floor), end).with_entries_max(self.options.hints_max);
        let entries = self.store.scan(DUE, scan).await?;
        let full = entries.len() >= self.options.hints_max;
        let mut due: Vec<(Entry, DueKey)> = Vec::new();
        let mut dead = Vec::new();
        let mut next = None;
        for entry in entries {
            match DueKey::decode(entry.key.clone()) {
                Ok(key) if key.visible_at > now => {
                    next = Some(key.visible_at);
                    break;
                }
                Ok(key) => due.push((entry, key)),
                Err(error) => {
                    // Only a hint, and rows are found again at the next open.
                    error!(%error, key = %entry.key.escape_ascii(), "dropped a due hint that can't be decoded");
                    dead.push(entry.key);
                }
            }
        }
        let mut cleared = now.saturating_add(Duration::from_millis(1));
        if full && next.is_none() {
            // More may lie at the last moment that was read.
            cleared = due.last().map_or(floor, |(_, key)| key.visible_at);
            next = Some(cleared);
        }
        let keys: Vec<Bytes> = due
            .iter()
            .map(|(_, key)| key.lease_key().encode())
            .collect();
        let rows = self.store.multi_get(LEASE, &keys).await?;
        let hints = due.iter().zip(rows).zip(keys);
        let hints =
            hints.map(|(((entry, key), row), row_key)| (classify(entry, key, row, now), row_key));
        Ok(Found {
            hints: hints.collect(),
            dead,
            cleared,
            next,
        })
    }

    async fn settle(&self, classified: Classified, now: LeaseTime) -> Result<Done> {
        match classified {
            Classified::Due(due) => self.revive(*due, now).await,
            Classified::Moved(due) => self.move_hint(*due).await,
            Classified::BadRow {
                hint,
                hinted_at,
                row_key,
                row,
                error,
            } => {
                let mut batch = WriteBatch::new();
                batch.delete(DUE, hint);
                self.put_away(batch, hinted_at, row_key, row, error.to_string())
                    .await
            }
            // Sorted out before; its hint is dropped with the pass.
            Classified::Dead { hinted_at, .. } => Ok(Done::Left(hinted_at)),
        }
    }

    async fn revive(&self, due: Due, now: LeaseTime) -> Result<Done> {
        match decide(
            self.sink.as_ref(),
            &due.checkpoint,
            self.options.decision_time_max,
        )
        .await
        {
            // A row is not a place where something could be ready.
            Ok(revival) if matches!(revival.kind, RevivalKind::Again(_)) => {
                let failure = Failure::Error("a stored delivery is not of an ordered queue".into());
                self.back_off(due, failure, now).await
            }
            Ok(revival) => self.commit(due, revival).await,
            Err(failure) => self.back_off(due, failure, now).await,
        }
    }

    /// Commits a decision together with the end of the delivery that it is about.
    async fn commit(&self, due: Due, revival: Revival<K::Token>) -> Result<Done> {
        let mut batch = WriteBatch::new();
        lease::remove(&mut batch, due.row.clone(), &due.checkpoint);
        batch.delete(DUE, due.hint.clone());
        batch.append(revival.writes);
        match self
            .store
            .settle(revival.token, batch, Durability::Buffered)
            .await
        {
            Ok(token) => {
                self.sink.settled(&due.checkpoint, token);
                self.sink.stored_ended(&due.checkpoint.identity);
                Ok(Done::Revived(revival.kind))
            }
            Err(unsettled) => {
                let outcome = unsettled.error.outcome();
                self.sink
                    .unsettled(&due.checkpoint, unsettled.work, outcome);
                self.left(due.hinted_at, unsettled.error)
            }
        }
    }

    /// Stores a delivery whose revive failed for later, or puts it away for good.
    async fn back_off(&self, due: Due, failure: Failure, now: LeaseTime) -> Result<Done> {
        let mut failures = due.checkpoint.revive_failures.saturating_add(1);
        let identity = due.checkpoint.identity;
        if Mutant::NoBackoff.is_on() {
            failures = 0;
        }
        if Mutant::ExhaustedIsDropped.is_on() && failures > self.options.failures_max {
            let mut batch = WriteBatch::new();
            lease::remove(&mut batch, due.row, &due.checkpoint);
            batch.delete(DUE, due.hint);
            self.store.write(batch, Durability::Buffered).await?;
            return Ok(Done::Quarantined);
        }
        if failures > self.options.failures_max {
            let reason = format!("its revive failed {failures} times, at last: {failure}");
            let mut batch = WriteBatch::new();
            batch
                .delete(DUE, due.hint)
                .delete(DUE, due.checkpoint.due_key());
            let checkpoint = due.checkpoint;
            let done = self
                .put_away(batch, due.hinted_at, due.row_key, due.row, reason)
                .await?;
            if matches!(done, Done::Quarantined) {
                self.sink.quarantined(&checkpoint);
                self.sink.stored_ended(&checkpoint.identity);
            }
            return Ok(done);
        }
        let delay = if Mutant::NoBackoff.is_on() {
            Duration::from_millis(1)
        } else {
            revive_failure_backoff(failures)
        };
        warn!(queue = %identity.queue, offset = identity.offset.get(), failures, ?delay, %failure, "a revive failed; it is tried again");
        let ticket = self
            .schedule
            .announce(identity.queue.shard(), now.saturating_add(delay));
        let later = Checkpoint {
            popped_at: now,
            invisible_for: delay,
            visible_at: ticket.deadline(),
            revive_failures: failures,
            ..due.checkpoint
        };
        let later = if Mutant::RewriteLosesFields.is_on() {
            Checkpoint {
                suspend: false,
                delivery_attempt: 1,
                ..later
            }
        } else {
            later
        };
        let mut batch = WriteBatch::new();
        batch.delete(DUE, due.hint);
        lease::replace(&mut batch, due.row, &later);
        self.write_hint(ticket, batch, due.hinted_at, Done::BackedOff)
            .await
    }

    /// Moves a hint to where a renewal put its row.
    async fn move_hint(&self, due: Due) -> Result<Done> {
        let shard = due.checkpoint.identity.queue.shard();
        let ticket = self.schedule.announce(shard, due.checkpoint.visible_at);
        let mut batch = WriteBatch::new();
        batch.require(LEASE, due.row_key, due.row);
        batch.delete(DUE, due.hint);
        batch.put(DUE, due.checkpoint.due_key(), Bytes::new());
        self.write_hint(ticket, batch, due.hinted_at, Done::Moved)
            .await
    }

    async fn write_hint(
        &self,
        ticket: DueTicket,
        batch: WriteBatch,
        hinted_at: LeaseTime,
        done: Done,
    ) -> Result<Done> {
        match self.store.settle(ticket, batch, Durability::Buffered).await {
            Ok(ticket) => {
                ticket.work().landed();
                Ok(done)
            }
            Err(unsettled) => {
                if unsettled.error.outcome() == Outcome::Refused {
                    unsettled.work.landed();
                }
                self.left(hinted_at, unsettled.error)
            }
        }
    }

    /// Moves a lease row into quarantine.
    async fn put_away(
        &self,
        mut batch: WriteBatch,
        hinted_at: LeaseTime,
        row_key: Bytes,
        row: Bytes,
        reason: String,
    ) -> Result<Done> {
        error!(key = %row_key.escape_ascii(), %reason, "a delivery went to quarantine");
        let record = QuarantineRecord {
            reason,
            keyspace: LEASE.name().into(),
            key: row_key,
            value: row,
            at: self.clock.wall(),
            group: None,
        };
        let sequence = self.quarantine.next(self.clock.lease());
        quarantine::put_away(&mut batch, sequence, LEASE, record);
        match self.store.write(batch, Durability::Buffered).await {
            Ok(()) => Ok(Done::Quarantined),
            Err(error) => self.left(hinted_at, error),
        }
    }

    /// A hint stays, and its delivery is looked at again; a store that must be reopened
    /// ends the pass.
    fn left(&self, hinted_at: LeaseTime, error: Error) -> Result<Done> {
        match error.kind() {
            ErrorKind::Poisoned | ErrorKind::InDoubt => Err(error),
            // The row changed meanwhile: an ack or a renewal won.
            ErrorKind::Conflict => Ok(Done::Left(hinted_at)),
            _ => {
                warn!(%error, "a due delivery could not be written; it is tried again");
                Ok(Done::Left(hinted_at))
            }
        }
    }

    /// Drops dead hints and stores the floor, in one batch where it fits.
    async fn finish(
        &self,
        pass: OpenPass<'_>,
        dead: Vec<Bytes>,
        cleared: LeaseTime,
        next: Option<LeaseTime>,
    ) -> Result<()> {
        let shard = pass.shard;
        let before = pass.floor;
        let mut failed = None;
        for hints in dead.chunks(WriteBatch::KEYS_MAX / 2) {
            let mut batch = WriteBatch::new();
            for hint in hints {
                batch.delete(DUE, hint.clone());
            }
            if let Err(error) = self.store.write(batch, Durability::Buffered).await {
                failed = Some(error);
                break;
            }
        }
        if let Some(error) = failed {
            return Err(error);
        }
        let floor = pass.end(cleared, next);
        // Once a second is enough for a pass that found nothing: the stored floor only
        // saves a start some work.
        if !dead.is_empty() || floor.saturating_since(before) >= Duration::from_secs(1) {
            let mut batch = WriteBatch::new();
            meta::put_due_floor(&mut batch, shard, floor);
            self.store.write(batch, Durability::Buffered).await?;
        }
        Ok(())
    }
}

/// The hints of one look at the index.
struct Found {
    hints: Vec<(Classified, Bytes)>,
    dead: Vec<Bytes>,
    cleared: LeaseTime,
    next: Option<LeaseTime>,
}

/// A pass that has begun: dropped before its end, it leaves the shard due, so that an
/// error or a cancelled future never makes it forget.
struct OpenPass<'a> {
    schedule: &'a DueSchedule,
    shard: ShardId,
    floor: LeaseTime,
    ended: bool,
}

impl<'a> OpenPass<'a> {
    fn begin(schedule: &'a DueSchedule, shard: ShardId) -> Self {
        let floor = schedule.begin_pass(shard);
        Self {
            schedule,
            shard,
            floor,
            ended: false,
        }
    }

    fn end(mut self, cleared: LeaseTime, next: Option<LeaseTime>) -> LeaseTime {
        self.ended = true;
        self.schedule.end_pass(self.shard, cleared, next)
    }
}

impl Drop for OpenPass<'_> {
    fn drop(&mut self) {
        if !self.ended {
            self.schedule
                .end_pass(self.shard, self.floor, Some(self.floor));
        }
    }
}
