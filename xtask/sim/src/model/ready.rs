//! What a group must be able to get, and how much may be out.

use super::{Delivery, Millis, Model, State, Window};
use crate::violation::{Checked, Violation};

/// Stored deliveries of queues that are not in memory are not counted against the bound, so
/// that it is exceeded by up to this factor.
const STORED_UNCOUNTED: u64 = 2;

impl Model {
    /// The messages of a topic that a group must be able to get. Those whose leases were over
    /// between these moments of lease time are among them: nothing went wrong since.
    pub fn ready(
        &self,
        group: usize,
        topic: usize,
        over: std::ops::Range<Millis>,
    ) -> impl Iterator<Item = usize> {
        // What is ready in order depends on what is before it: the end of a run tells.
        let is_known = !self.may_be_held_back(group) && !self.cast.groups[group].is_fifo;
        let open = self.open[group][topic].iter().copied();
        open.filter(move |it| {
            is_known && !self.messages[*it].is_damaged && self.is_ready(group, *it, &over)
        })
    }

    /// Whether a message can be handed out, for sure.
    fn is_ready(&self, group: usize, message: usize, over: &std::ops::Range<Millis>) -> bool {
        let attempts_max = self.cast.groups[group].attempts_max;
        self.tracks[group][message].surely(|state| match state {
            State::Ready { .. } => true,
            State::Leased(lease) => {
                over.contains(&lease.until_at_least)
                    && over.contains(&lease.until_at_most)
                    && !lease.next(attempts_max).is_final()
            }
            _ => false,
        })
    }

    /// Whether so much may be out that a receive gets nothing.
    fn may_be_held_back(&self, group: usize) -> bool {
        let tuning = self.cast.tuning;
        // Each receive sets aside as much as it asks for until it knows what it gets.
        const ASKED_AT_ONCE: u64 = 64;
        tuning.is_bounded() && {
            let of_group = self.open[group].iter().flatten();
            let is_out = |state| matches!(state, State::Leased(_));
            let out = of_group.filter(|message| self.tracks[group][**message].maybe(is_out));
            out.count() as u64 + ASKED_AT_ONCE > tuning.in_flight_max
        }
    }

    /// Not more is out than is allowed.
    pub(super) fn check_bound(&self, group: usize, since: Delivery, at: Window) -> Checked {
        let bound = self.cast.tuning.in_flight_max;
        if !self.cast.tuning.is_bounded() {
            return Ok(());
        }
        let of_group = self.open[group].iter().flatten();
        let is_out = |state| {
            matches!(state, State::Leased(lease)
                if lease.until_at_least > at.answered && lease.delivery.is_some_and(|it| it >= since))
        };
        let out = of_group.filter(|message| self.tracks[group][**message].surely(is_out));
        let out = out.count() as u64;
        if out <= STORED_UNCOUNTED * bound + self.of_earlier_lives[group] {
            return Ok(());
        }
        let name = &self.cast.groups[group].name;
        let what = format!("{out} deliveries of {name} are out, and {bound} are allowed");
        Err(Violation::new("bounds hold", what))
    }
}
