//! What waits in its message group, in memory or *parked* in the store.
//!
//! With as many messages waiting in memory as are allowed, one that must wait behind
//! another of its group is parked: a row says so, its offset is settled, and the gate
//! passes it. Once nothing of its group is in memory, what is parked comes back: it keeps
//! its row and its mark until it is settled for good, and is open all the same. What is in
//! memory of a group is always below what is parked of it.

use pop_model::{LeaseTime, Mutant, Offset, SubscriptionEpoch};
use pop_store::table::parked::Parked;

use super::{LeaseQueue, pages::SlotState};

/// What becomes of a message whose group was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admitted {
    /// It waits for its turn, or goes on as its row says.
    Waits,
    /// It is to be parked by a [plan](LeaseQueue::plan) that settles its offset, which is
    /// reserved until then.
    Parks,
    /// It was reset, or acknowledged meanwhile.
    Over,
}

/// A parked message that is settled, and whose row is in the store still.
#[derive(Clone, Copy, Debug)]
pub(super) struct ParkedEnd {
    pub(super) parked: Parked,
    /// It also has a lease row.
    pub(super) has_row: bool,
}

impl LeaseQueue {
    /// A reserved offset of an ordered queue turned out to belong to a message group. Where it
    /// has a row, that says to which: its message may no longer be readable.
    pub fn admit(
        &mut self,
        epoch: SubscriptionEpoch,
        offset: Offset,
        group: u64,
        now: LeaseTime,
    ) -> Admitted {
        if epoch != self.epoch || self.state(offset) != Some(SlotState::Reserved) {
            return Admitted::Over;
        }
        let row = self.rows.get(&offset);
        let group = row.and_then(|row| row.message_group_hash).unwrap_or(group);
        let is_full = self.held() >= self.run.held_max;
        let groups = self.groups.as_ref();
        let is_behind = groups.is_some_and(|it| it.is_behind(offset, group, is_full));
        // One that was handed out before is among the lowest of its group.
        if is_behind && !self.rows.contains_key(&offset) {
            self.parking.insert(offset, group);
            return Admitted::Parks;
        }
        self.counts.reserved -= 1;
        self.hold(offset, group, Some(now));
        Admitted::Waits
    }

    /// An open offset waits in its group, or goes on as its row says: from `now`, or from
    /// when it was handed out.
    fn hold(&mut self, offset: Offset, group: u64, now: Option<LeaseTime>) {
        self.pages.set_state(offset, SlotState::Held);
        let row = self.rows.get(&offset).cloned();
        let attempt = row.as_ref().map_or(1, |row| row.delivery_attempt);
        let attempt = if Mutant::FifoAttemptsForgotten.is_on() {
            1
        } else {
            attempt
        };
        if let Some(groups) = &mut self.groups {
            groups.admit(offset, group, attempt);
        }
        // A delivery that is out, also one whose time came while nobody looked: that it was
        // one is counted when it is swept.
        if let Some(row) = row.filter(|row| row.visible_at > LeaseTime::ZERO) {
            if let Some(groups) = &mut self.groups {
                groups.lease(offset);
            }
            self.go_on(offset, &row, now.unwrap_or(row.popped_at));
        }
        if let Some(groups) = &mut self.groups {
            groups.is_read(offset);
        }
    }

    /// The first message group that is not blocked and of which all that is left is parked,
    /// with the lowest offset of that. What is still to be read may lie before it.
    #[must_use]
    pub fn waits_for_parked(&self) -> Option<Parked> {
        let (group, first) = self.groups.as_ref()?.waiting()?;
        (first < self.first_unread()).then_some((group, first))
    }

    /// The lowest open offset whose message group is not known: it was never read, or its
    /// read failed.
    fn first_unread(&self) -> Offset {
        let never = self.pages.first_open_from(self.next);
        self.ready
            .first()
            .map_or(never, |failed| never.min(*failed))
    }

    /// What was read of a group that [waits](Self::waits_for_parked): its first offsets, of
    /// which the last stays parked if there are more than `count`.
    pub fn unpark(&mut self, epoch: SubscriptionEpoch, of: Parked, read: &[Offset], count: usize) {
        if epoch != self.epoch || self.waits_for_parked() != Some(of) {
            return;
        }
        let (group, _) = of;
        let end = self.first_unread();
        let (back, left) = read.split_at(count.min(read.len()));
        let (back, unread) = back.split_at(back.partition_point(|offset| *offset < end));
        let next = unread.first().or(left.first()).copied();
        if let Some(groups) = &mut self.groups {
            groups.parked_from(group, next);
        }
        for offset in back {
            self.bring_back((group, *offset));
        }
    }

    /// What is parked when the queue is loaded: groups by their lowest offset, and what of
    /// them was out.
    pub(super) fn restore_parked(&mut self, first: &[Parked], out: &[Parked]) {
        for (group, offset) in first {
            if let Some(groups) = &mut self.groups {
                groups.park(*offset, *group);
            }
        }
        for parked in out {
            self.bring_back(*parked);
        }
    }

    fn bring_back(&mut self, (group, offset): Parked) {
        self.pages.unpark(offset);
        self.hold(offset, group, None);
    }

    /// The write that parks a message is committed.
    pub(super) fn parked(&mut self, parked: Parked) {
        let (group, offset) = parked;
        self.parked_count += 1;
        self.parking.remove(&offset);
        if self.state(offset) == Some(SlotState::Reserved) {
            if let Some(groups) = &mut self.groups {
                groups.park(offset, group);
            }
        } else {
            // It was acknowledged meanwhile, by a handle of the run before.
            self.end_parked(parked, false);
        }
    }

    /// A parked message is settled for good.
    pub(super) fn end_parked(&mut self, parked: Parked, durable: bool) {
        self.parked_count = self.parked_count.saturating_sub(1);
        if !durable {
            let has_row = self.rows.remove(&parked.1).is_some();
            self.parked_ended.push(ParkedEnd { parked, has_row });
        }
    }

    /// Those of `settles` that are settled by being parked.
    pub(super) fn parks_of(&self, settles: &[Offset]) -> Vec<Parked> {
        let parks = settles.iter().filter_map(|offset| {
            let group = *self.parking.get(offset)?;
            let is_open = self.state(*offset) == Some(SlotState::Reserved);
            is_open.then_some((group, *offset))
        });
        parks.collect()
    }

    /// Those of `settles` that are parked, and are so no longer.
    pub(super) fn parked_of(&self, settles: &[Offset]) -> Vec<Parked> {
        let groups = self.groups.as_ref();
        let parked = settles.iter().filter_map(|offset| {
            let group = groups?.group_of(*offset)?;
            let is_parked = self.pages.is_unparked(*offset);
            is_parked.then_some((group, *offset))
        });
        parked.collect()
    }
}
