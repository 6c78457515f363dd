//! How deliveries end, and the one write that ends some of them together.

use std::{sync::Arc, time::Duration};

use pop_model::{
    Checkpoint, DeliveryIdentity, MarkPage, Mutant, Offset, QuarantineRecord, QueueId, RetryKey,
    StoredValue, SubscriptionEpoch,
};
use pop_store::{
    Durability, Error, ErrorKind, Outcome, Result, StoreExt, WriteBatch,
    table::{DueTicket, LEASE, RETRY, lease, parked, progress, quarantine},
};

use crate::{CachedQueue, Keep, LeaseCache, RetrySink, Revival, SettlePlan, task::to_end};

/// After a write was refused, for a reason that is not the batch's own.
const REFUSED_PAUSE: Duration = Duration::from_millis(500);

/// The end of one delivery, or of one offset that never was one.
#[derive(Debug)]
pub(crate) enum End<T> {
    /// It was due, and its sink has decided.
    Revived(Box<Checkpoint>, Revival<T>),
    /// It goes on as a row.
    Stored(Box<Checkpoint>, DueTicket),
    /// It goes on in memory, with a row: only in an ordered queue.
    Kept(Keep),
    /// It can't be worked on.
    Quarantined(Box<Checkpoint>, String),
    /// A reserved offset is passed by a write of its own.
    Written { offset: Offset, writes: WriteBatch },
}

impl<T> End<T> {
    pub(crate) fn offset(&self) -> Offset {
        match self {
            Self::Revived(due, _) | Self::Quarantined(due, _) | Self::Stored(due, _) => {
                due.identity.offset
            }
            Self::Kept(keep) => keep.row.identity.offset,
            Self::Written { offset, .. } => *offset,
        }
    }

    /// How many keys it adds to a batch at most. In an ordered queue its offset may have a
    /// row and be parked, which ends with it.
    fn key_count(&self, is_ordered: bool) -> usize {
        let ended = if is_ordered { 2 } else { 0 };
        match self {
            Self::Revived(_, revival) => ended + revival.writes.key_count(),
            Self::Written { writes, .. } => ended + writes.key_count(),
            Self::Quarantined(..) => ended + 2,
            Self::Stored(..) => 2,
            Self::Kept(_) => 1,
        }
    }

    /// About how many bytes it adds to a batch.
    fn byte_count(&self) -> usize {
        match self {
            Self::Revived(_, revival) => 1_024 + revival.writes.byte_count(),
            Self::Written { writes, .. } => 1_024 + writes.byte_count(),
            Self::Quarantined(..) | Self::Stored(..) | Self::Kept(_) => 2_048,
        }
    }
}

/// The most keys that the ends of one batch add to it: the plan adds the rest.
const KEYS_MAX: usize = WriteBatch::KEYS_MAX - SettlePlan::KEYS_MAX;
/// The same in bytes: a page is about half a kilobyte, and a row of marks is less.
const BYTES_MAX: usize = WriteBatch::BYTES_MAX - SettlePlan::KEYS_MAX * 640;
const _: () = assert!(
    KEYS_MAX >= 400 && BYTES_MAX >= 600 << 10,
    "a batch of ends is worth it"
);

/// What the ends of a batch add to it at most.
#[derive(Clone, Copy, Default)]
struct Size {
    keys: usize,
    bytes: usize,
    /// The page of the last one: its marks are written once for all that follow there.
    page: Option<u64>,
}

impl Size {
    fn with<T>(self, end: &End<T>, is_ordered: bool) -> Self {
        let (page, _) = MarkPage::locate(end.offset());
        let is_new = self.page != Some(page);
        Self {
            keys: self.keys + end.key_count(is_ordered) + usize::from(is_new),
            bytes: self.bytes + end.byte_count(),
            page: Some(page),
        }
    }

    fn fits(self) -> bool {
        self.keys <= KEYS_MAX && self.bytes <= BYTES_MAX
    }
}

/// Ends in batches of up to `count`, each of which a store takes.
pub(crate) fn batches<T>(ends: Vec<End<T>>, count: usize, is_ordered: bool) -> Vec<Vec<End<T>>> {
    let mut batches: Vec<Vec<End<T>>> = Vec::new();
    let mut size = Size::default();
    for end in ends {
        let grown = size.with(&end, is_ordered);
        match batches.last_mut() {
            Some(batch) if grown.fits() && batch.len() < count => {
                batch.push(end);
                size = grown;
            }
            _ => {
                size = Size::default().with(&end, is_ordered);
                batches.push(vec![end]);
            }
        }
    }
    batches
}

/// Whether the store must be opened anew.
pub(crate) fn needs_reopen(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Poisoned | ErrorKind::InDoubt)
}

/// Whether it is the batch that is refused, and not any batch.
pub(crate) fn blames_the_batch(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Conflict | ErrorKind::Invalid)
}

