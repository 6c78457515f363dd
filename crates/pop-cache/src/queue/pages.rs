//! What is known of each offset, in pages of 4,096: a settled mark, and a slot for what is
//! below `next`.
//!
//! The pages are those that are stored, so that a plan writes them as they stand. A page
//! gives its slots back once all of its offsets are settled, and goes once the gate has
//! passed it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use pop_model::{Generation, MarkPage, Offset, limits::MARK_PAGE_OFFSETS};

use super::receives::ReceiveId;

/// What an offset below `next` is, unless its mark says that it is settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SlotState {
    /// Ready to be handed out.
    Ready,
    /// A read or a hand-over is running.
    Reserved,
    /// Its message group is blocked.
    Held,
    /// A lease in memory.
    Buffered(ReceiveId),
    /// A lease whose end, or whose row, is being written.
    Staged(ReceiveId),
}

/// Eight bytes an offset: the state and the receive share a word.
#[derive(Clone, Copy, Debug)]
struct Slot {
    word: u32,
    generation: u32,
}

const MARK_PAGE_PLACES: u16 = 4_096;
const _: () = assert!(MARK_PAGE_PLACES as u64 == MARK_PAGE_OFFSETS, "all of them");

const STATE_SHIFT: u32 = 28;
const RECEIVE_MASK: u32 = (1 << STATE_SHIFT) - 1;

impl Slot {
    const READY: Self = Self {
        word: 0,
        generation: 0,
    };

    fn state(self) -> SlotState {
        let receive = ReceiveId::new(self.word & RECEIVE_MASK);
        match self.word >> STATE_SHIFT {
            0 => SlotState::Ready,
            1 => SlotState::Reserved,
            2 => SlotState::Held,
            3 => SlotState::Buffered(receive),
            _ => SlotState::Staged(receive),
        }
    }

    fn set(&mut self, state: SlotState) {
        let (code, receive) = match state {
            SlotState::Ready => (0, 0),
            SlotState::Reserved => (1, 0),
            SlotState::Held => (2, 0),
            SlotState::Buffered(receive) => (3, receive.get()),
            SlotState::Staged(receive) => (4, receive.get()),
        };
        debug_assert!(receive <= RECEIVE_MASK, "receives are bounded far below");
        self.word = code << STATE_SHIFT | receive;
    }
}

#[derive(Debug, Default)]
struct Page {
    marks: MarkPage,
    // Of the offsets from `first` on.
    slots: Vec<Slot>,
    first: u16,
    // How many marks are set. With all of them the slots are given back.
    settled: u16,
    // A mark was set that the store may not have.
    dirty: bool,
}

/// All that is known of the offsets from the gate on.
#[derive(Debug, Default)]
pub(super) struct Pages {
    base: u64,
    pages: VecDeque<Page>,
    // Pages that the store has.
    stored: BTreeSet<u64>,
    dirty: BTreeSet<u64>,
    // What was parked and is in memory again: marked, and open all the same.
    unparked: BTreeMap<Offset, Slot>,
}

impl Pages {
    /// The pages that were stored of a log that ends at `end`.
    ///
    /// A mark at or above that end is of a message that the log has lost. The next message
    /// gets its offset, and must not be taken for settled.
    pub(super) fn restore(
        gate: Offset,
        stored: impl IntoIterator<Item = (u64, MarkPage)>,
        end: Offset,
    ) -> Self {
        let mut pages = Self {
            base: MarkPage::locate(gate).0,
            ..Self::default()
        };
        for (number, mut marks) in stored {
            pages.stored.insert(number);
            let is_cut = cut(number, &mut marks, end);
            // One below the gate is dropped with the next plan.
            if let Some(page) = pages.page_mut(number) {
                page.marks = marks;
                if is_cut {
                    page.dirty = true;
                    pages.dirty.insert(number);
                }
            }
        }
        // What lies below the gate on its own page is settled, marked or not.
        let (number, place) = MarkPage::locate(gate);
        if let Some(page) = pages.page_mut(number) {
            for below in 0..place {
                page.marks.set(below);
            }
        }
        for page in &mut pages.pages {
            page.settled = u16::try_from(page.marks.count()).unwrap_or(u16::MAX);
        }
        pages
    }

