//! From ready to leased: reserve, read, lease; and back, if it came to nothing.

use std::time::Duration;

use pop_model::{
    Checkpoint, DeliveryIdentity, LeaseTime, LogBounds, Mutant, Offset, SubscriptionEpoch,
};

use super::{
    LeaseQueue,
    pages::SlotState,
    receives::{Receive, SPAN_MAX},
};

/// Offsets that are set aside for one receive, ascending. They are nobody else's until
/// they are leased, skipped or released.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reservation {
    /// The epoch in which they were reserved: after a reset they are void.
    pub epoch: SubscriptionEpoch,
    /// Which ones.
    pub offsets: Vec<Offset>,
}

/// What the leases of one receive have in common.
#[derive(Clone, Copy, Debug)]
pub struct Terms<'a> {
    /// The moment of the receive.
    pub now: LeaseTime,
    /// How long the messages are hidden from then on.
    pub invisible_for: Duration,
    /// Which delivery this is, where the queue itself does not count.
    pub attempt: u32,
    /// The client's name for the receive.
    pub attempt_id: Option<&'a str>,
    /// The server renews the leases while the consumer lives.
    pub auto_renew: bool,
}

/// A lease that was just made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Granted {
    /// Which delivery it is.
    pub identity: DeliveryIdentity,
    /// Its number, 1 for the first.
    pub attempt: u32,
}

/// What became of a delivery that was given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GiveBack {
    /// It is ready again, and the delivery never was.
    Ready,
    /// Its outcome is being written: try again when it is known.
    Wait,
    /// It left memory: its row says what it is.
    Stored,
    /// It is over.
    Over,
}

impl LeaseQueue {
    /// Takes up to `count` ready offsets, ascending: those that were handed back first,
    /// then new ones below the log's end.
    ///
    /// In an ordered queue only new ones, which are then [admitted](Self::admit).
    pub fn reserve(&mut self, count: usize, bounds: LogBounds) -> Reservation {
        self.skip_removed(bounds.start);
        let mut offsets = Vec::new();
        let count = match Mutant::SecondReceiveIsEmpty.is_on() && self.counts.reserved > 0 {
            true => 0,
            false => count,
        };
        while offsets.len() < count {
            let offset = match self.ready.pop_first() {
                Some(offset) => offset,
                None => {
                    self.next = self.pages.first_open_from(self.next);
                    if self.next >= bounds.end {
                        break;
                    }
                    let offset = self.next;
                    self.pages.open(offset);
                    self.next = offset.next();
                    offset
                }
            };
            self.pages.set_state(offset, SlotState::Reserved);
            self.counts.reserved += 1;
            offsets.push(offset);
        }
        Reservation {
            epoch: self.epoch,
            offsets,
        }
    }

    /// Takes the next batch of an ordered queue: consecutive open messages of one message
    /// group that is not blocked.
    pub fn reserve_group(&mut self, count: usize, after: Option<Offset>) -> Reservation {
        let groups = self.groups.as_ref();
        let offsets = groups.and_then(|groups| groups.take(count, after));
        let mut offsets = offsets.unwrap_or_default();
        offsets.retain(|offset| self.state(*offset) == Some(SlotState::Held));
        for offset in &offsets {
            self.pages.set_state(*offset, SlotState::Reserved);
            self.counts.reserved += 1;
            if let Some(groups) = &mut self.groups {
                groups.lease(*offset);
            }
        }
        Reservation {
            epoch: self.epoch,
            offsets,
        }
    }

    /// Makes a lease of an offset as its row says, and as if it was delivered `at` then.
    pub(super) fn go_on(&mut self, offset: Offset, row: &Checkpoint, at: LeaseTime) {
        let terms = Terms {
            now: at,
            invisible_for: row.visible_at.saturating_since(at),
            attempt: row.delivery_attempt,
            attempt_id: row.attempt_id.as_deref(),
            auto_renew: row.auto_renew,
        };
        let receive = self.new_receive(offset, &terms, row.suspend);
        if let (Some(groups), Some(name)) = (&mut self.groups, &row.attempt_id) {
            groups.name(name, offset);
        }
        self.buffer(offset, receive);
    }

    /// Makes leases of reserved offsets, ascending. Those that are no longer reserved, by a
    /// reset or since they were acknowledged meanwhile, are left out.
    pub fn lease(
        &mut self,
        epoch: SubscriptionEpoch,
        offsets: &[Offset],
        terms: &Terms<'_>,
    ) -> Vec<Granted> {
        let mut granted = Vec::with_capacity(offsets.len());
        let mut current: Option<(super::ReceiveId, Offset, u32)> = None;
        if epoch != self.epoch {
            return granted;
        }
        for offset in offsets {
            if self.state(*offset) != Some(SlotState::Reserved) {
                continue;
            }
            let attempt = self
                .groups
                .as_ref()
                .map_or(terms.attempt, |groups| groups.attempt(*offset));
            let joins = current.filter(|(_, first, of)| {
                *of == attempt && offset.distance_from(*first) < u64::from(SPAN_MAX)
            });
            let receive = match joins {
                Some((receive, first, _)) => {
                    let span = offset.distance_from(first) + 1;
                    self.receives
                        .join(receive, u16::try_from(span).unwrap_or(SPAN_MAX));
                    receive
                }
                None => {
                    let terms = Terms { attempt, ..*terms };
                    let receive = self.new_receive(*offset, &terms, false);
                    current = Some((receive, *offset, attempt));
                    receive
                }
            };
            self.counts.reserved -= 1;
            self.buffer(*offset, receive);
            let generation = self.pages.next_generation(*offset);
            if let (Some(groups), Some(name)) = (&mut self.groups, terms.attempt_id) {
                groups.name(name, *offset);
            }
            granted.push(Granted {
                identity: self.identity(*offset, generation),
                attempt,
            });
        }
        granted
    }

