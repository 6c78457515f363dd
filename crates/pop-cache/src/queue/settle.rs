//! What a consumer does with a delivery: acknowledge it, or change how long it is hidden.
//!
//! A delivery is matched by its whole identity. Its deadline refuses nothing: what is late
//! and was not handed out since still counts.

use std::time::Duration;

use pop_model::{Checkpoint, DeliveryIdentity, Generation, LeaseTime, Mutant, Offset};

use super::{LeaseQueue, Terms, pages::SlotState};

/// What an acknowledgement found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ack {
    /// The delivery is done. It is durable once as many acknowledgements are.
    Done(u64),
    /// Its outcome is being written: try again when it is known.
    Wait,
    /// Its offset is settled: if the delivery was stored, its row says so.
    Stored,
    /// The handle is of another delivery, or of none.
    Over,
}

/// What a change of the invisible duration found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It is hidden until then.
    Changed(LeaseTime),
    /// Its outcome is being written: try again when it is known.
    Wait,
    /// Its offset is settled: if the delivery was stored, its row says so.
    Stored,
    /// The handle is of another delivery, or of none.
    Over,
}

/// What taking a delivery out of its consumer's hands found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Taken {
    /// It is staged, for an end that is written next.
    Staged(Box<Checkpoint>),
    /// Its outcome is being written: try again when it is known.
    Wait,
    /// Its offset is settled: if the delivery was stored, its row says so.
    Stored,
    /// Its message is done, in an ordered queue: it has ended.
    Settled,
    /// The handle is of another delivery, or of none, or it is ready again.
    Over,
}

/// What an identity stands for here.
enum Found {
    Open(SlotState),
    // Not handed out in this run.
    Earlier,
    Settled,
    Other,
}

impl LeaseQueue {
    /// Ends a delivery.
    pub fn ack(&mut self, identity: &DeliveryIdentity) -> Ack {
        match self.find(identity) {
            // In order, a row only remembers: it ends with the offset.
            Found::Settled if self.is_ordered() => Ack::Over,
            Found::Settled => Ack::Stored,
            Found::Other => Ack::Over,
            Found::Open(SlotState::Staged(_)) if Mutant::AckMissesStaged.is_on() => {
                Ack::Done(self.acks)
            }
            Found::Open(SlotState::Staged(_)) => Ack::Wait,
            Found::Open(_) | Found::Earlier => {
                self.settle_offset(identity.offset, false);
                self.row_ends(identity.offset);
                self.acks += 1;
                Ack::Done(self.acks)
            }
        }
    }

    /// Hides a delivery for `invisible_for` from `now` on. Its handles stay good.
    pub fn change(
        &mut self,
        identity: &DeliveryIdentity,
        now: LeaseTime,
        invisible_for: Duration,
        suspend: bool,
    ) -> Change {
        let offset = identity.offset;
        let receive = match self.find(identity) {
            Found::Settled if self.is_ordered() => return Change::Over,
            Found::Settled => return Change::Stored,
            Found::Open(_) | Found::Earlier if self.is_unread(offset) => {
                return self.change_unread(identity, now, invisible_for, suspend);
            }
            // It is ready already, and the attempt that it is ready for is another one: what
            // was delivered would count as if it had been delivered once more.
            Found::Other | Found::Earlier => return Change::Over,
            Found::Open(SlotState::Staged(_)) => return Change::Wait,
            Found::Open(SlotState::Buffered(id)) => id,
            Found::Open(SlotState::Ready | SlotState::Reserved | SlotState::Held) => {
                return Change::Over;
            }
        };
        let Some(before) = self.receives.get(receive).cloned() else {
            return Change::Over;
        };
        let attempt_id = self.receives.name_of(&before).map(str::to_owned);
        self.counts.buffered -= 1;
        self.leave(offset, receive);
        // Counted from the delivery, so that renewals don't make it stay in memory longer.
        let visible_at = now.saturating_add(invisible_for);
        let terms = Terms {
            now: before.delivered_at,
            invisible_for: visible_at.saturating_since(before.delivered_at),
            attempt: u32::from(before.attempt),
            attempt_id: attempt_id.as_deref(),
            auto_renew: before.auto_renew,
        };
        let receive = self.new_receive(offset, &terms, suspend || before.suspend);
        if let (Some(groups), Some(name)) = (&mut self.groups, &attempt_id) {
            groups.name(name, offset);
        }
        self.buffer(offset, receive);
        Change::Changed(visible_at)
    }

