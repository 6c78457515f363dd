//! What a store would hold of one queue, and the proof that something was written.

use std::collections::BTreeMap;

use futures::FutureExt;
use pop_store::{Durable, MemStore, StoreExt, WriteBatch};

use super::*;

#[derive(Clone, Debug, Default)]
pub(super) struct Disk {
    pub(super) epoch: SubscriptionEpoch,
    pub(super) committed: Offset,
    pub(super) pages: BTreeMap<u64, MarkPage>,
    pub(super) rows: BTreeMap<Offset, Checkpoint>,
}

impl Disk {
    /// Writes a plan, as the shell puts it into a batch: deletes first.
    pub(super) fn apply(&mut self, plan: &SettlePlan) {
        for page in plan.dropped_pages() {
            self.pages.remove(page);
        }
        for offset in plan.rows_ended() {
            self.rows.remove(&offset);
        }
        for (number, marks) in plan.pages() {
            self.pages.insert(*number, marks.clone());
        }
        for row in plan.rows_kept().chain(plan.rows_changed()) {
            self.rows.insert(row.identity.offset, row.clone());
        }
        if let Some(committed) = plan.committed() {
            self.committed = committed;
        }
    }

    pub(super) fn restored(&self, ordered: bool, log_end: u64) -> Restored {
        Restored {
            queue: queue_id(),
            epoch: self.epoch,
            committed: self.committed,
            pages: self.pages.clone().into_iter().collect(),
            parked: RestoredParked::default(),
            ordered: ordered.then(|| self.rows.values().cloned().collect()),
            log_start: Offset::ZERO,
            log_end: Offset::new(log_end),
            found_end: Offset::new(log_end),
        }
    }

    /// Whether a restart would find this offset settled.
    pub(super) fn is_settled(&self, offset: Offset) -> bool {
        let (number, place) = MarkPage::locate(offset);
        let page = self.pages.get(&number);
        offset < self.committed || page.is_some_and(|page| page.get(place))
    }
}

/// The proof that a plan is written.
pub(super) fn durable(plan: SettlePlan) -> Durable<SettlePlan> {
    let store = MemStore::new(&[]);
    let written = store.settle(plan, WriteBatch::new(), Durability::Synced);
    let written = written.now_or_never().expect("memory answers at once");
    written.expect("memory takes every write")
}
