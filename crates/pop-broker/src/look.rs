//! One look: what is ready becomes leases, and is on its way to a consumer.

mod ordered;
mod repeat;
mod retries;

use std::sync::Arc;

use bytes::Bytes;
use pop_cache::{CacheError, CachedQueue, Reserved, Subscribe, Terms};
use pop_model::{
    DeliveryIdentity, LogBounds, LogKey, LogQueue, Message, Mutant, Offset, QuarantineRecord,
    StoredKey, SubscriptionQueue, limits,
};
use pop_store::{
    ErrorKind, Keyspace, WriteBatch,
    table::{LOG, LogEntry, MessageLog, RETRY, quarantine},
};

use crate::{
    BrokerError, Delivery, Handout, ReceiveRequest,
    consumption::{Consumption, RETRY_START},
    core::Core,
    receive::Leased,
    revive::Redelivery,
};

/// The most body bytes of one handout, so that a batch of the largest messages does not
/// fill the memory; the first message always goes.
const HANDOUT_BYTES_MAX: usize = 16 << 20;
/// How many messages one look passes over when a filter wants none of them.
const FILTERED_MAX: usize = 1_024;

impl Core {
    /// Hands out what is ready, up to what was asked for.
    pub(crate) async fn look_once(
        self: &Arc<Self>,
        consumption: &Arc<Consumption>,
        request: &ReceiveRequest,
    ) -> Result<Handout, BrokerError> {
        // From here on what is leased is in a handout, which gives it back on every error.
        let mut look = Look {
            core: Arc::clone(self),
            consumption: Arc::clone(consumption),
            request,
            room: Room {
                messages: request.batch_size.min(limits::RECEIVE_BATCH_MAX),
                bytes: HANDOUT_BYTES_MAX,
            },
            handout: Handout::new(self),
        };
        self.subscribe_all(consumption).await?;
        if look.repeated().await? {
            return Ok(look.handout);
        }
        let turn = consumption.next_turn();
        // Retries first in one look of five, so that neither kind starves the other.
        let retries_first = turn.is_multiple_of(5);
        let mut trouble = Trouble::default();
        if retries_first {
            trouble.note(look.retries().await)?;
        }
        for queue in consumption.queues_from(turn) {
            let outcome = if consumption.group.fifo {
                look.ordered(queue).await
            } else {
                look.queue(queue).await
            };
            trouble.note(outcome)?;
        }
        if !retries_first {
            trouble.note(look.retries().await)?;
        }
        if look.room.is_full() || trouble.gave_back {
            // There may be more, or something was given back: the next waiting receive looks.
            // Where too much is out nothing was, and it would look again and again.
            consumption.wake();
        }
        trouble.weigh(look.handout)
    }

    /// Subscribes the group to every queue, also to those that a look has no room for: what
    /// is sent after the first answer is for the group, whichever queue it goes to.
    pub(crate) async fn subscribe_all(&self, consumption: &Consumption) -> Result<(), BrokerError> {
        let all = async || {
            for queue in consumption.queues_from(0) {
                self.cached(consumption, queue).await?;
            }
            Ok(())
        };
        consumption.subscribed.get_or_try_init(all).await.map(drop)
    }

    /// A queue of a consumption, loaded if it is not in memory.
    pub(crate) async fn cached(
        &self,
        consumption: &Consumption,
        queue: SubscriptionQueue,
    ) -> Result<Arc<CachedQueue>, BrokerError> {
        if let Some(cached) = self.cache.loaded(queue) {
            return Ok(cached);
        }
        let (bounds, found_end, start) = if queue.is_retry() {
            let retry = consumption.retry.lock();
            (retry.bounds(), retry.found_end(), RETRY_START)
        } else {
            let log_queue = queue.log_queue();
            let closed = |error: pop_store::Error| match error.kind() {
                // The log is closed to a topic that is deleted.
                ErrorKind::Conflict => BrokerError::Deleted,
                _ => error.into(),
            };
            let bounds = self.log.bounds(log_queue).await.map_err(closed)?;
            let found_end = self.log.found_end(log_queue).await.map_err(closed)?;
            (bounds, found_end, consumption.group.start)
        };
        let subscribe = Subscribe {
            queue,
            bounds,
            found_end,
            start,
            ordered: consumption.group.fifo && !queue.is_retry(),
        };
        let cached = self.cache.subscribe(subscribe).await?;
        consumption.note_epoch(cached.look(pop_cache::LeaseQueue::epoch));
        Ok(cached)
    }
}

/// A look that is going on.
struct Look<'a> {
    core: Arc<Core>,
    consumption: Arc<Consumption>,
    request: &'a ReceiveRequest,
    room: Room,
    handout: Handout,
}

