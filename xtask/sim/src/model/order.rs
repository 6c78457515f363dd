//! Message groups: a FIFO group gets their messages in order, one batch at a time (P7).

use std::collections::BTreeSet;

use super::{Arrived, Delivery, Lease, Millis, Model, State, Window};
use crate::violation::{Checked, Violation};

/// A line of messages: a queue, and a message group in it. Messages without one share one.
type Line = (u32, Option<u8>);

impl Model {
    fn line_of(&self, message: usize) -> Option<(Line, u64)> {
        let sent = &self.messages[message];
        let (queue, offset) = sent.place?;
        Some(((queue, sent.content.message_group), offset))
    }

    /// A receive that repeats another gets the batch of the other once more, with the same
    /// attempts: it is the same delivery. Returns whether this is one.
    pub(super) fn is_repeated(&mut self, arrived: &Arrived, handle: &str, at: Window) -> bool {
        if !self.cast.groups[arrived.group].is_fifo {
            return false;
        }
        let is_same = |lease: &Lease| {
            lease.receive == Some(arrived.receive)
                && lease.attempt == arrived.attempt
                && lease.delivery.is_some()
                // Where a revive failed it is still out after its time. One that was ended and
                // is not to count comes again with its number.
                && !(lease.suspend && lease.may_be_over(at.answered))
        };
        let track = &mut self.tracks[arrived.group][arrived.message];
        let mut deliveries = BTreeSet::new();
        for state in track.states() {
            if let State::Leased(lease) = state
                && is_same(lease)
            {
                deliveries.extend(lease.delivery);
            }
        }
        let is_one = track.observe(at.time, |state| match state {
            State::Leased(mut lease) if is_same(&lease) => {
                lease.until_at_least = at.asked + arrived.invisible_ms;
                lease.until_at_most = at.answered + arrived.invisible_ms;
                Some(State::Leased(lease))
            }
            _ => None,
        });
        if !is_one {
            return false;
        }
        // Which of them it is nobody may know.
        for delivery in deliveries {
            self.deliveries[delivery].handles.push(handle.to_owned());
        }
        self.file(arrived.group, arrived.message);
        true
    }

    /// A delivery that was not to count and whose time may be up comes with the same number
    /// whether it is repeated or another one: what it is if it is repeated, with the handle
    /// of `number` or the one that it had.
    pub(super) fn may_be_the_same(
        &self,
        arrived: &Arrived,
        number: Delivery,
        at: Window,
    ) -> Vec<State> {
        if !self.cast.groups[arrived.group].is_fifo {
            return Vec::new();
        }
        let mut same = Vec::new();
        for state in self.tracks[arrived.group][arrived.message].states() {
            if let State::Leased(lease) = state
                && lease.receive == Some(arrived.receive)
                && lease.attempt == arrived.attempt
                && lease.suspend
            {
                same.extend([Some(number), lease.delivery].map(|delivery| {
                    State::Leased(Lease {
                        delivery,
                        until_at_least: at.asked + arrived.invisible_ms,
                        until_at_most: at.answered + arrived.invisible_ms,
                        ..*lease
                    })
                }));
            }
        }
        same
    }

    /// Nobody heard the answer of a receive that may repeat another: its batch may be hidden
    /// anew. One that failed changes nothing.
    pub fn may_have_repeated(
        &mut self,
        group: usize,
        topic: usize,
        receive: u64,
        invisible_ms: Millis,
        at: Window,
    ) {
        if !self.cast.groups[group].is_fifo {
            return;
        }
        for message in &self.open[group][topic] {
            let track = &mut self.tracks[group][*message];
            let anew = track.states().iter().filter_map(|state| match state {
                State::Leased(lease) if lease.receive == Some(receive) => {
                    let mut lease = *lease;
                    lease.until_at_least = at.asked + invisible_ms;
                    lease.until_at_most = at.answered + invisible_ms;
                    Some(State::Leased(lease))
                }
                _ => None,
            });
            let anew: Vec<State> = anew.collect();
            track.may_be(anew);
        }
    }

    /// Whether a receive that repeats this one must get its batch once more.
    pub fn must_repeat(&self, group: usize, topic: usize, receive: u64, now: Millis) -> bool {
        let is_out = |state| {
            matches!(state, State::Leased(lease)
                if lease.receive == Some(receive) && lease.until_at_least > now)
        };
        let mut open = self.open[group][topic].iter();
        open.any(|message| {
            !self.messages[*message].is_damaged && self.tracks[group][*message].surely(is_out)
        })
    }

    /// After a message arrived: nothing before it in its line is open but what came `with`
    /// it, and nothing else of the line is out.
    ///
    /// By now it may have been over and have arrived again, with others.
    ///
    /// # Errors
    ///
    /// If there is.
    pub fn check_order(
        &self,
        group: usize,
        message: usize,
        receive: u64,
        with: &[usize],
        at: Window,
        now: Millis,
    ) -> Checked {
        if !self.cast.groups[group].is_fifo {
            return Ok(());
        }
        let Some((line, offset)) = self.line_of(message) else {
            return Ok(());
        };
        // While it could not be read nobody knew its line, and the group may have passed it.
        if self.messages[message].was_repaired {
            return Ok(());
        }
        let topic = self.messages[message].content.topic;
        let of_receive =
            |state| matches!(state, State::Leased(lease) if lease.receive == Some(receive));
        let attempts_max = self.cast.groups[group].attempts_max;
        let is_open = |state: State| match state {
            State::Ready { .. } => true,
            State::Leased(lease) => {
                !lease.may_be_over(at.answered) || !lease.next(attempts_max).is_final()
            }
            _ => false,
        };
        // Of this moment, since time may have passed between two answers of one.
        let is_out = |state| matches!(state, State::Leased(lease) if lease.until_at_least > now);
        let is_still_out =
            self.tracks[group][message].surely(|state| is_out(state) && of_receive(state));
        for other in &self.open[group][topic] {
            let Some((of, before)) = self.line_of(*other) else {
                continue;
            };
            let track = &self.tracks[group][*other];
            let of_other = &self.messages[*other];
            let came_with_it = with.contains(other) || track.maybe(of_receive);
            if *other == message || of != line || of_other.was_repaired || came_with_it {
                continue;
            }
            // A damaged one is put away when its turn comes.
            let passes = before < offset && track.surely(is_open) && !of_other.is_damaged;
            if !(passes || is_still_out && track.surely(is_out)) {
                continue;
            }
            let promise = if passes {
                "P7 in order"
            } else {
                "P7 one batch at a time"
            };
            let what = format!(
                "{} got {} while {} of its line may be {:?}",
                self.cast.groups[group].name,
                self.messages[message].content.id(),
                self.messages[*other].content.id(),
                track.states()
            );
            return Err(Violation::new(promise, what));
        }
        Ok(())
    }
}
