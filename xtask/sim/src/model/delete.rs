//! Topics and groups that are deleted and made again: what was of the old one is over, and
//! nothing of it comes to the new one.

use super::{Delivery, Millis, Model, State, Subscribed, Track};

/// How often a topic or a group was deleted, and when it was last asked for.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Lives {
    pub(super) count: usize,
    asked: Option<Millis>,
}

impl Lives {
    fn may_have_ended_since(&self, moment: Millis) -> bool {
        self.asked.is_some_and(|asked| asked >= moment)
    }
}

impl Model {
    /// A topic is about to be deleted.
    pub fn deleting_topic(&mut self, topic: usize, now: Millis) {
        self.topics[topic].asked = Some(now);
    }

    /// A group is about to be deleted.
    pub fn deleting_group(&mut self, group: usize, now: Millis) {
        self.groups[group].asked = Some(now);
    }

    /// How often a topic was deleted.
    pub fn life_of_topic(&self, topic: usize) -> usize {
        self.topics[topic].count
    }

    /// Whether a message is of a topic that was not deleted since.
    pub fn is_of_this_topic(&self, message: usize) -> bool {
        let sent = &self.messages[message];
        sent.life == self.topics[sent.content.topic].count
    }

    /// Whether a call that was made at this moment may be told that its topic or its group
    /// is not there.
    pub fn may_be_gone(&self, group: Option<usize>, topic: usize, asked: Millis) -> bool {
        let of_group = group.map(|group| &self.groups[group]);
        let mut lives = of_group.into_iter().chain([&self.topics[topic]]);
        lives.any(|it| it.may_have_ended_since(asked))
    }

    /// The same for a call with the handle of a delivery, which may be of an old one.
    pub fn delivery_may_be_gone(&self, delivery: Delivery, asked: Millis) -> bool {
        let of = &self.deliveries[delivery];
        let topic = self.messages[of.message].content.topic;
        !self.is_of_this_life(delivery) || self.may_be_gone(Some(of.group), topic, asked)
    }

    /// Whether neither the group nor the topic of a delivery was deleted since.
    pub(super) fn is_of_this_life(&self, delivery: Delivery) -> bool {
        let of = &self.deliveries[delivery];
        of.group_life == self.groups[of.group].count && self.is_of_this_topic(of.message)
    }

    /// A topic was deleted, and its name is another topic's.
    pub fn topic_deleted(&mut self, topic: usize) {
        for message in 0..self.messages.len() {
            if self.messages[message].content.topic != topic || !self.is_of_this_topic(message) {
                continue;
            }
            // It was put away before, or never is.
            self.messages[message].may_be_put_away_again = true;
            for group in 0..self.cast.groups.len() {
                self.begins_anew(group, message, vec![State::Absent], true);
            }
        }
        self.topics[topic].count += 1;
        for of_group in &mut self.subscribed {
            of_group[topic] = Subscribed::No;
        }
    }

    /// A group was deleted, and its name is another group's, which begins where new groups
    /// do. Its dead letters stay, but where it was deleted with them.
    pub fn group_deleted(&mut self, group: usize, with_letters: bool) {
        for topic in &mut self.subscribed[group] {
            *topic = Subscribed::No;
        }
        self.groups[group].count += 1;
        for message in 0..self.messages.len() {
            if !self.is_of_this_topic(message) || self.messages[message].was_refused {
                continue;
            }
            self.messages[message].may_be_put_away_again = true;
            let mut states = self.begins_as(group, message);
            if self.messages[message].is_doubtful {
                states.push(State::Absent);
            }
            self.begins_anew(group, message, states, !with_letters);
        }
    }

    /// What was before is gone for good: deletions are synced.
    fn begins_anew(
        &mut self,
        group: usize,
        message: usize,
        states: Vec<State>,
        letters_stay: bool,
    ) {
        let track = &mut self.tracks[group][message];
        let died = if letters_stay { track.died() } else { 0 };
        *track = Track::new(states).that_died(died);
        self.put_back.remove(&(group, message));
        self.file(group, message);
        self.recent.remove(&(group, message));
    }
}
