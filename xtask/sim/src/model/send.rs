//! Sends, and who is subscribed when they begin.

use super::{Model, Sent, State, Subscribed, Told, Track};
use crate::message::Content;

impl Model {
    /// A message is about to be sent. Returns its number.
    pub fn sending(&mut self, content: Content) -> usize {
        let number = self.messages.len();
        let topic = content.topic;
        self.messages.push(Sent {
            life: self.topics[topic].count,
            was_refused: false,
            age: self.ages.newborn(),
            content,
            is_doubtful: true,
            is_damaged: false,
            was_repaired: false,
            was_dropped: false,
            may_be_put_away_again: false,
            place: None,
        });
        for group in 0..self.cast.groups.len() {
            let mut states = vec![State::Absent];
            states.extend(self.begins_as(group, number));
            self.tracks[group].push(Track::new(states));
            self.open[group][topic].insert(number);
        }
        self.unanswered.insert(number);
        number
    }

    /// What a message that is there is at first for a group.
    pub(super) fn begins_as(&self, group: usize, message: usize) -> Vec<State> {
        let of = &self.cast.groups[group];
        let content = &self.messages[message].content;
        if of.is_filtered && !content.has_tag {
            return vec![State::Unwanted];
        }
        let subscribed = self.subscribed[group][content.topic];
        let mut states = Vec::new();
        if of.starts_at_the_end && subscribed != Subscribed::Yes {
            states.push(State::Before);
        }
        if !of.starts_at_the_end || subscribed != Subscribed::No {
            states.push(State::NEW);
        }
        states
    }

    /// A send was answered.
    pub fn sent(&mut self, message: usize, told: Told, place: Option<(u32, u64)>) {
        self.unanswered.remove(&message);
        match told {
            Told::Ok => {
                if let Some(place) = place {
                    self.lies_at(message, place);
                }
                self.is_stored(message);
            }
            Told::Refused | Told::Over | Told::Gone => {
                self.messages[message].is_doubtful = false;
                self.messages[message].was_refused = true;
                for group in 0..self.cast.groups.len() {
                    self.tracks[group][message] = Track::new(vec![State::Absent]);
                    self.file(group, message);
                }
            }
            Told::Doubt => {}
        }
    }

    /// A receive is about to be asked: from here on the group may be subscribed.
    pub fn receiving(&mut self, group: usize, topic: usize) {
        let subscribed = &mut self.subscribed[group][topic];
        if *subscribed == Subscribed::No {
            *subscribed = Subscribed::Maybe;
        }
    }

    /// A receive was answered OK: the group is subscribed, for good.
    pub fn has_received(&mut self, group: usize, topic: usize) {
        self.subscribed[group][topic] = Subscribed::Yes;
    }

    /// Whether a group is subscribed to a topic, for sure.
    pub fn is_subscribed(&self, group: usize, topic: usize) -> bool {
        self.subscribed[group][topic] == Subscribed::Yes
    }

    pub(super) fn is_stored(&mut self, message: usize) {
        if !std::mem::take(&mut self.messages[message].is_doubtful) {
            return;
        }
        for group in 0..self.cast.groups.len() {
            let track = &mut self.tracks[group][message];
            let is_there = |state| (state != State::Absent).then_some(state);
            // Not a change: what it was not, no restart brings back.
            if track.maybe(|state| state != State::Absent) {
                let died = track.died_before();
                let states = track.states().iter().copied().filter_map(is_there);
                *track = Track::new(states.collect()).that_died(died);
            }
            self.file(group, message);
        }
    }
}
