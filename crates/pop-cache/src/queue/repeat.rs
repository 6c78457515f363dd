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
                && row.attempt_id.as_deref() == Some(attempt_id)
                && row.visible_at > LeaseTime::ZERO
        })
    }

    fn named(&self, attempt_id: &str) -> Vec<Offset> {
        let groups = self.groups.as_ref();
        groups.map_or_else(Vec::new, |groups| groups.named(attempt_id))
    }

    /// The deliveries of an ordered queue that a receive with this name got and that are
    /// still out: hidden anew, for whoever repeats the receive.
    pub fn repeat(
        &mut self,
        attempt_id: &str,
        now: LeaseTime,
        invisible_for: Duration,
    ) -> Vec<Granted> {
        if Mutant::FifoForgetsTheAttemptId.is_on() {
            return Vec::new();
        }
        let mut granted = Vec::new();
        for offset in self.named(attempt_id) {
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
            granted.push(Granted { identity, attempt });
        }
        granted
    }
}
