//! What is to be written so that offsets become settled, and what its outcome changes.

use pop_model::{Checkpoint, LeaseTime, MarkPage, Mutant, Offset};
use pop_store::{Durability, Durable, table::parked::Parked};

use super::{LeaseQueue, pages::SlotState, parking::ParkedEnd};

/// The most pages that one plan writes because of acknowledgements.
const DIRTY_PAGES_MAX: usize = 128;
/// The most rows of acknowledged offsets that one plan deletes.
const ROWS_ENDED_MAX: usize = 256;
/// The most keys of parked messages that one plan deletes; each may have a row.
const PARKED_KEYS_MAX: usize = 192;
/// The most changed rows that one plan writes.
const ROWS_CHANGED_MAX: usize = 64;
const _: () = assert!(
    PARKED_KEYS_MAX + ROWS_CHANGED_MAX <= ROWS_ENDED_MAX,
    "they are among these"
);
/// The most pages below the committed offset that one plan deletes.
const DROPPED_PAGES_MAX: usize = 64;

/// One write of a queue: the settled marks, and the committed offset that they allow.
///
/// It goes into one batch with whatever settles its offsets (a stored lease, a retry
/// entry, a dead letter), and only the proof that this batch is committed moves anything.
/// Hand it back through [`LeaseQueue::settled`] or [`LeaseQueue::refused`].
#[derive(Debug)]
#[must_use = "a plan that is not handed back keeps its queue from settling anything"]
pub struct SettlePlan {
    settles: Vec<Offset>,
    keeps: Vec<Keep>,
    gate: Offset,
    moves: bool,
    acks: u64,
    pages: Vec<(u64, MarkPage)>,
    dirty: Vec<u64>,
    dropped_pages: Vec<u64>,
    rows_ended: Vec<Offset>,
    rows_settled: Vec<Offset>,
    rows_changed: Vec<Checkpoint>,
    parks: Vec<Parked>,
    parked_ended: Vec<ParkedEnd>,
    parked_settled: Vec<Parked>,
}

/// A delivery of an ordered queue whose row is written, and that stays open.
#[derive(Clone, Debug)]
pub struct Keep {
    /// The row.
    pub row: Checkpoint,
    /// The delivery is over, and its message ready for the one that the row counts.
    pub is_ready: bool,
}

impl Keep {
    /// A delivery that is out, stored as it is.
    #[must_use]
    pub fn out(row: Checkpoint) -> Self {
        Self {
            row,
            is_ready: false,
        }
    }

    /// The end of `due`: its message is ready for its `attempt`th delivery. The row says
    /// so by a deadline of zero, which no delivery that is out has.
    #[must_use]
    pub fn ready(due: Checkpoint, attempt: u32) -> Self {
        Self {
            row: Checkpoint {
                delivery_attempt: attempt,
                suspend: false,
                visible_at: LeaseTime::ZERO,
                ..due
            },
            is_ready: true,
        }
    }
}

impl SettlePlan {
    /// The most keys that a plan adds to a batch, beside a page and a row for each offset
    /// that it settles.
    pub const KEYS_MAX: usize = DIRTY_PAGES_MAX + ROWS_ENDED_MAX + DROPPED_PAGES_MAX + 1;

    /// How it is to be written. That a delivery is over must be durable before the next one of
    /// its message goes out: after a crash its handle would count as the last one.
    #[must_use]
    pub fn durability(&self) -> Durability {
        match self.keeps.iter().any(|keep| keep.is_ready) {
            true => Durability::Synced,
            false => Durability::Buffered,
        }
    }

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

    /// How many offsets it settles, beside those that were acknowledged.
    #[must_use]
    pub fn settles_count(&self) -> usize {
        self.settles.len()
    }

    /// The settled offsets whose rows to delete.
    pub fn rows_ended(&self) -> impl Iterator<Item = Offset> {
        let of_parked = self.parked_ended.iter().filter(|end| end.has_row);
        let of_parked = of_parked.map(|end| end.parked.1);
        let others = self.rows_ended.iter().chain(&self.rows_settled).copied();
        others.chain(of_parked)
    }

    /// The messages to park.
    #[must_use]
    pub fn parks(&self) -> &[Parked] {
        &self.parks
    }

    /// The messages that are parked no longer, since they are settled for good.
    pub fn parked_ended(&self) -> impl Iterator<Item = Parked> {
        let ended = self.parked_ended.iter().map(|end| end.parked);
        ended.chain(self.parked_settled.iter().copied())
    }

