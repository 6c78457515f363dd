//! Handing messages out under a lease.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use pop_model::{
    Checkpoint, DeliveryIdentity, Generation, GroupName, LeaseTime, LogQueue, Message, Offset,
    QuarantineRecord, ReceiptHandle, RetryEntry, RetryKey, RetryKind, StoredKey, StoredValue,
    SubscriptionQueue, TopicName, limits,
};
use pop_revive::DueTicket;
use pop_store::{
    Durability, ErrorKind, Keyspace, Outcome, StoreExt, WriteBatch,
    table::{LOG, LogEntry, MessageLog, RETRY, lease, progress, quarantine, retry},
};
use tokio::time::Instant;

use crate::{
    BrokerError, Filter,
    consumption::{Consumption, Subscription},
    core::Core,
};

/// What a consumer asks for.
#[derive(Clone, Debug)]
pub struct ReceiveRequest {
    /// The consumer's group.
    pub group: GroupName,
    /// The topic.
    pub topic: TopicName,
    /// Which messages.
    pub filter: Filter,
    /// How many at most.
    pub batch_size: usize,
    /// How long they are hidden from the rest of the group.
    pub invisible_for: Duration,
    /// The server renews the lease while the consumer lives.
    pub auto_renew: bool,
    /// How long to wait for a first message.
    pub wait_max: Duration,
    /// The client's name for this receive.
    pub attempt_id: Option<String>,
}

impl ReceiveRequest {
    /// Up to a full batch of any messages, hidden for `invisible_for`, without waiting;
    /// set the other fields as needed.
    #[must_use]
    pub fn new(group: GroupName, topic: TopicName, invisible_for: Duration) -> Self {
        Self {
            group,
            topic,
            filter: Filter::All,
            batch_size: limits::RECEIVE_BATCH_MAX,
            invisible_for,
            auto_renew: false,
            wait_max: Duration::ZERO,
            attempt_id: None,
        }
    }
}

/// A message that is handed out.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// The message; its body is [`Delivery::body`], whole.
    pub message: Message,
    /// Its body.
    pub body: Bytes,
    /// The topic that it was sent to.
    pub topic: TopicName,
    /// Where it lies.
    pub source: LogQueue,
    /// Its position there.
    pub offset: Offset,
    /// Which delivery this is, 1 being the first.
    pub delivery_attempt: u32,
    /// How long it is hidden.
    pub invisible_for: Duration,
    /// What acknowledges it.
    pub handle: ReceiptHandle,
}

/// Messages on their way to a consumer.
///
/// Dropped before [`Handout::take`] they are released at once, without counting an
/// attempt: a consumer that went away while it waited takes nothing with it.
#[derive(Debug)]
#[must_use = "dropped, the messages are released again"]
pub struct Handout {
    core: Arc<Core>,
    leased: Vec<Leased>,
}

#[derive(Debug)]
struct Leased {
    delivery: Delivery,
    identity: DeliveryIdentity,
}

impl Handout {
    /// Whether there is nothing in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.leased.is_empty()
    }

    /// The messages: from here on only their deadlines bring them back.
    #[must_use]
    pub fn take(mut self) -> Vec<Delivery> {
        let leased = std::mem::take(&mut self.leased);
        self.core.options.counters.received.add(leased.len());
        leased.into_iter().map(|leased| leased.delivery).collect()
    }
}

impl Drop for Handout {
    fn drop(&mut self) {
        if self.leased.is_empty() {
            return;
        }
        let identities: Vec<_> = self
            .leased
            .drain(..)
            .map(|leased| leased.identity)
            .collect();
        let core = Arc::clone(&self.core);
        let tasks = core.tasks.clone();
        tasks.spawn(async move { core.release(identities).await });
    }
}

/// The most body bytes of one handout, so that a batch of the largest messages does not
/// fill the memory; the first message always goes.
const HANDOUT_BYTES_MAX: usize = 16 << 20;
/// How many messages one look passes over when a filter wants none of them.
const FILTERED_MAX: usize = 1_024;

