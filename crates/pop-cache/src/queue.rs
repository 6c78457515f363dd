//! The leases and the gate of one subscription queue: a pure state machine.
//!
//! No store, no clock, no lock. Every offset below `next` is in exactly one state:
//!
//! ```text
//! ready ──reserve──▶ reserved ──lease──▶ buffered ──ack──▶ settled
//!   ▲                   │                   │  ▲
//!   └──────release──────┘            sweep  ▼  │ refused
//!                                        staged ──Durable<SettlePlan>──▶ settled
//! ```
//!
//! *Settled* is a mark on a page, and the gate is the lowest offset without one: whatever
//! else an offset may be, it holds the gate, and there is no list of such states to forget
//! one in. What is staged leaves only with the proof that its plan is written, so clearing
//! it before its outcome is known does not compile.
//!
//! In an *ordered* queue (a FIFO group) what is ready waits in its message group, and a
//! row in the store only remembers its attempts and its deadline: the offset stays open.
//! Beyond a bound, what waits is parked in the store.

mod groups;
mod hand_out;
mod looks;
mod pages;
mod parking;
mod plan;
mod receives;
mod repeat;
mod settle;
mod sweep;

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    time::Duration,
};

use pop_model::{
    Checkpoint, DeliveryIdentity, Generation, Incarnation, LeaseTime, MarkPage, Offset, RetryKind,
    SubscriptionEpoch, SubscriptionQueue,
};
use pop_store::table::parked::Parked;

pub use hand_out::{GiveBack, Granted, Reservation, Terms};
pub use parking::Admitted;
pub use plan::{Keep, SettlePlan};
pub use settle::{Ack, Change, Taken};
pub use sweep::{StagedLease, Why};

use groups::MessageGroups;
use looks::Looks;
use pages::{Pages, SlotState};
use parking::ParkedEnd;
use receives::{Receive, ReceiveId, Receives};

/// What a queue is restored from.
#[derive(Debug)]
pub struct Restored {
    /// Which queue.
    pub queue: SubscriptionQueue,
    /// How often its offset was reset.
    pub epoch: SubscriptionEpoch,
    /// Below it everything is settled.
    pub committed: Offset,
    /// Pages of settled marks, as stored.
    pub pages: Vec<(u64, MarkPage)>,
    /// Where the group consumes in order: the rows of its open deliveries.
    pub ordered: Option<Vec<Checkpoint>>,
    /// What is parked of such a queue.
    pub parked: RestoredParked,
    /// The start of the log. What lies below it has ended, and its row with it.
    pub log_start: Offset,
    /// The end of the log. No mark is at or above it.
    pub log_end: Offset,
    /// The end of the log when this run began. A handle of an earlier run speaks of the
    /// message at its offset if that was there then: what a crash took away is followed by
    /// another message with its offset.
    pub found_end: Offset,
}

/// What is parked of a queue that is restored, each with the hash of its message group.
#[derive(Clone, Debug, Default)]
pub struct RestoredParked {
    /// The lowest one of each message group, beside those that are out.
    pub first: Vec<Parked>,
    /// Those that have a row, and whatever lies before one in its message group: in order.
    pub out: Vec<Parked>,
    /// How many there are in all.
    pub count: u64,
}

/// What all queues of one run have in common.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// This run.
    pub incarnation: Incarnation,
    /// The one before it.
    pub previous: Option<Incarnation>,
    /// How long a lease stays in memory before it is stored.
    pub stay: Duration,
    /// How many messages of an ordered queue may wait in memory behind others.
    pub held_max: usize,
}

/// How many offsets of a queue are in which state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Being read or handed over.
    pub reserved: usize,
    /// Leases in memory.
    pub buffered: usize,
    /// Leases whose end or whose row is being written.
    pub staged: usize,
}

impl Counts {
    /// All of them.
    #[must_use]
    pub fn in_memory(self) -> usize {
        self.reserved + self.buffered + self.staged
    }
}