    /// Takes a delivery that is out and not due, to bring it to another end.
    pub fn take(&mut self, identity: &DeliveryIdentity) -> Taken {
        match self.find(identity) {
            Found::Settled if self.is_ordered() => self.settled_in_order(),
            Found::Settled => Taken::Stored,
            Found::Open(SlotState::Staged(_)) => Taken::Wait,
            Found::Open(SlotState::Buffered(_)) => {
                let staged = self.stage_one(identity);
                staged.map_or(Taken::Over, |due| Taken::Staged(Box::new(due)))
            }
            Found::Open(_) | Found::Earlier | Found::Other => Taken::Over,
        }
    }

    fn settled_in_order(&self) -> Taken {
        // What is parked is settled, too, and comes again.
        let may_be_parked = self.parked_count() > 0 && !Mutant::ParkedCountsAsGivenUp.is_on();
        match may_be_parked || Mutant::GivenUpIsForgotten.is_on() {
            true => Taken::Over,
            false => Taken::Settled,
        }
    }

    /// Whether it is not known which message group of an ordered queue this is of.
    fn is_unread(&self, offset: Offset) -> bool {
        self.groups.as_ref().is_some_and(|it| !it.knows(offset))
    }

    /// Changes a delivery of an earlier run whose message was not read in this one. It goes
    /// on as its row says once it is read, so the row changes.
    fn change_unread(
        &mut self,
        identity: &DeliveryIdentity,
        now: LeaseTime,
        invisible_for: Duration,
        suspend: bool,
    ) -> Change {
        match self.rows.get_mut(&identity.offset) {
            Some(row) if row.identity == *identity && row.visible_at > LeaseTime::ZERO => {
                row.visible_at = now.saturating_add(invisible_for);
                row.suspend |= suspend;
                let changed = Change::Changed(row.visible_at);
                self.rows_changed.insert(identity.offset);
                changed
            }
            // It is ready, and a new lease of it is for the next receive.
            _ => Change::Over,
        }
    }

    fn find(&self, identity: &DeliveryIdentity) -> Found {
        let offset = identity.offset;
        if identity.queue != self.queue || identity.epoch != self.epoch {
            return Found::Other;
        }
        if self.is_settled(offset) {
            return Found::Settled;
        }
        let state = self.pages.state(offset);
        let generation = self.pages.generation(offset);
        if Mutant::AckByOffsetAlone.is_on() {
            return state.map_or(Found::Other, Found::Open);
        }
        if identity.incarnation == self.run.incarnation {
            return match state {
                Some(state) if generation == identity.generation => Found::Open(state),
                _ => Found::Other,
            };
        }
        if self.is_of_row(identity) {
            return state.map_or(Found::Earlier, Found::Open);
        }
        // A row says which delivery was the last, or that it is over: it is written before the
        // next one goes out, and synced. Whether that went out nobody knows, so that no handle
        // of its run counts then. Retention took the rows below the start of the log, also
        // those of what is parked.
        let is_untouched = generation == Generation::NONE
            && (self.log_start..self.found_end).contains(&offset)
            && !self.rows.contains_key(&offset);
        let is_of_previous = Some(identity.incarnation) == self.run.previous;
        if is_of_previous && (is_untouched || Mutant::OldIncarnationSettles.is_on()) {
            return match state {
                Some(staged @ SlotState::Staged(_)) => Found::Open(staged),
                _ => Found::Earlier,
            };
        }
        Found::Other
    }

    /// Whether it is the delivery of an earlier run that goes on as a row of this ordered queue
    /// says.
    fn is_of_row(&self, identity: &DeliveryIdentity) -> bool {
        let row = self.rows.get(&identity.offset);
        let of_row =
            row.is_some_and(|row| row.identity == *identity && row.visible_at > LeaseTime::ZERO);
        of_row && self.pages.generation(identity.offset) == Generation::NONE
    }

    /// The row of a settled offset goes in the batch with its mark.
    pub(super) fn row_ends(&mut self, offset: Offset) {
        // Retention passes what was not read without settling each.
        if let Some(groups) = &mut self.groups {
            groups.is_read(offset);
        }
        let has_row = self.queue.is_retry() || self.rows.remove(&offset).is_some();
        if has_row {
            self.rows_ended.push(offset);
        }
    }
}