impl Core {
    /// Hands out up to a batch of messages, waiting for a first one.
    pub(crate) async fn receive(
        self: &Arc<Self>,
        request: ReceiveRequest,
    ) -> Result<Handout, BrokerError> {
        let request = Arc::new(request);
        let topic = self.catalog.route(&request.topic).await?;
        let group = self.catalog.consumer(&request.group).await?;
        let consumption = self.consumptions.get(&group, &topic).await?;
        let until = Instant::now() + request.wait_max;
        loop {
            // Registered before the look, so that nothing that becomes ready between the
            // look and the wait is missed.
            let ready = consumption.ready.notified();
            let handout = self.look(&consumption, &request).await?;
            if !handout.is_empty() {
                return Ok(handout);
            }
            // Ties are decided in this order and not by chance: a wake-up for nothing never
            // outlasts the wait, and one seed of a simulation is one run.
            tokio::select! {
                biased;
                () = self.closing.cancelled() => return Err(BrokerError::ShuttingDown),
                () = tokio::time::sleep_until(until) => return Ok(handout),
                () = ready => {}
            }
        }
    }

    /// One look, in a task of its own: whoever asked may go away in the middle of it.
    async fn look(
        self: &Arc<Self>,
        consumption: &Arc<Consumption>,
        request: &Arc<ReceiveRequest>,
    ) -> Result<Handout, BrokerError> {
        let core = Arc::clone(self);
        let consumption = Arc::clone(consumption);
        let request = Arc::clone(request);
        let look = self
            .tasks
            .spawn(async move { core.pop(&consumption, &request).await });
        look.await.map_err(|_| self.panicked())?
    }

    async fn pop(
        self: &Arc<Self>,
        consumption: &Arc<Consumption>,
        request: &ReceiveRequest,
    ) -> Result<Handout, BrokerError> {
        // From here on what is leased is in a handout, which releases it on every error.
        let mut handout = Handout {
            core: Arc::clone(self),
            leased: Vec::new(),
        };
        let mut room = Room {
            messages: request.batch_size.min(limits::RECEIVE_BATCH_MAX),
            bytes: HANDOUT_BYTES_MAX,
        };
        let turn = consumption.next_turn();
        // Retries first in one look of five, so that neither kind starves the other.
        let retries_first = turn.is_multiple_of(5);
        let mut trouble = Trouble::default();
        if retries_first {
            trouble.note(
                self.pop_retries(consumption, request, &mut room, &mut handout)
                    .await,
            )?;
        }
        for subscription in consumption.queues_from(turn) {
            trouble.note(
                self.pop_queue(consumption, subscription, request, &mut room, &mut handout)
                    .await,
            )?;
        }
        if !retries_first {
            trouble.note(
                self.pop_retries(consumption, request, &mut room, &mut handout)
                    .await,
            )?;
        }
        if room.is_full() || trouble.first.is_some() {
            // There may be more, or something was given back: the next waiting receive looks.
            consumption.ready.notify_one();
        }
        trouble.weigh(handout)
    }

    /// Hands out new messages of one queue.
    async fn pop_queue(
        self: &Arc<Self>,
        consumption: &Consumption,
        subscription: &Arc<Subscription>,
        request: &ReceiveRequest,
        room: &mut Room,
        handout: &mut Handout,
    ) -> Result<(), BrokerError> {
        let mut passed_over = 0;
        while !room.is_full() && passed_over < FILTERED_MAX {
            let bounds = self.log.bounds(subscription.log_queue()).await?;
            let taken = subscription
                .offsets
                .lock()
                .reserve(room.messages, bounds.end);
            if taken.is_empty() {
                return Ok(());
            }
            let mut reserved = Reserved::new(subscription, taken);
            let entries = self
                .log
                .read(subscription.log_queue(), &reserved.offsets)
                .await?;
            let sorted = self
                .sort(subscription, request, &reserved.offsets, entries, room)
                .await?;
            passed_over += sorted.skipped.len();
            for bad in sorted.bad {
                self.quarantine_message(subscription, &mut reserved, bad)
                    .await?;
            }
            let identities = sorted.wanted.iter().map(|wanted| {
                let identity = self.identity(
                    subscription.queue,
                    subscription,
                    wanted.offset,
                    Generation::FIRST,
                );
                (identity, 1, None)
            });
            let leases = self.leases(request, RetryKind::Normal, identities);
            let mut batch = WriteBatch::new();
            if sorted.has_holes {
                self.log
                    .put_end(&mut batch, subscription.log_queue(), bounds.end)
                    .await?;
            }
            let mut settled = sorted.skipped;
            for lease in &leases {
                lease::put_new(&mut batch, &lease.checkpoint);
                settled.push(lease.checkpoint.identity.offset);
            }
            let outcome = self
                .settle(subscription, &mut reserved, settled, batch)
                .await;
            land(&leases, outcome.as_ref().err());
            outcome?;
            // What was reserved and did not fit is handed back here.
            drop(reserved);
            let topic = &consumption.topic.record().name;
            for (lease, wanted) in leases.into_iter().zip(sorted.wanted) {
                room.take(wanted.body.len());
                handout.leased.push(self.leased(
                    topic,
                    subscription.log_queue(),
                    lease.checkpoint,
                    wanted,
                ));
            }
        }
        if passed_over >= FILTERED_MAX {
            // The filter passed over this many and there are more: the next look goes on.
            consumption.ready.notify_one();
        }
        Ok(())
    }