/// The states of the offsets of one (group, topic, queue).
#[derive(Debug)]
pub struct LeaseQueue {
    queue: SubscriptionQueue,
    epoch: SubscriptionEpoch,
    run: Run,
    // See `Restored::log_start` and `Restored::found_end`.
    log_start: Offset,
    found_end: Offset,
    committed: Offset,
    gate: Offset,
    next: Offset,
    ready: BTreeSet<Offset>,
    groups: Option<MessageGroups>,
    pages: Pages,
    receives: Receives,
    looks: Looks,
    counts: Counts,
    // Acknowledged offsets whose row goes in the batch with their mark.
    rows_ended: Vec<Offset>,
    // Rows of open deliveries of an ordered queue.
    rows: HashMap<Offset, Checkpoint>,
    // Those that were changed and that the store has as they were.
    rows_changed: BTreeSet<Offset>,
    // Reserved offsets that are to be parked, with their message groups.
    parking: HashMap<Offset, u64>,
    // How many messages are parked, in memory or not, and those whose row is to go.
    parked_count: u64,
    parked_ended: Vec<ParkedEnd>,
    // How many acknowledgements there were; how many of them are committed; and how many of
    // those are synced.
    acks: u64,
    acks_committed: u64,
    acks_durable: u64,
    planning: bool,
}

impl LeaseQueue {
    /// The state after a start: everything that carries no mark is ready.
    #[must_use]
    pub fn restore(restored: Restored, run: Run) -> Self {
        let mut pages = Pages::restore(restored.committed, restored.pages, restored.log_end);
        let gate = pages.first_open_from(restored.committed);
        pages.pass(gate);
        let is_ordered = restored.ordered.is_some();
        let rows = restored.ordered.into_iter().flatten();
        let parked = restored.parked;
        let is_parked: HashSet<Offset> = parked.out.iter().map(|(_, offset)| *offset).collect();
        // A row of a settled offset is of a message that retention took: it goes, too.
        let (ended, rows): (Vec<_>, Vec<_>) =
            rows.map(|row| (row.identity.offset, row))
                .partition(|(offset, _)| {
                    let is_settled = *offset < gate || pages.is_settled(*offset);
                    is_settled && !is_parked.contains(offset)
                });
        let mut queue = Self {
            queue: restored.queue,
            epoch: restored.epoch,
            run,
            log_start: restored.log_start,
            found_end: restored.found_end,
            committed: restored.committed,
            gate,
            next: gate,
            ready: BTreeSet::new(),
            groups: is_ordered.then(MessageGroups::default),
            pages,
            receives: Receives::default(),
            looks: Looks::default(),
            counts: Counts::default(),
            rows_ended: ended.into_iter().map(|(offset, _)| offset).collect(),
            rows: rows.into_iter().collect(),
            rows_changed: BTreeSet::new(),
            parking: HashMap::new(),
            parked_count: parked.count,
            parked_ended: Vec::new(),
            acks: 0,
            acks_committed: 0,
            acks_durable: 0,
            planning: false,
        };
        queue.restore_parked(&parked.first, &parked.out);
        queue.block_what_is_out(restored.log_end);
        queue
    }

    /// Message groups of which a delivery is out, as rows say, wait for it from the start. What
    /// is behind the end of the log is nothing that could be read.
    fn block_what_is_out(&mut self, log_end: Offset) {
        let Some(groups) = &mut self.groups else {
            return;
        };
        let out = self
            .rows
            .iter()
            .filter(|(offset, row)| **offset < log_end && row.visible_at > LeaseTime::ZERO);
        for (offset, row) in out {
            if let Some(group) = row.message_group_hash.filter(|_| !groups.knows(*offset)) {
                groups.block_until_read(*offset, group);
            }
        }
    }

    /// Begins anew at `to`, in a later epoch: whatever was out is void, and so is whatever
    /// is being written of it. Call it once the reset is synced.
    pub fn reset(&mut self, epoch: SubscriptionEpoch, to: Offset) {
        let restored = Restored {
            queue: self.queue,
            epoch,
            committed: to,
            pages: Vec::new(),
            ordered: self.groups.as_ref().map(|_| Vec::new()),
            parked: RestoredParked::default(),
            log_start: self.log_start,
            log_end: to,
            found_end: self.found_end,
        };
        // Nobody waits any longer for what is void.
        let acks = self.acks;
        *self = Self {
            acks,
            acks_committed: acks,
            acks_durable: acks,
            ..Self::restore(restored, self.run)
        };
    }

    /// Which queue this is.
    #[must_use]
    pub fn queue(&self) -> SubscriptionQueue {
        self.queue
    }