    /// The rows that were changed, to write.
    #[must_use]
    pub fn rows_changed(&self) -> &[Checkpoint] {
        &self.rows_changed
    }

    /// The rows of deliveries that stay open.
    pub fn rows_kept(&self) -> impl Iterator<Item = &Checkpoint> {
        self.keeps.iter().map(|keep| &keep.row)
    }
}

impl LeaseQueue {
    /// Plans the write that settles `settles` and keeps `keeps`, which must be reserved or
    /// staged, together with what was acknowledged and is not in the store yet.
    ///
    /// `None` while another plan is in flight: pages are written whole, so one write a
    /// queue at a time. Two in flight would each leave out the marks of the other.
    pub fn plan(&mut self, mut settles: Vec<Offset>, keeps: Vec<Keep>) -> Option<SettlePlan> {
        if self.planning && !Mutant::SecondWriteWhileInDoubt.is_on() {
            return None;
        }
        debug_assert!(
            settles.iter().all(|offset| matches!(
                self.state(*offset),
                Some(SlotState::Reserved | SlotState::Staged(_)) | None
            )),
            "only what is reserved or staged is settled by a plan"
        );
        settles.sort_unstable();
        let (parked_ended, parked_keys) = self.take_parked_ended();
        let rows_changed = self.take_rows_changed(&settles, &keeps);
        let ended = ROWS_ENDED_MAX - parked_keys - rows_changed.len();
        let ended = self.rows_ended.len().min(ended);
        let rows_ended: Vec<Offset> = self.rows_ended.drain(..ended).collect();
        // Their rows go with a later plan, and so do their marks.
        let left = std::mem::take(&mut self.rows_ended);
        let gate = self.gate_after(&settles, &left);
        let (first_page, _) = MarkPage::locate(gate);
        let dirty = self.pages.take_dirty(DIRTY_PAGES_MAX);
        let mut numbers = dirty.clone();
        // What was parked has its mark.
        let unmarked = settles.iter().filter(|it| !self.pages.is_unparked(**it));
        numbers.extend(unmarked.map(|offset| MarkPage::locate(*offset).0));
        numbers.sort_unstable();
        numbers.dedup();
        numbers.retain(|number| *number >= first_page);
        let mut pages: Vec<_> = numbers
            .into_iter()
            .map(|number| (number, self.pages.marks(number)))
            .collect();
        let marked: &[Offset] = if Mutant::MarkLeftOut.is_on() {
            &[]
        } else {
            &settles
        };
        for offset in marked {
            change_mark(&mut pages, *offset, MarkPage::set);
        }
        for offset in &left {
            change_mark(&mut pages, *offset, MarkPage::clear);
        }
        let postponed: Vec<u64> = left.iter().map(|at| MarkPage::locate(*at).0).collect();
        self.pages.put_back_dirty(&postponed);
        self.rows_ended = left;
        self.planning = true;
        Some(SettlePlan {
            moves: gate > self.committed,
            dropped_pages: self.pages.stored_below(gate, DROPPED_PAGES_MAX),
            acks: if self.rows_ended.is_empty()
                && self.parked_ended.is_empty()
                && !self.pages.is_dirty()
            {
                self.acks
            } else {
                self.acks_committed
            },
            rows_settled: self.rows_of(&settles),
            parks: self.parks_of(&settles),
            parked_settled: self.parked_of(&settles),
            parked_ended,
            rows_changed,
            settles,
            keeps,
            gate,
            pages,
            dirty,
            rows_ended,
        })
    }

    /// Makes true what a plan says: its write is committed, with this durability.
    pub fn settled(&mut self, plan: Durable<SettlePlan>, durability: Durability) {
        let plan = plan.into_work();
        self.planning = false;
        let pages = plan.pages.iter().map(|(number, _)| *number);
        self.pages.written(pages, &plan.dropped_pages);
        self.committed = self.committed.max(plan.gate);
        self.acks_committed = self.acks_committed.max(plan.acks);
        // By prefix durability a synced plan syncs those before it.
        if durability == Durability::Synced {
            self.acks_durable = self.acks_committed;
        }
        for parked in &plan.parks {
            self.parked(*parked);
        }
        for offset in &plan.settles {
            self.settle_offset(*offset, true);
        }
        if !self.rows.is_empty() {
            for offset in &plan.settles {
                self.rows.remove(offset);
            }
        }
        for keep in plan.keeps {
            self.keep(keep);
        }
    }

