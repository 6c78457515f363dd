//! Setting where a group goes on: what is out is void from then on.

use super::{Model, State, Told, Track, Void};

/// Where a group is to go on in a topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reset {
    /// At the first message.
    Earliest,
    /// Behind the last one.
    Latest,
    /// At this offset of this queue.
    Offset(u32, u64),
}

impl Model {
    /// A reset was answered. One that failed may have been done in some queues.
    pub fn was_reset(&mut self, group: usize, topic: usize, to: Reset, told: Told) {
        self.receiving(group, topic);
        // One of an offset concerns its queue alone.
        if told == Told::Ok && !matches!(to, Reset::Offset(..)) {
            self.has_received(group, topic);
        }
        for message in 0..self.messages.len() {
            if self.messages[message].content.topic != topic {
                continue;
            }
            let Some(after) = self.after_reset(group, message, to) else {
                continue;
            };
            self.messages[message].may_be_put_away_again = true;
            self.put_back.remove(&(group, message));
            let is_sure = told == Told::Ok && self.messages[message].place.is_some();
            self.is_void(
                group,
                message,
                if is_sure { Void::Yes } else { Void::Maybe },
            );
            let track = &mut self.tracks[group][message];
            let died = track.died();
            let before = track.states().iter();
            let states: Vec<State> = before
                .flat_map(|before| after.iter().map(|after| void(*before, *after)))
                .collect();
            if told == Told::Ok {
                // Synced: no power cut brings back what was before.
                let mut anew = Track::new(Vec::new());
                anew.may_be(states);
                *track = anew.that_died(died);
            } else {
                track.may_be(states);
                *track = track.clone().that_died(died);
            }
            self.file(group, message);
        }
    }

    /// What a message may be after a reset; `None` if it stays what it is.
    fn after_reset(&self, group: usize, message: usize, to: Reset) -> Option<Vec<State>> {
        let place = self.messages[message].place;
        let is_unwanted =
            self.cast.groups[group].is_filtered && !self.messages[message].content.has_tag;
        let begins = if is_unwanted {
            State::Unwanted
        } else {
            State::NEW
        };
        match (to, place) {
            (Reset::Earliest, _) => Some(vec![begins]),
            (Reset::Latest, _) => Some(vec![State::Before]),
            (Reset::Offset(queue, _), Some((of, _))) if queue != of => None,
            (Reset::Offset(_, from), Some((_, offset))) if offset < from => {
                Some(vec![State::Before])
            }
            (Reset::Offset(..), Some(_)) => Some(vec![begins]),
            // It may lie anywhere.
            (Reset::Offset(..), None) => {
                let mut may_be = self.tracks[group][message].states().to_vec();
                may_be.extend([begins, State::Before]);
                Some(may_be)
            }
        }
    }
}

/// What is not there stays away, whatever is reset.
fn void(before: State, after: State) -> State {
    if before == State::Absent {
        before
    } else {
        after
    }
}
