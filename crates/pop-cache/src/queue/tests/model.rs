//! A naive model of a queue, written from what the states of an offset mean: a map from
//! the offset to its state, and no arithmetic.

use std::collections::{BTreeMap, BTreeSet};

use super::*;

/// What an offset is that was looked at in this run and is not settled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Is {
    Ready,
    Reserved,
    Held,
    Out(Lease),
    Staged(Lease),
}

/// A delivery that is out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Lease {
    pub(super) identity: DeliveryIdentity,
    pub(super) due: u64,
    pub(super) delivered: u64,
    pub(super) attempt: u32,
}

impl Lease {
    pub(super) fn look(&self) -> u64 {
        self.due.min(self.delivered + 10_000)
    }
}

#[derive(Clone, Debug)]
pub(super) struct Slot {
    pub(super) is: Is,
    /// The last number given out in this run.
    pub(super) generation: u32,
    /// The next attempt, in an ordered queue.
    pub(super) attempt: u32,
    /// It is known to which message group it belongs.
    pub(super) read: bool,
}

/// What is stored at one moment.
#[derive(Clone, Debug, Default)]
pub(super) struct Stored {
    pub(super) settled: BTreeSet<u64>,
    /// Open deliveries of an ordered queue: what they are of, their deadline if they are
    /// out, the attempt.
    pub(super) rows: BTreeMap<u64, Row>,
}

#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) identity: DeliveryIdentity,
    pub(super) due: Option<u64>,
    pub(super) attempt: u32,
}

#[derive(Debug)]
pub(super) struct Model {
    pub(super) ordered: bool,
    pub(super) run: u64,
    pub(super) epoch: u64,
    /// No offset is below.
    pub(super) floor: u64,
    /// Where it was restored or reset to: everything below is settled.
    pub(super) base: u64,
    pub(super) log_end: u64,
    pub(super) found_end: u64,
    pub(super) settled: BTreeSet<u64>,
    pub(super) slots: BTreeMap<u64, Slot>,
    pub(super) rows: BTreeMap<u64, Row>,
}

/// How many message groups an ordered queue has; the group of an offset is no secret.
pub(super) const GROUPS: u64 = 3;

/// What a model says to an acknowledgement or a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Done,
    Wait,
    Stored,
    Over,
}

impl Model {
    pub(super) fn is_settled(&self, offset: u64) -> bool {
        offset < self.base || self.settled.contains(&offset)
    }

    pub(super) fn first_open(&self) -> u64 {
        (self.base..)
            .find(|offset| !self.settled.contains(offset))
            .unwrap_or(u64::MAX)
    }

    pub(super) fn lowest_open(&self, stored: &Stored) -> u64 {
        (self.floor..)
            .find(|offset| !stored.settled.contains(offset))
            .unwrap_or(u64::MAX)
    }

    pub(super) fn settle(&mut self, offset: u64) {
        self.slots.remove(&offset);
        self.rows.remove(&offset);
        if offset >= self.base {
            self.settled.insert(offset);
        }
    }

    pub(super) fn offsets_that(&self, is: impl Fn(&Is) -> bool) -> Vec<u64> {
        let slots = self.slots.iter().filter(|(_, slot)| is(&slot.is));
        slots.map(|(offset, _)| *offset).collect()
    }

    /// What `count` reserved offsets must be.
    pub(super) fn next_ready(&self, count: usize) -> Vec<u64> {
        let ready = self.offsets_that(|is| *is == Is::Ready);
        let is_new = |offset: &u64| !self.is_settled(*offset) && !self.slots.contains_key(offset);
        // Nothing new lies below what was looked at before.
        let from = self.slots.keys().last().map_or(self.base, |last| last + 1);
        let new = (from.min(self.log_end)..self.log_end).filter(is_new);
        ready.into_iter().chain(new).take(count).collect()
    }

    /// What the next batch of an ordered queue must be.
    pub(super) fn next_batch(&self, count: usize) -> Vec<u64> {
        let read = |group: u64| {
            let slots = self.slots.iter();
            slots.filter(move |(offset, slot)| slot.read && *offset % GROUPS == group)
        };
        let free = (0..GROUPS).filter(|group| read(*group).all(|(_, slot)| slot.is == Is::Held));
        let batches = free.map(|group| read(group).map(|(offset, _)| *offset).take(count));
        let batches = batches.map(Iterator::collect::<Vec<_>>);
        let batches = batches.filter(|batch| !batch.is_empty());
        batches.min_by_key(|batch| batch[0]).unwrap_or_default()
    }

    /// What a handle stands for.
    pub(super) fn ask(&self, identity: &DeliveryIdentity) -> Answer {
        let offset = identity.offset.get();
        if identity.epoch.get() != self.epoch {
            return Answer::Over;
        }
        if self.is_settled(offset) {
            return self.settled_answer();
        }
        let slot = self.slots.get(&offset);
        let generation = slot.map_or(0, |slot| slot.generation);
        let is_staged = slot.is_some_and(|slot| matches!(slot.is, Is::Staged(_)));
        let is_mine = if identity.incarnation.get() == self.run {
            generation > 0 && identity.generation == Generation::new(generation)
        } else {
            let is_untouched = generation == 0;
            let of_previous = identity.incarnation.get() + 1 == self.run;
            match self.rows.get(&offset) {
                Some(row) => is_untouched && row.due.is_some() && row.identity == *identity,
                None => is_untouched && of_previous && offset < self.found_end,
            }
        };
        match (is_mine, is_staged) {
            (false, _) => Answer::Over,
            (true, true) => Answer::Wait,
            (true, false) => Answer::Done,
        }
    }

    /// What a change of the invisible duration finds: only what is out.
    pub(super) fn ask_change(&self, identity: &DeliveryIdentity) -> Answer {
        let offset = identity.offset.get();
        let answer = self.ask(identity);
        if answer != Answer::Done {
            return answer;
        }
        let slot = self.slots.get(&offset);
        let is_out = match slot {
            Some(slot) if slot.read || !self.ordered => matches!(slot.is, Is::Out(_)),
            // Not read: it is out if its row says so.
            _ => {
                let row = self.rows.get(&offset);
                row.is_some_and(|row| row.identity == *identity && row.due.is_some())
            }
        };
        match is_out {
            true => Answer::Done,
            false => Answer::Over,
        }
    }

    /// In order, a row only remembers, and ends with its offset.
    pub(super) fn settled_answer(&self) -> Answer {
        match self.ordered {
            true => Answer::Over,
            false => Answer::Stored,
        }
    }

    /// What is stored if everything that is settled now is, and `more`.
    pub(super) fn stored(&self, more: &[u64]) -> Stored {
        let mut stored = Stored {
            settled: self.settled.clone(),
            rows: self.rows.clone(),
        };
        stored.settled.extend(self.floor..self.base);
        for offset in more {
            stored.settled.insert(*offset);
            stored.rows.remove(offset);
        }
        stored
    }
}