    /// The rows of leases that begin in the store and not in memory. Their offsets stay
    /// reserved until a plan settles them with the rows; refused, they never began.
    pub fn lease_as_rows(
        &mut self,
        epoch: SubscriptionEpoch,
        offsets: &[Offset],
        terms: &Terms<'_>,
    ) -> Vec<Checkpoint> {
        let mut rows = Vec::with_capacity(offsets.len());
        for offset in offsets {
            if epoch != self.epoch || self.state(*offset) != Some(SlotState::Reserved) {
                continue;
            }
            // Numbered at once, so that no earlier handle settles it any more.
            let generation = self.pages.next_generation(*offset);
            rows.push(Checkpoint {
                identity: self.identity(*offset, generation),
                popped_at: terms.now,
                invisible_for: terms.invisible_for,
                visible_at: terms.now.saturating_add(terms.invisible_for),
                delivery_attempt: terms.attempt,
                revive_failures: 0,
                attempt_id: terms.attempt_id.map(Into::into),
                suspend: false,
                auto_renew: terms.auto_renew,
                retry_kind: self.retry_kind(),
                message_group_hash: None,
                first_popped_at: terms.now,
            });
        }
        rows
    }

    pub(super) fn new_receive(
        &mut self,
        first: Offset,
        terms: &Terms<'_>,
        suspend: bool,
    ) -> super::ReceiveId {
        let millis = terms.invisible_for.as_millis();
        let attempt_id = terms.attempt_id.map(|name| self.receives.name(name));
        let receive = Receive {
            first,
            span: 1,
            open: 1,
            visible_in_ms: u32::try_from(millis).unwrap_or(u32::MAX),
            delivered_at: terms.now,
            attempt: u16::try_from(terms.attempt).unwrap_or(u16::MAX),
            suspend,
            auto_renew: terms.auto_renew,
            attempt_id,
        };
        let look = self.look_at(&receive);
        let id = self.receives.insert(receive);
        self.looks.insert(look, id);
        id
    }

    /// Hands reserved offsets back. Others are left as they are.
    pub fn release(&mut self, epoch: SubscriptionEpoch, offsets: impl IntoIterator<Item = Offset>) {
        if epoch != self.epoch {
            return;
        }
        for offset in offsets {
            if self.state(offset) == Some(SlotState::Reserved) {
                self.counts.reserved -= 1;
                self.make_ready(offset);
            }
        }
    }

    /// Passes reserved offsets over: nothing lies there, or a filter wants none of it.
    pub fn skip(&mut self, epoch: SubscriptionEpoch, offsets: impl IntoIterator<Item = Offset>) {
        if epoch != self.epoch || Mutant::SkippedStaysOpen.is_on() {
            return;
        }
        for offset in offsets {
            if self.state(offset) == Some(SlotState::Reserved) {
                self.settle_offset(offset, false);
                self.row_ends(offset);
            }
        }
    }

    /// Takes back a delivery that reached nobody. Nobody has its handle, so its number is
    /// used up and its attempt is not counted.
    pub fn give_back(&mut self, identity: &DeliveryIdentity) -> GiveBack {
        if identity.epoch != self.epoch {
            return GiveBack::Over;
        }
        let offset = identity.offset;
        if self.is_settled(offset) {
            return match self.is_ordered() {
                // A row only remembers: it ends with the offset.
                true => GiveBack::Over,
                false => GiveBack::Stored,
            };
        }
        if self.pages.generation(offset) != identity.generation
            || self.run.incarnation != identity.incarnation
        {
            return GiveBack::Over;
        }
        match self.state(offset) {
            Some(SlotState::Buffered(receive)) => {
                self.counts.buffered -= 1;
                self.leave(offset, receive);
                self.pages.next_generation(offset);
                self.make_ready(offset);
                GiveBack::Ready
            }
            Some(SlotState::Staged(_)) => GiveBack::Wait,
            _ => GiveBack::Over,
        }
    }

    /// Passes what retention took out of the log and nobody has a lease of. Returns how
    /// many messages that were.
    pub fn skip_removed(&mut self, log_start: Offset) -> u64 {
        if self.gate >= log_start {
            return 0;
        }
        let mut removed = 0;
        // Open offsets that were handed back, then those that were never handed out.
        let ready: Vec<Offset> = self.ready.range(..log_start).copied().collect();
        for offset in ready {
            self.settle_offset(offset, false);
            removed += 1;
        }
        if self.gate == self.next && self.next < log_start {
            removed += log_start.distance_from(self.next);
            self.next = log_start;
            self.gate = self.pages.first_open_from(log_start);
            self.next = self.next.max(self.gate);
            self.pages.pass(self.gate);
            self.end_rows_below(log_start);
            return removed;
        }
        while self.next < log_start {
            let offset = self.next;
            self.pages.open(offset);
            self.next = offset.next();
            if !self.is_settled(offset) {
                self.settle_offset(offset, false);
                removed += 1;
            }
        }
        if removed > 0 {
            self.end_rows_below(log_start);
        }
        removed
    }

    /// The rows of settled offsets below `log_start` go.
    fn end_rows_below(&mut self, log_start: Offset) {
        let mut ended: Vec<Offset> = self.rows.keys().copied().collect();
        ended.retain(|offset| *offset < log_start && self.is_settled(*offset));
        for offset in ended {
            self.row_ends(offset);
        }
    }
}