    /// How often its offset was reset.
    #[must_use]
    pub fn epoch(&self) -> SubscriptionEpoch {
        self.epoch
    }

    /// The offset below which everything is settled, as the store has it.
    #[must_use]
    pub fn committed(&self) -> Offset {
        self.committed
    }

    /// The lowest offset that is not settled, as memory has it.
    #[must_use]
    pub fn gate(&self) -> Offset {
        self.gate
    }

    /// The lowest offset that was never handed out.
    #[must_use]
    pub fn next(&self) -> Offset {
        self.next
    }

    /// How many offsets are in which state.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Whether its group consumes in order.
    #[must_use]
    pub fn is_ordered(&self) -> bool {
        self.groups.is_some()
    }

    /// How many open messages of an ordered queue are known.
    #[must_use]
    pub fn held(&self) -> usize {
        self.groups.as_ref().map_or(0, MessageGroups::open_count)
    }

    /// How many messages are parked, those included that are in memory again.
    #[must_use]
    pub fn parked_count(&self) -> u64 {
        self.parked_count
    }

    /// How many offsets below `end`, the end of the log, are not settled for good.
    #[must_use]
    pub fn open_below(&self, end: Offset) -> u64 {
        let all = end.distance_from(self.gate);
        let open = all.saturating_sub(self.pages.settled_between(self.gate, end));
        open.saturating_add(self.parked_count)
    }

    /// Whether an offset below `below` is on its way: being handed over, or its outcome
    /// being written.
    #[must_use]
    pub fn is_moving_below(&self, below: Offset) -> bool {
        let end = below.min(self.next);
        let mut offset = self.pages.first_open_from(self.gate);
        while offset < end {
            let state = self.state(offset);
            if matches!(state, Some(SlotState::Reserved | SlotState::Staged(_))) {
                return true;
            }
            offset = self.pages.first_open_from(offset.next());
        }
        false
    }

    /// Whether something could be handed out, if the log ends at `readable_end`.
    #[must_use]
    pub fn has_ready(&self, readable_end: Offset) -> bool {
        let waiting = match &self.groups {
            Some(groups) => groups.has_ready() || self.waits_for_parked().is_some(),
            None => !self.ready.is_empty(),
        };
        waiting || self.pages.first_open_from(self.next) < readable_end
    }

    /// When to sweep next: nothing is due and nothing has stayed too long before it.
    #[must_use]
    pub fn next_look(&self) -> Option<LeaseTime> {
        self.looks.earliest()
    }

    /// Whether the store lacks something that memory knows to be settled, or has it and
    /// has not synced it.
    #[must_use]
    pub fn is_dirty(&self) -> bool {
        self.pages.is_dirty()
            || !self.rows_ended.is_empty()
            || !self.parked_ended.is_empty()
            || !self.rows_changed.is_empty()
            || self.gate > self.committed
            || self.acks_committed > self.acks_durable
            || self.pages.has_stored_below(self.committed)
    }

