//! Messages that were handed out, or may have been.

use super::{Arrived, Handed, Lease, Millis, Model, State, Void, Window};
use crate::violation::{Checked, Violation};

impl Model {
    /// A message was handed out. Returns whether it is a new delivery.
    ///
    /// # Errors
    ///
    /// If it must not have been.
    pub fn delivered(&mut self, arrived: Arrived, handle: String, at: Window) -> Checked<bool> {
        let Arrived { group, message, .. } = arrived;
        if self.is_repeated(&arrived, &handle, at) {
            return Ok(false);
        }
        let number = self.deliveries.len();
        let attempts_max = self.cast.groups[group].attempts_max;
        let lease = State::Leased(Lease {
            attempt: arrived.attempt,
            delivery: Some(number),
            until_at_least: at.asked + arrived.invisible_ms,
            until_at_most: at.answered + arrived.invisible_ms,
            suspend: false,
            receive: Some(arrived.receive),
        });
        let same = self.may_be_the_same(&arrived, number, at);
        let is_damaged = self.messages[message].is_damaged;
        let track = &mut self.tracks[group][message];
        let allowed = !is_damaged
            && track.observe(at.time, |state| {
                let expected = state.attempt_at(at.answered, attempts_max);
                (expected == Some(arrived.attempt)).then_some(lease)
            });
        if !allowed {
            return Err(self.wrong_delivery(group, message, arrived.attempt, at));
        }
        track.may_be(same);
        self.deliveries.push(Handed {
            group,
            group_life: self.groups[group].count,
            message,
            handles: vec![handle],
            void: Void::No,
        });
        if self.cast.groups[group].is_fifo {
            if self.messages[message].place.is_none() {
                self.lies_at(message, arrived.place);
            }
            self.has_read(group, self.messages[message].content.topic, arrived.place);
        }
        self.file(group, message);
        self.is_stored(message);
        self.check_bound(group, self.of_this_life, at)?;
        Ok(true)
    }

    /// A receive of this group may have taken anything that was ready, and nobody heard the
    /// answer. What reached nobody is released at once and uncounted; where that may have
    /// gone wrong, it is out until its time is up.
    pub fn may_have_received(
        &mut self,
        group: usize,
        topic: usize,
        invisible_ms: Millis,
        at: Window,
    ) {
        let attempts_max = self.cast.groups[group].attempts_max;
        for message in &self.open[group][topic] {
            let track = &mut self.tracks[group][*message];
            let attempts = track.states().iter();
            let attempts = attempts.filter_map(|it| it.attempt_at(at.answered, attempts_max));
            let leases: Vec<State> = attempts
                .map(|attempt| {
                    State::Leased(Lease {
                        attempt,
                        delivery: None,
                        until_at_least: at.asked + invisible_ms,
                        until_at_most: at.answered + invisible_ms,
                        suspend: false,
                        receive: None,
                    })
                })
                .collect();
            if leases.is_empty() {
                continue;
            }
            track.was_for_a_moment(at.time, &leases);
            self.recent.insert((group, *message));
            if !at.is_calm {
                track.may_be(leases);
            }
        }
    }

    fn wrong_delivery(&self, group: usize, message: usize, attempt: u32, at: Window) -> Violation {
        let track = &self.tracks[group][message];
        let attempts_max = self.cast.groups[group].attempts_max;
        let could_be = |state: State| state.attempt_at(at.answered, attempts_max).is_some();
        let promise = if self.messages[message].is_damaged {
            "P6 a damaged message was handed out"
        } else if track.maybe(could_be) {
            "attempts are counted by one"
        } else if track.maybe(|state| matches!(state, State::Leased(_))) {
            "P3 one owner"
        } else if track.maybe(|state| state == State::Done) {
            "P4 no repeat after a durable acknowledgement"
        } else {
            "nothing is handed out that must not be"
        };
        let group = &self.cast.groups[group].name;
        let id = self.messages[message].content.id();
        let what = format!(
            "{group} got {id} with attempt {attempt} at {}; it may be {:?}",
            at.answered,
            track.states()
        );
        Violation::new(promise, what)
    }
}