    fn page(&self, number: u64) -> Option<&Page> {
        let index = usize::try_from(number.checked_sub(self.base)?).ok()?;
        self.pages.get(index)
    }

    /// The page, made if it is not there; `None` below the gate.
    fn page_mut(&mut self, number: u64) -> Option<&mut Page> {
        let index = usize::try_from(number.checked_sub(self.base)?).ok()?;
        while self.pages.len() <= index {
            self.pages.push_back(Page::default());
        }
        self.pages.get_mut(index)
    }

    pub(super) fn is_settled(&self, offset: Offset) -> bool {
        let (number, place) = MarkPage::locate(offset);
        if number < self.base {
            return true;
        }
        self.page(number).is_some_and(|page| page.marks.get(place))
    }

    fn slot(&self, offset: Offset) -> Option<&Slot> {
        if let Some(slot) = self.unparked.get(&offset) {
            return Some(slot);
        }
        let (number, place) = MarkPage::locate(offset);
        let page = self.page(number)?;
        let index = place.checked_sub(page.first)?;
        page.slots.get(usize::from(index))
    }

    fn slot_mut(&mut self, offset: Offset) -> Option<&mut Slot> {
        // A look before a look that borrows: most queues have none.
        if self.unparked.contains_key(&offset) {
            return self.unparked.get_mut(&offset);
        }
        let (number, place) = MarkPage::locate(offset);
        let index = usize::try_from(number.checked_sub(self.base)?).ok()?;
        let page = self.pages.get_mut(index)?;
        let index = place.checked_sub(page.first)?;
        page.slots.get_mut(usize::from(index))
    }

    /// The state of an offset that is not settled; `None` where it has no slot.
    pub(super) fn state(&self, offset: Offset) -> Option<SlotState> {
        self.slot(offset).map(|slot| slot.state())
    }

    pub(super) fn generation(&self, offset: Offset) -> Generation {
        self.slot(offset)
            .map_or(Generation::NONE, |slot| Generation::new(slot.generation))
    }

    pub(super) fn set_state(&mut self, offset: Offset, state: SlotState) {
        if let Some(slot) = self.slot_mut(offset) {
            slot.set(state);
        }
    }

    /// The delivery of this offset that begins now.
    pub(super) fn next_generation(&mut self, offset: Offset) -> Generation {
        let Some(slot) = self.slot_mut(offset) else {
            return Generation::FIRST;
        };
        slot.generation = slot.generation.saturating_add(1);
        Generation::new(slot.generation)
    }

    /// Gives `next` a slot. Called for each open offset in order.
    pub(super) fn open(&mut self, next: Offset) {
        let (number, place) = MarkPage::locate(next);
        let Some(page) = self.page_mut(number) else {
            return;
        };
        if page.slots.is_empty() {
            page.first = place;
        }
        // What was settled by an earlier run is passed over, and still has its place.
        let passed = usize::from(place.saturating_sub(page.first));
        page.slots.resize(passed, Slot::READY);
        page.slots.push(Slot::READY);
    }

    /// Marks an offset settled. Returns whether it was not before.
    pub(super) fn settle(&mut self, offset: Offset, durable: bool) -> bool {
        let (number, place) = MarkPage::locate(offset);
        let Some(page) = self.page_mut(number) else {
            return false;
        };
        if page.marks.get(place) {
            return false;
        }
        page.marks.set(place);
        page.settled += 1;
        if u64::from(page.settled) == MARK_PAGE_OFFSETS {
            page.slots = Vec::new();
        }
        if !durable && !page.dirty {
            page.dirty = true;
            self.dirty.insert(number);
        }
        true
    }

    /// A parked offset is in memory again.
    pub(super) fn unpark(&mut self, offset: Offset) {
        self.unparked.entry(offset).or_insert(Slot::READY);
    }

    pub(super) fn is_unparked(&self, offset: Offset) -> bool {
        self.unparked.contains_key(&offset)
    }