    /// Sorts what was read into wanted, skipped and bad, and fetches bodies. What does not
    /// fit stays reserved, and is handed back by the caller.
    async fn sort(
        &self,
        subscription: &Subscription,
        request: &ReceiveRequest,
        offsets: &[Offset],
        entries: Vec<LogEntry>,
        room: &Room,
    ) -> Result<Sorted, BrokerError> {
        let mut sorted = Sorted::default();
        let mut bytes = room.bytes;
        let mut entries = entries.into_iter().peekable();
        for offset in offsets {
            let Some(entry) = entries.next_if(|entry| entry.offset == *offset) else {
                tracing::debug!(queue = %subscription.queue, offset = offset.get(), "skipped an offset without a message");
                sorted.skipped.push(*offset);
                sorted.has_holes = true;
                continue;
            };
            let message = match entry.message {
                Ok(message) => message,
                Err(error) => {
                    sorted
                        .bad
                        .push(Bad::new(*offset, entry.row, error.to_string()));
                    continue;
                }
            };
            if !request.filter.matches(&message) {
                sorted.skipped.push(*offset);
                continue;
            }
            let size = message.body.byte_count();
            if size > bytes && !sorted.wanted.is_empty() {
                break;
            }
            bytes = bytes.saturating_sub(size);
            match self.log.body(&message).await {
                Ok(body) => sorted.wanted.push(Wanted {
                    offset: *offset,
                    message,
                    body,
                }),
                Err(error) if error.kind() == ErrorKind::Corrupt => {
                    sorted
                        .bad
                        .push(Bad::new(*offset, entry.row, error.to_string()));
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(sorted)
    }

    /// Settles offsets together with `batch`, when it is this write's turn in its queue.
    async fn settle(
        &self,
        subscription: &Subscription,
        reserved: &mut Reserved,
        offsets: Vec<Offset>,
        mut batch: WriteBatch,
    ) -> Result<(), BrokerError> {
        if offsets.is_empty() {
            return Ok(());
        }
        let _turn = subscription
            .settle_turn
            .acquire()
            .await
            .map_err(|_| BrokerError::ShuttingDown)?;
        reserved.hand_over(&offsets);
        let plan = subscription.offsets.lock().plan(offsets);
        // The turn lets one plan be in flight. One that never came back means that a write
        // ended without an answer: only opening the store anew tells what it did.
        let plan = plan.ok_or_else(|| {
            pop_store::Error::new(ErrorKind::InDoubt, self.store.name(), "settle").with_detail(
                format!("an earlier write of {} never ended", subscription.queue),
            )
        })?;
        for (page, marks) in plan.pages() {
            progress::put_page(&mut batch, subscription.queue, *page, marks);
        }
        for page in plan.dropped_pages() {
            progress::delete_page(&mut batch, subscription.queue, *page);
        }
        if let Some(committed) = plan.committed() {
            progress::put(
                &mut batch,
                subscription.queue,
                &subscription.progress(committed),
            );
        }
        match self.store.settle(plan, batch, Durability::Buffered).await {
            Ok(settled) => {
                subscription.offsets.lock().settled(settled);
                Ok(())
            }
            Err(unsettled) => {
                // In doubt, the offsets stay reserved until the store was opened anew.
                if unsettled.error.outcome() == Outcome::Refused {
                    subscription.offsets.lock().refused(unsettled.work);
                }
                Err(unsettled.error.into())
            }
        }
    }

    /// Puts a copy of a row that can't be delivered away, and passes its offset.
    async fn quarantine_message(
        &self,
        subscription: &Subscription,
        reserved: &mut Reserved,
        bad: Bad,
    ) -> Result<(), BrokerError> {
        let key = pop_model::LogKey {
            queue: subscription.log_queue(),
            offset: bad.offset,
        };
        tracing::error!(queue = %subscription.queue, offset = bad.offset.get(), reason = %bad.reason, "a message went to quarantine");
        let mut batch = WriteBatch::new();
        let sequence = self.quarantine.next(self.clock.lease());
        let record = self.quarantine_record(LOG, key.encode(), bad.row, bad.reason);
        quarantine::put_copy(&mut batch, sequence, record);
        self.settle(subscription, reserved, vec![bad.offset], batch)
            .await?;
        self.options.counters.quarantined.add(1);
        Ok(())
    }

    /// Hands out messages that are ready for another delivery.
    async fn pop_retries(
        self: &Arc<Self>,
        consumption: &Arc<Consumption>,
        request: &ReceiveRequest,
        room: &mut Room,
        handout: &mut Handout,
    ) -> Result<(), BrokerError> {
        while !room.is_full() {
            let sequences = consumption.retry.lock().take(room.messages);
            if sequences.is_empty() {
                return Ok(());
            }
            let mut taken = TakenRetries::new(consumption, sequences);
            let keys: Vec<RetryKey> = taken
                .sequences
                .iter()
                .map(|sequence| retry_key(consumption, *sequence))
                .collect();
            let encoded: Vec<Bytes> = keys.iter().map(StoredKey::encode).collect();
            let rows = self.store.multi_get(RETRY, &encoded).await?;
            let mut wanted = Vec::new();
            let mut batch = WriteBatch::new();
            let mut removed = Vec::new();
            let mut quarantined = 0;
            let mut bytes = room.bytes;
            for (key, row) in keys.into_iter().zip(rows) {
                let Some(row) = row else {
                    taken.absent(key.sequence);
                    continue;
                };
                match self.retry_message(request, row.clone()).await? {
                    Retry::Wanted(found) => {
                        let (entry, message) = *found;
                        if message.body.len() > bytes && !wanted.is_empty() {
                            continue;
                        }
                        bytes = bytes.saturating_sub(message.body.len());
                        wanted.push((entry, message));
                        retry::remove(&mut batch, key, row);
                    }
                    Retry::Skipped => retry::remove(&mut batch, key, row),
                    Retry::Bad(reason) => {
                        tracing::error!(group = %consumption.group.name, topic = %consumption.topic.record().name, %reason, "a retry entry went to quarantine");
                        let sequence = self.quarantine.next(self.clock.lease());
                        let record = self.quarantine_record(RETRY, key.encode(), row, reason);
                        quarantine::put_away(&mut batch, sequence, RETRY, record);
                        quarantined += 1;
                    }
                }
                removed.push(key.sequence);
            }
            let identities = wanted.iter().map(|(entry, message)| {
                let queue = SubscriptionQueue {
                    group: consumption.group.id,
                    topic: entry.source.topic,
                    queue: entry.source.queue,
                };
                let identity = DeliveryIdentity {
                    queue,
                    epoch: entry.epoch,
                    offset: message.offset,
                    incarnation: self.incarnation,
                    generation: entry.generation,
                };
                (
                    identity,
                    entry.delivery_attempt,
                    Some(entry.first_popped_at),
                )
            });
            let leases = self.leases(request, RetryKind::RetryV2, identities);
            for lease in &leases {
                lease::put_new(&mut batch, &lease.checkpoint);
            }
            let outcome = self
                .remove_retries(consumption, &mut taken, &removed, batch)
                .await;
            land(&leases, outcome.as_ref().err());
            outcome?;
            self.options.counters.quarantined.add(quarantined);
            drop(taken);
            let topic = &consumption.topic.record().name;
            for (lease, (entry, message)) in leases.into_iter().zip(wanted) {
                room.take(message.body.len());
                handout
                    .leased
                    .push(self.leased(topic, entry.source, lease.checkpoint, message));
            }
        }
        Ok(())
    }

    /// What a retry entry stands for now.
    async fn retry_message(
        &self,
        request: &ReceiveRequest,
        row: Bytes,
    ) -> Result<Retry, BrokerError> {
        let entry = match RetryEntry::decode(row) {
            Ok(entry) => entry,
            Err(error) => return Ok(Retry::Bad(error.to_string())),
        };
        let found = self.log.read(entry.source, &[entry.offset]).await?;
        let Some(found) = found.into_iter().next() else {
            tracing::warn!(
                ?entry,
                "a message that was to be delivered again is no longer in the log"
            );
            return Ok(Retry::Skipped);
        };
        let message = match found.message {
            Ok(message) => message,
            Err(error) => return Ok(Retry::Bad(error.to_string())),
        };
        if !request.filter.matches(&message) {
            return Ok(Retry::Skipped);
        }
        match self.log.body(&message).await {
            Ok(body) => {
                let offset = entry.offset;
                let wanted = Wanted {
                    offset,
                    message,
                    body,
                };
                Ok(Retry::Wanted(Box::new((entry, wanted))))
            }
            Err(error) if error.kind() == ErrorKind::Corrupt => Ok(Retry::Bad(error.to_string())),
            Err(error) => Err(error.into()),
        }
    }

    fn quarantine_record(
        &self,
        keyspace: Keyspace,
        key: Bytes,
        value: Bytes,
        reason: String,
    ) -> QuarantineRecord {
        QuarantineRecord {
            reason,
            keyspace: keyspace.name().into(),
            key,
            value,
            at: self.clock.wall(),
        }
    }

    async fn remove_retries(
        &self,
        consumption: &Consumption,
        taken: &mut TakenRetries,
        sequences: &[u64],
        mut batch: WriteBatch,
    ) -> Result<(), BrokerError> {
        if sequences.is_empty() {
            return Ok(());
        }
        let removal = consumption.retry.lock().plan_removal(sequences);
        retry::put_floor(
            &mut batch,
            consumption.group.id,
            consumption.topic.record().id,
            removal.floor(),
        );
        taken.hand_over(sequences);
        match self
            .store
            .settle(removal, batch, Durability::Buffered)
            .await
        {
            Ok(removed) => {
                consumption.retry.lock().removed(removed);
                Ok(())
            }
            Err(unsettled) => {
                if unsettled.error.outcome() == Outcome::Refused {
                    taken.take_back(sequences);
                }
                Err(unsettled.error.into())
            }
        }
    }

    fn identity(
        &self,
        queue: SubscriptionQueue,
        subscription: &Subscription,
        offset: Offset,
        generation: Generation,
    ) -> DeliveryIdentity {
        DeliveryIdentity {
            queue,
            epoch: subscription.record.epoch,
            offset,
            incarnation: self.incarnation,
            generation,
        }
    }

    /// Makes the leases of a receive, each announced to the due schedule.
    fn leases(
        &self,
        request: &ReceiveRequest,
        retry_kind: RetryKind,
        deliveries: impl Iterator<Item = (DeliveryIdentity, u32, Option<LeaseTime>)>,
    ) -> Vec<NewLease> {
        let now = self.clock.lease();
        let deadline = now.saturating_add(request.invisible_for);
        let attempt_id: Option<Box<str>> = request.attempt_id.as_deref().map(Into::into);
        let lease = |(identity, delivery_attempt, first_popped_at): (
            DeliveryIdentity,
            u32,
            Option<LeaseTime>,
        )| {
            let ticket = self.schedule.announce(identity.queue.shard(), deadline);
            NewLease {
                checkpoint: Checkpoint {
                    identity,
                    popped_at: now,
                    invisible_for: request.invisible_for,
                    visible_at: ticket.deadline(),
                    delivery_attempt,
                    revive_failures: 0,
                    attempt_id: attempt_id.clone(),
                    suspend: false,
                    auto_renew: request.auto_renew,
                    retry_kind,
                    message_group_hash: None,
                    first_popped_at: first_popped_at.unwrap_or(now),
                },
                ticket,
            }
        };
        deliveries.map(lease).collect()
    }

    fn leased(
        &self,
        topic: &TopicName,
        source: LogQueue,
        checkpoint: Checkpoint,
        wanted: Wanted,
    ) -> Leased {
        Leased {
            delivery: Delivery {
                message: wanted.message,
                body: wanted.body,
                topic: topic.clone(),
                source,
                offset: wanted.offset,
                delivery_attempt: checkpoint.delivery_attempt,
                invisible_for: checkpoint.invisible_for,
                handle: self.handles.seal(&checkpoint.identity),
            },
            identity: checkpoint.identity,
        }
    }
}

/// The queues that failed during a look. One bad queue holds up no other: what the others
/// gave is handed out, and the failure is told to whoever gets nothing.
#[derive(Default)]
struct Trouble {
    first: Option<BrokerError>,
}

impl Trouble {
    /// Goes on after a failure of one queue, and not after one of the whole store.
    fn note(&mut self, outcome: Result<(), BrokerError>) -> Result<(), BrokerError> {
        match outcome {
            Err(error) if error.needs_reopen() => Err(error),
            Err(error) => {
                tracing::warn!(%error, "a queue could not be looked at");
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
    // Some of them hold no message.
    has_holes: bool,
    bad: Vec<Bad>,
}

struct Wanted {
    offset: Offset,
    message: Message,
    body: Bytes,
}

struct Bad {
    offset: Offset,
    row: Bytes,
    reason: String,
}

impl Bad {
    fn new(offset: Offset, row: Bytes, reason: String) -> Self {
        Self {
            offset,
            row,
            reason,
        }
    }
}

enum Retry {
    Wanted(Box<(RetryEntry, Wanted)>),
    Skipped,
    Bad(String),
}

struct NewLease {
    checkpoint: Checkpoint,
    ticket: DueTicket,
}

/// Reserved offsets that are somebody's responsibility: dropped, they are ready again.
struct Reserved {
    subscription: Arc<Subscription>,
    offsets: Vec<Offset>,
}

impl Reserved {
    fn new(subscription: &Arc<Subscription>, offsets: Vec<Offset>) -> Self {
        Self {
            subscription: Arc::clone(subscription),
            offsets,
        }
    }

    /// The plan of a write answers for these from now on.
    fn hand_over(&mut self, offsets: &[Offset]) {
        self.offsets.retain(|offset| !offsets.contains(offset));
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        if !self.offsets.is_empty() {
            self.subscription
                .offsets
                .lock()
                .release(self.offsets.drain(..));
        }
    }
}

/// Retry entries that are taken: dropped, they are ready again.
struct TakenRetries {
    consumption: Arc<Consumption>,
    sequences: Vec<u64>,
}

impl TakenRetries {
    fn new(consumption: &Arc<Consumption>, sequences: Vec<u64>) -> Self {
        Self {
            consumption: Arc::clone(consumption),
            sequences,
        }
    }

    /// The store does not have this one.
    fn absent(&mut self, sequence: u64) {
        self.hand_over(&[sequence]);
        self.consumption.retry.lock().absent(sequence);
    }

    /// The removal that is written answers for these from now on.
    fn hand_over(&mut self, sequences: &[u64]) {
        self.sequences
            .retain(|sequence| !sequences.contains(sequence));
    }

    /// The removal was refused.
    fn take_back(&mut self, sequences: &[u64]) {
        self.sequences.extend(sequences);
    }
}

impl Drop for TakenRetries {
    fn drop(&mut self) {
        let mut retry = self.consumption.retry.lock();
        for sequence in self.sequences.drain(..) {
            retry.put_back(sequence);
        }
    }
}

fn retry_key(consumption: &Consumption, sequence: u64) -> RetryKey {
    RetryKey {
        group: consumption.group.id,
        topic: consumption.topic.record().id,
        sequence,
    }
}

/// Tells the due schedule what became of the leases that were written. In doubt, they
/// stay announced: the floor waits below them until the store was opened anew.
fn land(leases: &[NewLease], error: Option<&BrokerError>) {
    let in_doubt =
        matches!(error, Some(BrokerError::Store(error)) if error.outcome() == Outcome::InDoubt);
    if !in_doubt {
        for lease in leases {
            lease.ticket.landed();
        }
    }
}
