//! A receive that is repeated because its answer was lost: only in an ordered queue, where
//! its message groups wait for it.

use std::time::Duration;

use pop_model::{LeaseTime, Mutant, Offset};

use super::{Granted, LeaseQueue, pages::SlotState};

impl LeaseQueue {
    /// Whether an outcome of what a receive with this name got is being written: what a
    /// repeat would get is not known yet.
    #[must_use]
    pub fn is_being_written(&self, attempt_id: &str) -> bool {
        let staged = |offset: &Offset| matches!(self.state(*offset), Some(SlotState::Staged(_)));
        self.named(attempt_id).iter().any(staged)
    }

    /// Whether a receive with this name got something in an earlier run that was not read
    /// in this one: it is out still, and known once it is [admitted](Self::admit).
    #[must_use]
    pub fn is_still_to_be_read(&self, attempt_id: &str) -> bool {
        self.rows.iter().any(|(offset, row)| {
            *offset >= self.next
                && !self.pages.is_unparked(*offset)
                && row.attempt_id.as_deref() == Some(attempt_id)
                && row.visible_at > LeaseTime::ZERO
        })
    }

    /// What is out of a receive with this name, ascending.
    #[must_use]
    pub fn named(&self, attempt_id: &str) -> Vec<Offset> {
        let groups = self.groups.as_ref();
        groups.map_or_else(Vec::new, |groups| groups.named(attempt_id))
    }

    /// Hides those deliveries anew that a receive with this name got and that are still out,
    /// for whoever repeats the receive. Each comes with what was read of its message: one
    /// that could not be read can't be hidden anew.
    pub fn repeat<T>(
        &mut self,
        attempt_id: &str,
        read: Vec<(Offset, T)>,
        now: LeaseTime,
        invisible_for: Duration,
    ) -> Vec<(Granted, T)> {
        if Mutant::FifoForgetsTheAttemptId.is_on() {
            return Vec::new();
        }
        let named = self.named(attempt_id);
        let mut granted = Vec::new();
        for (offset, read) in read {
            if named.binary_search(&offset).is_err() {
                continue;
            }
            let Some(SlotState::Buffered(id)) = self.state(offset) else {
                continue;
            };
            let Some(receive) = self.receives.get(id) else {
                continue;
            };
            if receive.visible_at() <= now {
                continue;
            }
            let attempt = u32::from(receive.attempt);
            let identity = self.checkpoint(offset, receive).identity;
            self.change(&identity, now, invisible_for, false);
            granted.push((Granted { identity, attempt }, read));
        }
        granted
    }
}