    /// Whether memory holds nothing that the store does not, so that it may forget all.
    ///
    /// Deliveries are numbered in memory. A queue with open offsets therefore stays: begun
    /// anew in the same run, it would give two deliveries one number.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        if pop_model::Mutant::EvictionRacesAReceive.is_on() {
            return !self.planning && !self.is_dirty();
        }
        let is_open = self.gate < self.next || self.pages.has_unparked();
        !self.planning && !self.is_dirty() && !is_open && self.rows.is_empty()
    }

    /// How many acknowledgements there were so far.
    #[must_use]
    pub fn acks(&self) -> u64 {
        self.acks
    }

    /// How many of them are in the store, and synced.
    #[must_use]
    pub fn acks_durable(&self) -> u64 {
        self.acks_durable
    }

    /// Whether an offset is settled. What lies below the gate is, marked or not, unless it
    /// was parked and is in memory again.
    fn is_settled(&self, offset: Offset) -> bool {
        let is_marked = offset < self.gate || self.pages.is_settled(offset);
        is_marked && !self.pages.is_unparked(offset)
    }

    /// The state of an offset that is not settled.
    fn state(&self, offset: Offset) -> Option<SlotState> {
        if self.is_settled(offset) {
            return None;
        }
        self.pages.state(offset)
    }

    fn identity(&self, offset: Offset, generation: Generation) -> DeliveryIdentity {
        DeliveryIdentity {
            queue: self.queue,
            epoch: self.epoch,
            offset,
            incarnation: self.run.incarnation,
            generation,
        }
    }

    fn retry_kind(&self) -> RetryKind {
        match self.queue.is_retry() {
            true => RetryKind::RetryV2,
            false => RetryKind::Normal,
        }
    }

    /// Makes a lease of an offset, as part of `receive`.
    fn buffer(&mut self, offset: Offset, receive: ReceiveId) {
        self.pages.set_state(offset, SlotState::Buffered(receive));
        self.counts.buffered += 1;
    }

    /// An offset is no longer part of a receive.
    fn leave(&mut self, offset: Offset, receive: ReceiveId) {
        if let Some(groups) = &mut self.groups {
            let receive = self.receives.get(receive);
            if let Some(name) = receive.and_then(|receive| self.receives.name_of(receive)) {
                groups.unname(name, offset);
            }
        }
        self.receives.leave(receive);
    }

    /// Makes an offset that is not settled ready again.
    fn make_ready(&mut self, offset: Offset) {
        match &mut self.groups {
            Some(groups) if groups.knows(offset) => {
                self.pages.set_state(offset, SlotState::Held);
                groups.unlease(offset);
            }
            _ => {
                self.pages.set_state(offset, SlotState::Ready);
                self.ready.insert(offset);
            }
        }
    }

    /// Marks an offset settled, whatever it was.
    fn settle_offset(&mut self, offset: Offset, durable: bool) {
        let state = self.state(offset);
        match state {
            Some(SlotState::Buffered(receive)) => {
                self.counts.buffered -= 1;
                self.leave(offset, receive);
            }
            Some(SlotState::Staged(receive)) => {
                self.counts.staged -= 1;
                self.leave(offset, receive);
            }
            Some(SlotState::Reserved) => {
                self.counts.reserved -= 1;
                self.parking.remove(&offset);
            }
            Some(SlotState::Ready) => {
                self.ready.remove(&offset);
            }
            Some(SlotState::Held) | None => {}
        }
        if self.pages.end_unparked(offset) {
            let groups = self.groups.as_ref();
            if let Some(group) = groups.and_then(|groups| groups.group_of(offset)) {
                self.end_parked((group, offset), durable);
            }
        } else if !self.pages.settle(offset, durable) {
            return;
        }
        if let Some(groups) = &mut self.groups {
            if !matches!(state, None | Some(SlotState::Held | SlotState::Ready)) {
                groups.unlease(offset);
            }
            groups.remove(offset);
        }
        if offset == self.gate {
            self.gate = self.pages.first_open_from(offset);
            self.next = self.next.max(self.gate);
            self.pages.pass(self.gate);
        }
    }

    /// When a receive is to be looked at: when it is due, or has stayed long enough.
    fn look_at(&self, receive: &Receive) -> LeaseTime {
        receive
            .visible_at()
            .min(receive.delivered_at.saturating_add(self.run.stay))
    }

    /// The delivery of a staged or buffered offset, as it is stored.
    fn checkpoint(&self, offset: Offset, receive: &Receive) -> Checkpoint {
        let generation = self.pages.generation(offset);
        let mine = self.identity(offset, generation);
        // One that was restored keeps the identity that its consumer knows.
        let restored = self
            .rows
            .get(&offset)
            .filter(|row| generation == Generation::NONE || row.identity == mine);
        Checkpoint {
            identity: restored.map_or(mine, |row| row.identity),
            popped_at: receive.delivered_at,
            invisible_for: Duration::from_millis(u64::from(receive.visible_in_ms)),
            visible_at: receive.visible_at(),
            delivery_attempt: u32::from(receive.attempt),
            revive_failures: restored.map_or(0, |row| row.revive_failures),
            attempt_id: self.receives.name_of(receive).map(Into::into),
            suspend: receive.suspend,
            auto_renew: receive.auto_renew,
            retry_kind: self.retry_kind(),
            message_group_hash: self
                .groups
                .as_ref()
                .and_then(|groups| groups.group_of(offset)),
            first_popped_at: receive.delivered_at,
        }
    }
}

#[cfg(test)]
mod tests;