impl<K: RetrySink> LeaseCache<K> {
    /// Writes the ends of some deliveries of a queue in one batch, when it is this write's
    /// turn. What is refused is back in memory afterwards, and an error after which the
    /// store must be opened anew leaves everything as it is.
    pub(crate) async fn commit(
        &self,
        cached: &Arc<CachedQueue>,
        epoch: SubscriptionEpoch,
        ends: Vec<End<K::Token>>,
    ) -> Result<()> {
        let (cache, cached) = (self.clone(), Arc::clone(cached));
        let work = async move { cache.write_ends(&cached, epoch, ends).await };
        to_end(self.inner.store.as_ref(), work).await
    }

    async fn write_ends(
        &self,
        cached: &Arc<CachedQueue>,
        epoch: SubscriptionEpoch,
        ends: Vec<End<K::Token>>,
    ) -> Result<()> {
        let turn = if Mutant::SecondWriteWhileInDoubt.is_on() {
            None
        } else {
            cached.turn.acquire().await.ok()
        };
        let (settles, keeps) = sort(&ends);
        let plan = self.with_state(cached, |state| {
            let goes_on = state.leases.epoch() == epoch && !state.is_evicted;
            goes_on.then(|| state.leases.plan(settles, keeps))
        });
        let Some(plan) = plan else {
            // Reset or deleted meanwhile: what they were is void, and so is what becomes of
            // them.
            self.void(ends);
            return Ok(());
        };
        // The turn lets one plan be in flight. One that never came back means that a write
        // ended without an answer: only opening the store anew tells what it did.
        let plan = plan.ok_or_else(|| self.never_ended(cached))?;
        let mut ends = ends;
        let mut batch = WriteBatch::new();
        for end in &mut ends {
            self.write_end(&mut batch, end);
        }
        self.write_plan(&mut batch, cached, &plan);
        if Mutant::DeleteBeforeWrite.is_on() {
            self.end_first(cached, &plan).await?;
        }
        // What the sink waits for is proven token by token.
        let (told, tokens): (Vec<Told>, Vec<_>) = ends.into_iter().map(tell).unzip();
        let tokens: Vec<_> = tokens.into_iter().flatten().collect();
        let durability = plan.durability();
        let work = (plan, tokens);
        let written = self.inner.store.settle(work, batch, durability);
        let outcome = match written.await {
            Ok(settled) => {
                let (plan, tokens) = settled.split();
                self.with_state(cached, |state| {
                    state.leases.settled(plan, durability);
                    for told in &told {
                        if let Told::Stored(row, _) = told {
                            state.stored_begins(row.offset);
                        }
                    }
                });
                self.tell_settled(told, tokens.into_each());
                Ok(())
            }
            Err(unsettled) => {
                let (plan, tokens) = unsettled.work;
                self.tell_unsettled(cached, plan, told, tokens, &unsettled.error);
                Err(unsettled.error)
            }
        };
        drop(turn);
        cached.changed.notify_waiters();
        self.unblocked(cached);
        outcome
    }

    /// A write of the queue ended without an answer.
    pub(crate) fn never_ended(&self, cached: &CachedQueue) -> Error {
        let error = Error::new(ErrorKind::InDoubt, self.inner.store.name(), "settle");
        error.with_detail(format!("an earlier write of {} never ended", cached.queue))
    }

    /// The writes of one end. What a revival carries is taken out of it.
    fn write_end(&self, batch: &mut WriteBatch, end: &mut End<K::Token>) {
        match end {
            End::Revived(_, revival) => {
                batch.append(std::mem::take(&mut revival.writes));
            }
            End::Stored(checkpoint, _) => lease::store(batch, checkpoint),
            End::Kept(keep) => lease::keep(batch, &keep.row),
            End::Quarantined(due, reason) if !Mutant::ExhaustedIsDropped.is_on() => {
                let record = QuarantineRecord {
                    reason: reason.clone(),
                    keyspace: LEASE.name().into(),
                    key: due.lease_key(),
                    value: due.encode(),
                    at: self.inner.clock.wall(),
                    group: None,
                };
                let sequence = self.inner.quarantine.next(self.inner.clock.lease());
                quarantine::put_copy(batch, sequence, record);
            }
            End::Quarantined(..) => {}
            End::Written { writes, .. } => {
                batch.append(std::mem::take(writes));
            }
        }
    }