    pub(super) fn has_unparked(&self) -> bool {
        !self.unparked.is_empty()
    }

    /// Settles an offset that was parked, for good. Returns whether it was in memory.
    pub(super) fn end_unparked(&mut self, offset: Offset) -> bool {
        self.unparked.remove(&offset).is_some()
    }

    /// The first offset from `from` on that is not settled.
    pub(super) fn first_open_from(&self, from: Offset) -> Offset {
        let (mut number, mut place) = MarkPage::locate(from);
        while let Some(page) = self.page(number) {
            if let Some(open) = page.marks.first_open_from(place) {
                return at(number, open);
            }
            number += 1;
            place = 0;
        }
        at(number, place)
    }

    /// How many offsets of `from..to` are settled. `from` lies on the first page.
    pub(super) fn settled_between(&self, from: Offset, to: Offset) -> u64 {
        let (first, place) = MarkPage::locate(from);
        let (last, last_place) = MarkPage::locate(to);
        let pages = self.pages.iter().zip(self.base..);
        let count = |(page, number): (&Page, u64)| match number {
            number if number < first || number > last => 0,
            number => {
                let from = if number == first { place } else { 0 };
                let to = (number == last).then_some(last_place);
                u64::from(page.marks.count_between(from, to))
            }
        };
        pages.map(count).sum()
    }

    /// Lets go of the pages below the gate.
    pub(super) fn pass(&mut self, gate: Offset) {
        let (number, _) = MarkPage::locate(gate);
        while self.base < number {
            self.pages.pop_front();
            self.base += 1;
        }
        if self.dirty.first().is_some_and(|first| *first < number) {
            self.dirty = self.dirty.split_off(&number);
        }
    }

    /// Up to `count` pages with marks that the store may not have, no longer dirty: the
    /// caller writes them.
    pub(super) fn take_dirty(&mut self, count: usize) -> Vec<u64> {
        let mut taken = Vec::new();
        while taken.len() < count {
            let Some(number) = self.dirty.pop_first() else {
                break;
            };
            if let Some(page) = self.page_mut(number) {
                page.dirty = false;
            }
            taken.push(number);
        }
        taken
    }

    /// Pages that were taken and not written after all.
    pub(super) fn put_back_dirty(&mut self, numbers: &[u64]) {
        for number in numbers {
            if let Some(page) = self.page_mut(*number) {
                page.dirty = true;
                self.dirty.insert(*number);
            }
        }
    }

    pub(super) fn is_dirty(&self) -> bool {
        !self.dirty.is_empty()
    }

    /// A page as it stands.
    pub(super) fn marks(&self, number: u64) -> MarkPage {
        self.page(number)
            .map_or_else(MarkPage::default, |page| page.marks.clone())
    }

    /// Pages that the store has and that lie below `gate`, up to `count`.
    pub(super) fn stored_below(&self, gate: Offset, count: usize) -> Vec<u64> {
        let (number, _) = MarkPage::locate(gate);
        self.stored.range(..number).take(count).copied().collect()
    }

    /// Whether the store has a page below `gate`.
    pub(super) fn has_stored_below(&self, gate: Offset) -> bool {
        let (number, _) = MarkPage::locate(gate);
        self.stored.first().is_some_and(|first| *first < number)
    }

    /// A plan is committed: the store has these pages, and has these no longer.
    pub(super) fn written(&mut self, pages: impl Iterator<Item = u64>, dropped: &[u64]) {
        self.stored.extend(pages);
        for number in dropped {
            self.stored.remove(number);
        }
    }
}

/// Takes away the marks at and above `end`. Returns whether there were any.
fn cut(number: u64, marks: &mut MarkPage, end: Offset) -> bool {
    if marks.end(number) <= end {
        return false;
    }
    let (last, place) = MarkPage::locate(end);
    if number > last {
        *marks = MarkPage::default();
        return true;
    }
    for above in place..MARK_PAGE_PLACES {
        marks.clear(above);
    }
    true
}

fn at(page: u64, place: u16) -> Offset {
    Offset::new(page * MARK_PAGE_OFFSETS + u64::from(place))
}
