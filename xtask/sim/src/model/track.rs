//! One message of one group: everything that it may be, given what clients were told.

use super::state::{Millis, State};

/// A message of a group.
#[derive(Clone, Debug)]
pub struct Track {
    // Several only where an answer was lost or in doubt, or a restart forgot something.
    states: Vec<State>,
    // What it was until when, as far as a power cut may bring it back.
    recent: Vec<(Millis, State)>,
    // It was reset after it may have got into the dead-letter topic so often.
    died_before: usize,
}

impl Track {
    /// It may be each of these.
    pub fn new(states: Vec<State>) -> Self {
        Self {
            states,
            recent: Vec::new(),
            died_before: 0,
        }
    }

    /// The same, after it may have got into the dead-letter topic so often.
    pub fn that_died(mut self, times: usize) -> Self {
        self.died_before = times;
        self
    }

    /// How often it may have got into the dead-letter topic before it was last reset.
    pub fn died_before(&self) -> usize {
        self.died_before
    }

    /// How often it may be in the dead-letter topic, if it is reset now.
    pub fn died(&self) -> usize {
        let may_die = |state| matches!(state, State::Dead | State::Leased(_));
        self.died_before + usize::from(self.maybe(may_die))
    }

    /// Everything that it may be.
    pub fn states(&self) -> &[State] {
        &self.states
    }

    /// Whether all that it may be is so.
    pub fn surely(&self, is: impl Fn(State) -> bool) -> bool {
        self.states.iter().all(|state| is(*state))
    }

    /// Whether something that it may be is so.
    pub fn maybe(&self, is: impl Fn(State) -> bool) -> bool {
        self.states.iter().any(|state| is(*state))
    }

    /// Keeps of all that it may be what an observation made of each; `false`, and nothing
    /// is changed, if none of them allows the observation.
    pub fn observe(&mut self, now: Millis, becomes: impl Fn(State) -> Option<State>) -> bool {
        let mut after = Vec::with_capacity(self.states.len());
        for state in self.states.iter().filter_map(|state| becomes(*state)) {
            if !after.contains(&state) {
                after.push(state);
            }
        }
        if after.is_empty() {
            return false;
        }
        self.remember(now, &after);
        self.states = after;
        true
    }

    /// It may be these as well.
    pub fn may_be(&mut self, states: impl IntoIterator<Item = State>) {
        for state in states {
            if !self.states.contains(&state) {
                self.states.push(state);
            }
        }
    }

    /// It was these until now, and a power cut may show it.
    pub fn was_for_a_moment(&mut self, now: Millis, states: &[State]) {
        self.recent.extend(states.iter().map(|state| (now, *state)));
    }

    /// What is over now can come back until it is known to be durable.
    fn remember(&mut self, now: Millis, after: &[State]) {
        for state in &self.states {
            if !after.contains(state) {
                self.recent.push((now, *state));
            }
        }
    }

    /// A restart lost what was in memory alone and what was not durable: anything that it
    /// was since `durable_until` may be back, and leases may be forgotten.
    ///
    /// Lease time may go back a little, so what may have ended by `now` is noted.
    pub fn restarted(
        &mut self,
        durable_until: Millis,
        now: Millis,
        attempts_max: u32,
        is_fifo: bool,
    ) {
        let recent = self.recent.iter();
        let lost = recent.filter(|(until, _)| *until >= durable_until);
        let lost: Vec<State> = lost.map(|(_, state)| *state).collect();
        self.may_be(lost);
        let ended: Vec<State> = self
            .states
            .iter()
            .filter_map(|state| state.ended(now, attempts_max))
            .collect();
        self.may_be(ended);
        if is_fifo {
            // The row of a delivery in order may be from before its last change.
            let unchanged = self
                .states
                .iter()
                .filter_map(|it| it.unchanged(attempts_max));
            let unchanged: Vec<State> = unchanged.collect();
            self.may_be(unchanged);
        }
        let forgotten: Vec<State> = self.states.iter().filter_map(|it| it.forgotten()).collect();
        self.may_be(forgotten);
    }

    /// Everything up to here is durable. Returns whether anything is left to remember.
    pub fn forget_until(&mut self, durable_until: Millis) -> bool {
        self.recent.retain(|(until, _)| *until >= durable_until);
        !self.recent.is_empty()
    }
}