    /// The marks, the committed offset, and the rows that go with them.
    pub(crate) fn write_plan(
        &self,
        batch: &mut WriteBatch,
        cached: &CachedQueue,
        plan: &SettlePlan,
    ) {
        let queue = cached.queue;
        for (page, marks) in plan.pages() {
            progress::put_page(batch, queue, *page, marks);
        }
        for page in plan.dropped_pages() {
            progress::delete_page(batch, queue, *page);
        }
        if let Some(committed) = plan.committed() {
            let record = cached.look(|leases| Self::progress(leases, committed));
            progress::put(batch, queue, &record);
        }
        for offset in plan.rows_ended() {
            if queue.queue == QueueId::RETRY {
                let key = RetryKey {
                    group: queue.group,
                    topic: queue.topic,
                    sequence: offset.get(),
                };
                batch.delete(RETRY, pop_model::StoredKey::encode(&key));
            } else {
                lease::delete(batch, queue, offset);
            }
        }
        for row in plan.rows_changed() {
            lease::keep(batch, row);
        }
        for message in plan.parked_ended() {
            parked::delete(batch, queue, message);
        }
        for message in plan.parks() {
            parked::put(batch, queue, *message);
        }
    }

    fn tell_settled(
        &self,
        told: Vec<Told>,
        mut tokens: impl Iterator<Item = pop_store::Durable<K::Token>>,
    ) {
        for told in told {
            match told {
                Told::Revived(due) => {
                    if let Some(token) = tokens.next() {
                        self.inner.sink.settled(&due, token);
                    }
                }
                Told::Stored(row, ticket) => {
                    ticket.landed();
                    self.inner.sink.stored(&row);
                }
                Told::Kept(row) => self.inner.sink.stored(&row),
                Told::Quarantined(due, reason) => {
                    let identity = due.identity;
                    tracing::error!(queue = %identity.queue, offset = identity.offset.get(), %reason, "a delivery went to quarantine");
                    self.inner.sink.quarantined(&due);
                }
                Told::Nothing => {}
            }
        }
    }

    fn tell_unsettled(
        &self,
        cached: &Arc<CachedQueue>,
        plan: SettlePlan,
        told: Vec<Told>,
        tokens: Vec<K::Token>,
        error: &Error,
    ) {
        let outcome = error.outcome();
        let is_decided = told.iter().any(|told| matches!(told, Told::Revived(_)));
        let mut tokens = tokens.into_iter();
        for told in told {
            match told {
                Told::Revived(due) => {
                    if let Some(token) = tokens.next() {
                        self.inner.sink.unsettled(&due, token, outcome);
                    }
                }
                // In doubt it stays announced: the floor waits below it.
                Told::Stored(_, ticket) if outcome == Outcome::Refused => ticket.landed(),
                _ => {}
            }
        }
        if outcome != Outcome::Refused {
            return;
        }
        let now = self.inner.clock.lease();
        // One of several may be the reason, or what it was decided on has changed: each is
        // asked about again at once, and written alone.
        let blamed = blames_the_batch(error);
        let again = if blamed && is_decided {
            now
        } else {
            now.saturating_add(REFUSED_PAUSE)
        };
        self.with_state(cached, |state| {
            state.leases.refused(plan, again);
            state.singly |= blamed;
        });
        // What was reserved is ready.
        self.wake(cached.queue);
    }

    /// Gives back what ends of an epoch that is over had set aside.
    fn void(&self, ends: Vec<End<K::Token>>) {
        for end in ends {
            match end {
                End::Revived(due, revival) => {
                    self.inner
                        .sink
                        .unsettled(&due, revival.token, Outcome::Refused);
                }
                End::Stored(_, ticket) => ticket.landed(),
                End::Kept(_) | End::Quarantined(..) | End::Written { .. } => {}
            }
        }
    }

    /// Writes the marks before what they stand for: a mutant.
    async fn end_first(&self, cached: &CachedQueue, plan: &SettlePlan) -> Result<()> {
        let mut batch = WriteBatch::new();
        self.write_plan(&mut batch, cached, plan);
        self.inner.store.write(batch, Durability::Buffered).await
    }
}

/// What a plan settles, and what it keeps.
fn sort<T>(ends: &[End<T>]) -> (Vec<Offset>, Vec<Keep>) {
    let mut settles = Vec::with_capacity(ends.len());
    let mut keeps = Vec::new();
    for end in ends {
        match end {
            End::Kept(keep) => keeps.push(keep.clone()),
            other => settles.push(other.offset()),
        }
    }
    (settles, keeps)
}

/// What is left to tell of an end once its write has an outcome.
enum Told {
    Revived(Box<Checkpoint>),
    Stored(DeliveryIdentity, DueTicket),
    Kept(DeliveryIdentity),
    Quarantined(Box<Checkpoint>, String),
    Nothing,
}

fn tell<T>(end: End<T>) -> (Told, Option<T>) {
    match end {
        End::Revived(due, revival) => (Told::Revived(due), Some(revival.token)),
        End::Stored(row, ticket) => (Told::Stored(row.identity, ticket), None),
        End::Kept(keep) if !keep.is_ready => (Told::Kept(keep.row.identity), None),
        End::Quarantined(due, reason) => (Told::Quarantined(due, reason), None),
        End::Kept(_) | End::Written { .. } => (Told::Nothing, None),
    }
}
