//! The ready entries of a group's retry queue for one topic, by their sequence.
//!
//! Pure, like the offsets: an entry is *arriving* (its write is running), *ready* or
//! *taken* (the write that turns it into a lease is running). The floor, persisted with
//! every removal, is the lowest of them, so that a start never walks what is gone.

use std::collections::{BTreeMap, BTreeSet};

use pop_store::Durable;

/// The sequences of a retry queue that are in memory.
#[derive(Debug)]
pub struct RetryEntries {
    ready: BTreeSet<u64>,
    busy: BTreeMap<u64, Busy>,
    next_sequence: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Busy {
    Arriving,
    Taken,
}

/// The removal of entries that is being written: see [`RetryEntries::removed`].
#[derive(Debug)]
pub struct RetryRemoval {
    sequences: Vec<u64>,
    floor: u64,
}

impl RetryRemoval {
    /// The floor to write with the removal: the lowest entry that may be in the store
    /// once these are gone.
    #[must_use]
    pub fn floor(&self) -> u64 {
        self.floor
    }
}

impl RetryEntries {
    /// The state after a start: `stored` are the sequences in the store, and no sequence
    /// below `next_sequence` is given out again.
    #[must_use]
    pub fn restore(stored: impl IntoIterator<Item = u64>, next_sequence: u64) -> Self {
        let ready: BTreeSet<u64> = stored.into_iter().collect();
        let above = ready.last().map_or(0, |last| last + 1);
        Self {
            ready,
            busy: BTreeMap::new(),
            next_sequence: next_sequence.max(above),
        }
    }

    /// How many entries are ready.
    #[must_use]
    pub fn ready_count(&self) -> usize {
        self.ready.len()
    }

    /// The sequence of a new entry, whose write begins now.
    pub fn arrive(&mut self) -> u64 {
        let sequence = self.next_sequence;
        self.next_sequence += 1;
        self.busy.insert(sequence, Busy::Arriving);
        sequence
    }

    /// The write of an arriving entry is committed: it is ready.
    pub fn arrived(&mut self, sequence: u64) {
        if self.busy.remove(&sequence) == Some(Busy::Arriving) {
            self.ready.insert(sequence);
        }
    }

    /// The write of an arriving entry is known to have had no effect.
    pub fn withdrawn(&mut self, sequence: u64) {
        self.busy.remove(&sequence);
    }

    /// Takes up to `count` ready entries, oldest first; nobody else gets them until they
    /// are [put back](Self::put_back) or [removed](Self::removed).
    pub fn take(&mut self, count: usize) -> Vec<u64> {
        let mut taken = Vec::new();
        while taken.len() < count {
            let Some(sequence) = self.ready.pop_first() else {
                break;
            };
            self.busy.insert(sequence, Busy::Taken);
            taken.push(sequence);
        }
        taken
    }

    /// Makes a taken entry ready again.
    pub fn put_back(&mut self, sequence: u64) {
        if self.busy.remove(&sequence) == Some(Busy::Taken) {
            self.ready.insert(sequence);
        }
    }

    /// A taken entry turned out not to be in the store: it is forgotten.
    pub fn absent(&mut self, sequence: u64) {
        self.busy.remove(&sequence);
    }

    /// Plans the write that removes taken entries.
    #[must_use]
    pub fn plan_removal(&self, sequences: &[u64]) -> RetryRemoval {
        let lowest_busy = self.busy.keys().find(|busy| !sequences.contains(busy));
        let lowest = [lowest_busy, self.ready.first()]
            .into_iter()
            .flatten()
            .min();
        RetryRemoval {
            sequences: sequences.into(),
            floor: lowest.copied().unwrap_or(self.next_sequence),
        }
    }

    /// The removal is committed: the entries are gone.
    pub fn removed(&mut self, removal: Durable<RetryRemoval>) {
        for sequence in removal.into_work().sequences {
            self.busy.remove(&sequence);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_floor_never_passes_an_entry_that_is_ready_taken_or_arriving() {
        let mut entries = RetryEntries::restore([3, 5, 9], 0);
        assert_eq!(entries.take(2), [3, 5]);
        // Mutant: the floor looks at ready entries only, and a start loses 3.
        assert_eq!(entries.plan_removal(&[5]).floor(), 3);
        assert_eq!(entries.plan_removal(&[3, 5]).floor(), 9);
        let arriving = entries.arrive();
        assert_eq!(arriving, 10);
        assert_eq!(entries.take(9), [9]);
        assert_eq!(entries.plan_removal(&[3, 5, 9]).floor(), arriving);
        entries.withdrawn(arriving);
        assert_eq!(entries.plan_removal(&[3, 5, 9]).floor(), 11);
    }

    #[test]
    fn an_entry_is_taken_once_until_it_is_put_back() {
        let mut entries = RetryEntries::restore([1], 0);
        assert_eq!(entries.take(4), [1]);
        assert!(entries.take(4).is_empty());
        entries.put_back(1);
        assert_eq!(entries.take(4), [1]);
    }

    #[test]
    fn an_arriving_entry_is_not_handed_out_before_its_write_is_committed() {
        let mut entries = RetryEntries::restore([], 0);
        let sequence = entries.arrive();
        assert!(entries.take(1).is_empty());
        entries.arrived(sequence);
        assert_eq!(entries.take(1), [sequence]);
    }
}
