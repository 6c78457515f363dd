//! The offsets of one subscription queue and the gate in front of its committed offset.
//!
//! Pure: no store, no clock, no lock. Every offset below `next` is *reserved* (a read or
//! the write of its outcome is running), *returned* (handed back, ready again) or
//! *settled*. The gate is the lowest one that is not settled. Nothing becomes settled but
//! by a [`Durable<SettlePlan>`](pop_store::Durable), and the plan that was written is the
//! one that carries both the marks of its offsets and the gate that they allow.

use std::collections::BTreeSet;

use pop_model::{MarkPage, Offset};
use pop_store::Durable;

use crate::marks::Marks;

/// The states of the offsets of one (group, topic, queue).
#[derive(Debug)]
pub struct QueueOffsets {
    committed: Offset,
    next: Offset,
    reserved: BTreeSet<Offset>,
    returned: BTreeSet<Offset>,
    // What the store holds. A plan in flight is not in here, so that a plan that is
    // refused leaves no trace in the pages that a later one writes.
    marks: Marks,
    planning: bool,
}

/// What is to be written so that some offsets become settled.
///
/// It goes into one batch with whatever settles them (a lease row, a retry entry, a
/// skip), and only the proof that this batch is committed moves the gate. Hand it back
/// through [`QueueOffsets::settled`] or [`QueueOffsets::refused`].
#[derive(Debug)]
#[must_use = "a plan that is not handed back keeps its queue from settling anything"]
pub struct SettlePlan {
    offsets: Vec<Offset>,
    gate: Offset,
    moves: bool,
    pages: Vec<(u64, MarkPage)>,
    dropped_pages: Vec<u64>,
}

impl SettlePlan {
    /// The committed offset to write, if it moves.
    #[must_use]
    pub fn committed(&self) -> Option<Offset> {
        self.moves.then_some(self.gate)
    }

    /// The pages of settled marks to write, each with its number.
    #[must_use]
    pub fn pages(&self) -> &[(u64, MarkPage)] {
        &self.pages
    }

    /// The pages to delete, since the committed offset passes them.
    #[must_use]
    pub fn dropped_pages(&self) -> &[u64] {
        &self.dropped_pages
    }

    /// The offsets that the plan settles.
    #[must_use]
    pub fn offsets(&self) -> &[Offset] {
        &self.offsets
    }
}

impl QueueOffsets {
    /// The state after a start: everything at or above `committed` that carries no mark
    /// is ready to be handed out.
    #[must_use]
    pub fn restore(committed: Offset, pages: impl IntoIterator<Item = (u64, MarkPage)>) -> Self {
        Self {
            committed,
            next: committed,
            reserved: BTreeSet::new(),
            returned: BTreeSet::new(),
            marks: Marks::restore(pages),
            planning: false,
        }
    }

    /// The offset below which everything is settled, as the store has it.
    #[must_use]
    pub fn committed(&self) -> Offset {
        self.committed
    }

    /// The lowest offset that was never handed out.
    #[must_use]
    pub fn next(&self) -> Offset {
        self.next
    }

    /// Whether [`reserve`](Self::reserve) would find something below `readable_end`.
    #[must_use]
    pub fn has_ready(&self, readable_end: Offset) -> bool {
        !self.returned.is_empty() || self.next_unmarked() < readable_end
    }

    /// How many offsets are reserved now.
    #[must_use]
    pub fn reserved_count(&self) -> usize {
        self.reserved.len()
    }

    /// Takes up to `count` ready offsets below `readable_end`, ascending: those that were
    /// handed back first, then new ones. They are nobody else's until they are settled or
    /// [released](Self::release).
    pub fn reserve(&mut self, count: usize, readable_end: Offset) -> Vec<Offset> {
        let mut taken = Vec::new();
        while taken.len() < count {
            let offset = match self.returned.pop_first() {
                Some(offset) => offset,
                None => {
                    self.next = self.next_unmarked();
                    if self.next >= readable_end {
                        break;
                    }
                    let offset = self.next;
                    self.next = offset.next();
                    offset
                }
            };
            self.reserved.insert(offset);
            taken.push(offset);
        }
        taken
    }

    /// Hands reserved offsets back, ready to be taken again. Others are left as they are.
    pub fn release(&mut self, offsets: impl IntoIterator<Item = Offset>) {
        for offset in offsets {
            if self.reserved.remove(&offset) {
                self.returned.insert(offset);
            }
        }
    }

    /// Plans the write that settles `offsets`, which must be reserved.
    ///
    /// `None` while another plan is in flight: pages are read-modify-write, so one write
    /// a queue at a time. Two in flight would each leave out the marks of the other.
    pub fn plan(&mut self, offsets: Vec<Offset>) -> Option<SettlePlan> {
        if self.planning {
            return None;
        }
        assert!(
            offsets.iter().all(|offset| self.reserved.contains(offset)),
            "only reserved offsets can be settled"
        );
        let gate = self.gate_after(&offsets);
        let mut numbers: Vec<u64> = offsets
            .iter()
            .filter(|offset| **offset >= gate)
            .map(|offset| MarkPage::locate(*offset).0)
            .collect();
        numbers.sort_unstable();
        numbers.dedup();
        let pages = numbers
            .into_iter()
            .map(|page| (page, self.marks.page_with(page, &offsets)))
            .collect();
        self.planning = true;
        Some(SettlePlan {
            moves: gate > self.committed,
            dropped_pages: self.marks.pages_below(gate),
            offsets,
            gate,
            pages,
        })
    }

    /// Makes the offsets of a plan settled: its write is committed.
    pub fn settled(&mut self, plan: Durable<SettlePlan>) {
        let plan = plan.into_work();
        self.planning = false;
        for offset in &plan.offsets {
            self.reserved.remove(offset);
            self.marks.insert(*offset);
        }
        self.marks.drop_pages(&plan.dropped_pages);
        self.committed = self.committed.max(plan.gate);
    }

    /// Takes back a plan whose write is known to have had no effect: its offsets are
    /// ready again.
    pub fn refused(&mut self, plan: SettlePlan) {
        self.planning = false;
        self.release(plan.offsets);
    }

    /// The lowest offset that is not settled once `settling` is.
    fn gate_after(&self, settling: &[Offset]) -> Offset {
        let open = |offset: &&Offset| !settling.contains(offset);
        let lowest_reserved = self.reserved.iter().find(open).copied();
        let lowest = [lowest_reserved, self.returned.first().copied()]
            .into_iter()
            .flatten()
            .min();
        lowest.unwrap_or_else(|| self.next_unmarked())
    }

    /// `next`, past the offsets above it that an earlier run of the program settled.
    fn next_unmarked(&self) -> Offset {
        let mut next = self.next;
        while self.marks.contains(next) {
            next = next.next();
        }
        next
    }
}

#[cfg(test)]
mod tests;