    fn keep(&mut self, keep: Keep) {
        let offset = keep.row.identity.offset;
        if let Some(SlotState::Staged(id)) = self.state(offset) {
            self.counts.staged -= 1;
            if keep.is_ready {
                self.leave(offset, id);
                if let Some(groups) = &mut self.groups {
                    groups.set_attempt(offset, keep.row.delivery_attempt);
                }
                self.make_ready(offset);
            } else if self.due_at(id) == keep.row.visible_at {
                self.counts.buffered += 1;
                self.pages.set_state(offset, SlotState::Buffered(id));
                self.looks.insert(keep.row.visible_at, id);
            } else {
                // It was put off: memory follows its row.
                self.leave(offset, id);
                self.go_on(offset, &keep.row, keep.row.popped_at);
            }
            self.rows.insert(offset, keep.row);
        }
    }

    /// Parked messages to end, and how many keys that takes.
    fn take_parked_ended(&mut self) -> (Vec<ParkedEnd>, usize) {
        let (mut ended, mut keys) = (Vec::new(), 0);
        while keys + 2 <= PARKED_KEYS_MAX
            && let Some(end) = self.parked_ended.pop()
        {
            keys += 1 + usize::from(end.has_row);
            ended.push(end);
        }
        (ended, keys)
    }

    /// The rows that were changed, but for those that are written or deleted anyway.
    fn take_rows_changed(&mut self, settles: &[Offset], keeps: &[Keep]) -> Vec<Checkpoint> {
        let mut rows = Vec::new();
        while rows.len() < ROWS_CHANGED_MAX
            && let Some(offset) = self.rows_changed.pop_first()
        {
            let is_kept = keeps.iter().any(|keep| keep.row.identity.offset == offset);
            if !is_kept && settles.binary_search(&offset).is_err() {
                rows.extend(self.rows.get(&offset).cloned());
            }
        }
        rows
    }

    fn rows_of(&self, settles: &[Offset]) -> Vec<Offset> {
        let has_row = |offset: &&Offset| self.rows.contains_key(offset);
        settles.iter().filter(has_row).copied().collect()
    }

    /// Takes back a plan whose write is known to have had no effect. What was reserved is
    /// ready again; what was staged is looked at again at `again`.
    pub fn refused(&mut self, plan: SettlePlan, again: LeaseTime) {
        self.planning = false;
        self.pages.put_back_dirty(&plan.dirty);
        self.rows_ended.extend(plan.rows_ended);
        self.parked_ended.extend(plan.parked_ended);
        let changed = plan.rows_changed.iter().map(|row| row.identity.offset);
        self.rows_changed.extend(changed);
        for (_, offset) in &plan.parks {
            self.parking.remove(offset);
        }
        if Mutant::RefusedPlanKeepsOffsets.is_on() {
            return;
        }
        let kept = plan.keeps.iter().map(|keep| keep.row.identity.offset);
        for offset in plan.settles.iter().copied().chain(kept) {
            match self.state(offset) {
                Some(SlotState::Reserved) => {
                    self.counts.reserved -= 1;
                    self.make_ready(offset);
                }
                Some(SlotState::Staged(_)) => self.unstage(offset, again),
                _ => {}
            }
        }
    }

    /// Whether a plan is in flight.
    #[must_use]
    pub fn is_planning(&self) -> bool {
        self.planning
    }

    /// The lowest offset that is not settled once `settling` are, `left` being open still.
    fn gate_after(&self, settling: &[Offset], left: &[Offset]) -> Offset {
        let mut gate = self.gate;
        loop {
            gate = self.pages.first_open_from(gate);
            let passes = settling.binary_search(&gate).is_ok() || self.is_ignored(gate);
            if !passes {
                break;
            }
            gate = gate.next();
        }
        left.iter()
            .fold(gate, |gate, open| gate.min(*open))
            .max(self.committed)
    }

    fn is_ignored(&self, offset: Offset) -> bool {
        match self.state(offset) {
            Some(SlotState::Staged(_)) => Mutant::GateIgnoresStaged.is_on(),
            Some(SlotState::Reserved) => Mutant::GateIgnoresReserved.is_on(),
            Some(SlotState::Held) => Mutant::GateIgnoresHeld.is_on(),
            Some(SlotState::Buffered(_)) => Mutant::GateIgnoresBuffered.is_on(),
            _ => false,
        }
    }
}

fn change_mark(pages: &mut [(u64, MarkPage)], offset: Offset, change: fn(&mut MarkPage, u16)) {
    let (number, place) = MarkPage::locate(offset);
    if let Ok(index) = pages.binary_search_by_key(&number, |(number, _)| *number)
        && let Some((_, marks)) = pages.get_mut(index)
    {
        change(marks, place);
    }
}