impl Look<'_> {
    /// Sets ready offsets of a queue aside. A queue that was given up meanwhile is looked
    /// up again.
    async fn reserve(
        &self,
        queue: SubscriptionQueue,
        count: usize,
        bounds: LogBounds,
    ) -> Result<(Arc<CachedQueue>, Reserved<Redelivery>), BrokerError> {
        loop {
            let cached = self.core.cached(&self.consumption, queue).await?;
            match self.core.cache.reserve(&cached, count, bounds) {
                Err(CacheError::Evicted(_)) => {}
                other => return Ok((cached, other?)),
            }
        }
    }

    /// Hands out new messages of one queue.
    async fn queue(&mut self, queue: SubscriptionQueue) -> Result<(), BrokerError> {
        let core = Arc::clone(&self.core);
        let mut passed_over = 0;
        while !self.room.is_full() && passed_over < FILTERED_MAX {
            let bounds = core.log.bounds(queue.log_queue()).await?;
            let (_, mut reserved) = self.reserve(queue, self.room.messages, bounds).await?;
            if reserved.is_empty() {
                return Ok(());
            }
            let offsets = reserved.offsets().to_vec();
            let entries = core.log.read(queue.log_queue(), &offsets).await?;
            passed_over += self
                .hand_out(queue, &mut reserved, &offsets, entries, bounds)
                .await?;
            // What was reserved and did not fit is handed back here.
        }
        if passed_over >= FILTERED_MAX {
            // The filter passed over this many and there are more: the next look goes on.
            self.consumption.wake();
        }
        Ok(())
    }

    /// Makes leases of what was read of reserved offsets. Returns how many a filter passed
    /// over.
    async fn hand_out(
        &mut self,
        queue: SubscriptionQueue,
        reserved: &mut Reserved<Redelivery>,
        offsets: &[Offset],
        entries: Vec<LogEntry>,
        bounds: LogBounds,
    ) -> Result<usize, BrokerError> {
        let sorted = self.sort(queue, offsets, entries).await?;
        self.pass_holes(queue, reserved, &sorted.holes, bounds)
            .await?;
        reserved.skip(&sorted.skipped);
        for bad in sorted.bad {
            let key = LogKey {
                queue: queue.log_queue(),
                offset: bad.offset,
            };
            self.quarantine(queue, reserved, LOG, key.encode(), bad)
                .await?;
        }
        let passed_over = sorted.skipped.len();
        self.lease(reserved, sorted.wanted, 1).await?;
        Ok(passed_over)
    }

    /// Passes offsets where nothing lies. The end of the log is stored before the marks are,
    /// so that no message ever gets an offset that was passed.
    async fn pass_holes(
        &self,
        queue: SubscriptionQueue,
        reserved: &mut Reserved<Redelivery>,
        holes: &[Offset],
        bounds: LogBounds,
    ) -> Result<(), BrokerError> {
        if holes.is_empty() {
            return Ok(());
        }
        tracing::debug!(%queue, count = holes.len(), "skipped offsets without a message");
        self.core
            .log
            .store_end(queue.log_queue(), bounds.end)
            .await?;
        reserved.skip(holes);
        Ok(())
    }

    /// Makes leases, and puts what was leased into the handout.
    async fn lease(
        &mut self,
        reserved: &mut Reserved<Redelivery>,
        wanted: Vec<Wanted>,
        attempt: u32,
    ) -> Result<(), BrokerError> {
        if wanted.is_empty() {
            return Ok(());
        }
        let offsets: Vec<Offset> = wanted.iter().map(|wanted| wanted.offset).collect();
        let terms = Terms {
            now: self.core.clock.lease(),
            invisible_for: self.request.invisible_for,
            attempt,
            attempt_id: self.request.attempt_id.as_deref(),
            auto_renew: self.request.auto_renew,
        };
        let mut identities = reserved.lease(&offsets, &terms).await?;
        if Mutant::HandlesMixedUp.is_on() {
            identities.reverse();
        }
        let mut identities = identities.into_iter().peekable();
        let is_mixed = Mutant::HandlesMixedUp.is_on();
        for wanted in wanted {
            let mine = identities.next_if(|it| is_mixed || it.identity.offset == wanted.offset);
            // Reset or acknowledged meanwhile.
            let Some(lease) = mine else { continue };
            let wanted = Wanted {
                attempt: lease.attempt,
                ..wanted
            };
            self.room.take(wanted.body.len());
            self.handout.push(self.leased(lease.identity, wanted));
        }
        Ok(())
    }

    /// Sorts what was read into wanted, skipped and bad, and fetches bodies. What does not
    /// fit stays reserved, and is handed back by the caller.
    async fn sort(
        &self,
        queue: SubscriptionQueue,
        offsets: &[Offset],
        entries: Vec<LogEntry>,
    ) -> Result<Sorted, BrokerError> {
        let mut sorted = Sorted::default();
        let mut bytes = self.room.bytes;
        let mut entries = entries.into_iter().peekable();
        for offset in offsets {
            let Some(entry) = entries.next_if(|entry| entry.offset == *offset) else {
                sorted.holes.push(*offset);
                continue;
            };
            let found = self.fetch(entry, bytes, sorted.wanted.is_empty()).await?;
            match found {
                Found::Wanted(message, body) => {
                    bytes = bytes.saturating_sub(body.len());
                    sorted.wanted.push(Wanted {
                        offset: *offset,
                        place: *offset,
                        message,
                        body,
                        source: queue.log_queue(),
                        attempt: 1,
                    });
                }
                Found::Skipped => sorted.skipped.push(*offset),
                Found::Bad(row, reason) => sorted.bad.push(Bad {
                    offset: *offset,
                    row,
                    reason,
                }),
                Found::DoesNotFit => break,
            }
        }
        Ok(sorted)
    }

    /// What a row of the log is to this request.
    async fn fetch(
        &self,
        entry: LogEntry,
        bytes: usize,
        is_first: bool,
    ) -> Result<Found, BrokerError> {
        let message = match entry.message {
            Ok(message) => message,
            Err(error) => return Ok(Found::Bad(entry.row, error.to_string())),
        };
        if !self.request.filter.matches(&message) {
            return Ok(Found::Skipped);
        }
        if message.body.byte_count() > bytes && !is_first {
            return Ok(Found::DoesNotFit);
        }
        match self.core.log.body(&message).await {
            Ok(body) => Ok(Found::Wanted(message, body)),
            Err(error) if error.kind() == ErrorKind::Corrupt => {
                Ok(Found::Bad(entry.row, error.to_string()))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Puts a copy of a row that can't be delivered away, and passes its offset.
    async fn quarantine(
        &self,
        queue: SubscriptionQueue,
        reserved: &mut Reserved<Redelivery>,
        keyspace: Keyspace,
        key: Bytes,
        bad: Bad,
    ) -> Result<(), BrokerError> {
        let core = &self.core;
        tracing::error!(%queue, offset = bad.offset.get(), reason = %bad.reason, "a message went to quarantine");
        let mut batch = WriteBatch::new();
        let sequence = core.quarantine.next(core.clock.lease());
        let record = QuarantineRecord {
            reason: bad.reason,
            keyspace: keyspace.name().into(),
            key,
            value: bad.row,
            at: core.clock.wall(),
            group: (keyspace == LOG).then_some(queue.group),
        };
        if !Mutant::QuarantineDropped.is_on() {
            if keyspace == RETRY {
                quarantine::put_away(&mut batch, sequence, RETRY, record);
            } else {
                quarantine::put_copy(&mut batch, sequence, record);
            }
        }
        reserved.settle(bad.offset, batch).await?;
        core.options.counters.quarantined.add(1);
        Ok(())
    }

    fn leased(&self, identity: DeliveryIdentity, wanted: Wanted) -> Leased {
        Leased {
            delivery: Delivery {
                message: wanted.message,
                body: wanted.body,
                topic: self.consumption.topic.record().name.clone(),
                source: wanted.source,
                offset: wanted.place,
                delivery_attempt: wanted.attempt,
                invisible_for: self.request.invisible_for,
                handle: self.core.handles.seal(&identity),
            },
            release: Some(identity),
        }
    }
}

/// The queues that failed during a look. One bad queue holds up no other: what the others
/// gave is handed out, and the failure is told to whoever gets nothing.
#[derive(Default)]
struct Trouble {
    first: Option<BrokerError>,
    // What was set aside for this look is ready again.
    gave_back: bool,
}

impl Trouble {
    /// Goes on after a failure of one queue, and not after one of the whole store.
    fn note(&mut self, outcome: Result<(), BrokerError>) -> Result<(), BrokerError> {
        match outcome {
            Err(error) if error.needs_reopen() => Err(error),
            Err(error) => {
                if !matches!(error, BrokerError::TooManyInFlight(_)) {
                    self.gave_back = true;
                    tracing::warn!(%error, "a queue could not be looked at");
                }
                self.first.get_or_insert(error);
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }

    fn weigh(self, handout: Handout) -> Result<Handout, BrokerError> {
        match self.first {
            Some(error) if handout.is_empty() => Err(error),
            _ => Ok(handout),
        }
    }
}

/// What still fits into a handout.
struct Room {
    messages: usize,
    bytes: usize,
}

impl Room {
    fn is_full(&self) -> bool {
        self.messages == 0 || self.bytes == 0
    }

    fn take(&mut self, bytes: usize) {
        self.messages = self.messages.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(bytes);
    }
}

#[derive(Default)]
struct Sorted {
    wanted: Vec<Wanted>,
    skipped: Vec<Offset>,
    holes: Vec<Offset>,
    bad: Vec<Bad>,
}

struct Wanted {
    /// What is leased.
    offset: Offset,
    /// Where the message lies in its log.
    place: Offset,
    message: Message,
    body: Bytes,
    source: LogQueue,
    attempt: u32,
}

struct Bad {
    offset: Offset,
    row: Bytes,
    reason: String,
}

#[allow(
    clippy::large_enum_variant,
    reason = "one at a time, on its way into a delivery"
)]
enum Found {
    Wanted(Message, Bytes),
    Skipped,
    Bad(Bytes, String),
    DoesNotFit,
}
