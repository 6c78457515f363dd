//! How far the due index of one shard has been worked off, and when to look again.
//!
//! The *floor* is exact: no hint of the index lies below it, so that a scan never walks
//! the tombstones of what is done. Two things keep it so: a deadline below the floor is
//! lifted to it before it is written, and the floor stays below every write in flight.

use std::collections::BTreeMap;

use pop_model::{LeaseTime, Mutant};

/// The due index of one shard, as far as memory knows it.
#[derive(Debug)]
pub struct DueCursor {
    floor: LeaseTime,
    // Deadlines whose write was announced and has not landed, with how many.
    pending: BTreeMap<LeaseTime, usize>,
    // No hint is below this; `None` when there is none at all.
    earliest: Option<LeaseTime>,
}

impl DueCursor {
    /// The state after a start, with the floor that was stored.
    #[must_use]
    pub fn restore(floor: LeaseTime) -> Self {
        Self {
            floor,
            pending: BTreeMap::new(),
            earliest: Some(floor),
        }
    }

    /// No hint lies below this.
    #[must_use]
    pub fn floor(&self) -> LeaseTime {
        self.floor
    }

    /// When the next hint may be due.
    #[must_use]
    pub fn earliest(&self) -> Option<LeaseTime> {
        self.earliest
    }

    /// Announces that a hint for `deadline` is about to be written, and returns the
    /// deadline to write: lifted to the floor if it lies below.
    pub fn announce(&mut self, deadline: LeaseTime) -> LeaseTime {
        let deadline = if Mutant::DeadlineBelowTheFloor.is_on() {
            deadline
        } else {
            deadline.max(self.floor)
        };
        *self.pending.entry(deadline).or_default() += 1;
        deadline
    }

    /// The announced write has an outcome: its hint is there or is known not to be.
    pub fn landed(&mut self, deadline: LeaseTime) {
        if let Some(count) = self.pending.get_mut(&deadline) {
            *count -= 1;
            if *count == 0 {
                self.pending.remove(&deadline);
            }
        }
        self.lower_earliest(Some(deadline));
    }

    /// Begins a pass: from here on `earliest` collects only what lands meanwhile.
    pub fn begin_pass(&mut self) -> LeaseTime {
        self.earliest = None;
        self.floor
    }

    /// Ends a pass that removed every hint below `cleared` and left the next one at
    /// `next`. Returns the floor to store: `cleared`, or the lowest write in flight or that
    /// landed since the pass began, which its scan may not have seen.
    pub fn end_pass(&mut self, cleared: LeaseTime, next: Option<LeaseTime>) -> LeaseTime {
        let pending = self
            .pending
            .first_key_value()
            .map(|(deadline, _)| *deadline)
            .filter(|_| !Mutant::FloorPassesPending.is_on());
        let unseen = [pending, self.earliest].into_iter().flatten().min();
        let floor = unseen.map_or(cleared, |unseen| unseen.min(cleared));
        self.floor = self.floor.max(floor);
        self.lower_earliest(next);
        self.floor
    }

    fn lower_earliest(&mut self, candidate: Option<LeaseTime>) {
        self.earliest = [self.earliest, candidate].into_iter().flatten().min();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> LeaseTime {
        LeaseTime::from_millis(millis)
    }

    #[test]
    fn the_floor_never_passes_a_write_in_flight() {
        let mut cursor = DueCursor::restore(at(0));
        cursor.announce(at(50));
        cursor.begin_pass();
        // Mutant: the floor ignores pending writes and would be 101; the hint at 50 would
        // never be seen again.
        assert_eq!(cursor.end_pass(at(101), None), at(50));
        cursor.landed(at(50));
        assert_eq!(cursor.earliest(), Some(at(50)));
    }

    #[test]
    fn a_deadline_below_the_floor_is_lifted_to_it() {
        let mut cursor = DueCursor::restore(at(0));
        cursor.begin_pass();
        cursor.end_pass(at(100), None);
        assert_eq!(cursor.announce(at(7)), at(100));
    }

    #[test]
    fn a_hint_that_lands_during_a_pass_is_not_forgotten() {
        let mut cursor = DueCursor::restore(at(0));
        let deadline = cursor.announce(at(30));
        cursor.begin_pass();
        cursor.landed(deadline);
        cursor.end_pass(at(20), Some(at(90)));
        assert_eq!(cursor.earliest(), Some(at(30)));
    }

    #[test]
    fn the_floor_never_passes_a_hint_that_landed_during_a_pass() {
        let mut cursor = DueCursor::restore(at(0));
        cursor.begin_pass();
        // Announced and written after the scan has read, before its pass ends.
        let deadline = cursor.announce(at(50));
        cursor.landed(deadline);
        // Mutant: only writes in flight hold the floor; the hint at 50 would lie below it.
        assert_eq!(cursor.end_pass(at(101), None), at(50));
        assert_eq!(cursor.earliest(), Some(at(50)));
    }

    #[test]
    fn two_writes_with_one_deadline_are_two() {
        let mut cursor = DueCursor::restore(at(0));
        cursor.announce(at(5));
        cursor.announce(at(5));
        cursor.landed(at(5));
        cursor.begin_pass();
        assert_eq!(cursor.end_pass(at(10), None), at(5));
    }
}
