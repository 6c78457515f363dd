//! Messages that can't be read, what is put away because of that, and what becomes of it
//! once they can be read again.

use super::{Model, State, Told, Window};
use crate::violation::{Checked, Violation};

/// What a message that is put away is for its group once it is worked on again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Redriven {
    /// It can be handed out, with this attempt.
    Ready(u32),
    /// It is out, and due at once.
    Due(super::Lease),
    /// The group's filter does not want it.
    Unwanted,
    /// It goes to the dead-letter topic.
    Dead,
}

impl Redriven {
    fn state(self, at: Window) -> State {
        match self {
            Self::Ready(attempt) => State::Ready {
                attempt,
                last: None,
            },
            Self::Due(lease) => State::Leased(super::Lease {
                until_at_least: at.asked,
                until_at_most: at.answered + 1,
                ..lease
            }),
            Self::Unwanted => State::Unwanted,
            Self::Dead => State::Dead,
        }
    }

    /// What it may have been put away as, if it was this.
    fn of(state: State, attempts_max: u32) -> Vec<Self> {
        match state {
            State::Ready { attempt, .. } => vec![Self::Ready(attempt)],
            State::Leased(lease) => {
                let mut all = vec![Self::Due(lease)];
                all.extend(Self::of(lease.next(attempts_max), attempts_max));
                all
            }
            State::Unwanted => vec![Self::Unwanted],
            State::Dead => vec![Self::Dead],
            _ => Vec::new(),
        }
    }
}

impl Model {
    /// The row of a message was damaged: it must go to quarantine and never be handed out.
    pub fn damaged(&mut self, message: usize) {
        self.messages[message].is_damaged = true;
    }

    /// The row of a message is what it was. For each group it is put away, or it is not.
    pub fn repaired(&mut self, message: usize) {
        self.messages[message].is_damaged = false;
        self.messages[message].was_repaired = true;
        for group in 0..self.cast.groups.len() {
            let attempts_max = self.cast.groups[group].attempts_max;
            let track = &mut self.tracks[group][message];
            let states = track.states().iter();
            let away = states.flat_map(|state| Redriven::of(*state, attempts_max));
            let away: Vec<State> = away.map(State::PutAway).collect();
            track.may_be(away);
            self.file(group, message);
        }
    }

    /// Whether a record of a message for a group can be put back to work with an outcome that
    /// is known: a group that has begun anew meets its message anyway.
    pub fn is_clear(&self, message: usize) -> bool {
        !self.messages[message].may_be_put_away_again || !self.is_of_this_topic(message)
    }

    /// A record was to be put back to work.
    ///
    /// # Errors
    ///
    /// If it was not, and could have been; or if it was, and must not have been.
    pub fn redriven(&mut self, group: usize, message: usize, told: Told, at: Window) -> Checked {
        if self.messages[message].is_damaged && self.is_of_this_topic(message) {
            // One on a retry entry is looked at again, and put away again.
            return Ok(());
        }
        // In order, the group has passed it.
        let can_be = !self.cast.groups[group].is_fifo && self.is_of_this_topic(message);
        let track = &mut self.tracks[group][message];
        let becomes = |state| match state {
            State::PutAway(redriven) => Some(redriven.state(at)),
            _ => None,
        };
        let is_allowed = match told {
            Told::Ok => {
                self.put_back.insert((group, message));
                can_be && track.observe(at.time, becomes)
            }
            Told::Over => !can_be,
            Told::Refused | Told::Gone => true,
            Told::Doubt => {
                let states = track.states().to_vec();
                track.may_be(states.into_iter().filter_map(becomes));
                true
            }
        };
        self.file(group, message);
        if is_allowed {
            return Ok(());
        }
        let what = format!(
            "a record of {} for {} was to be put back to work and was told {told:?}; it may be {:?}",
            self.messages[message].content.id(),
            self.cast.groups[group].name,
            self.tracks[group][message].states()
        );
        Err(Violation::new(
            "P6 what was put away is worked on again",
            what,
        ))
    }

    /// An operator gave a record up.
    pub fn dropped(&mut self, group: usize, message: usize, told: Told, at: Window) {
        let track = &mut self.tracks[group][message];
        let done = |state| match state {
            State::PutAway(_) => Some(State::Done),
            _ => None,
        };
        match told {
            Told::Ok if self.messages[message].is_damaged => {
                track.observe(at.time, |_| Some(State::Done));
            }
            Told::Ok => {
                track.observe(at.time, done);
            }
            Told::Doubt => track.may_be([State::Done]),
            Told::Over | Told::Refused | Told::Gone => {}
        }
        self.file(group, message);
        self.messages[message].was_dropped |= matches!(told, Told::Ok | Told::Doubt);
    }

    /// Whether a message that was damaged may be out or on its way, and may be put away: it
    /// is tried until it is one or the other.
    pub(super) fn may_be_either(&self, group: usize, message: usize) -> bool {
        let track = &self.tracks[group][message];
        self.messages[message].was_repaired
            && track.maybe(|it| matches!(it, State::PutAway(_)))
            && track.maybe(|it| matches!(it, State::Leased(_)))
    }
}
