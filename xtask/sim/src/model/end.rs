//! What must have become of every message at the end (P1, P5, P6).

use super::{Model, State};
use crate::violation::{Checked, Violation};

/// What was found at the end, beside deliveries.
#[derive(Debug, Default)]
pub struct Findings {
    /// Group and message of each dead letter.
    pub dead_letters: Vec<(usize, usize)>,
    /// Group and message of each record in quarantine; a group that is deleted is not named.
    pub quarantined: Vec<(Option<usize>, usize)>,
    /// How many records don't say which message they are about.
    pub of_unknown: usize,
}

impl Findings {
    fn records(&self, group: Option<usize>, message: usize) -> usize {
        let records = self.quarantined.iter();
        records.filter(|it| **it == (group, message)).count()
    }
}

/// How a message can have ended, once whatever was out is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// There is nothing left of it.
    Gone,
    /// It is in the dead-letter topic.
    DeadLetter,
    /// It is in quarantine.
    PutAway,
}

impl End {
    fn of(state: State, attempts_max: u32) -> Option<Self> {
        match state {
            State::Absent | State::Before | State::Unwanted | State::Done => Some(Self::Gone),
            State::Dead => Some(Self::DeadLetter),
            State::PutAway(_) => Some(Self::PutAway),
            State::Leased(lease) if lease.next(attempts_max) == State::Dead => {
                Some(Self::DeadLetter)
            }
            State::Ready { .. } | State::Leased(_) => None,
        }
    }
}

impl Model {
    /// Whether there is a message that must still come to its end.
    pub fn has_open(&self) -> bool {
        self.open_tracks()
            .any(|(group, message)| self.is_open(group, message))
    }

    fn is_open(&self, group: usize, message: usize) -> bool {
        let may_end = |state| End::of(state, self.cast.groups[group].attempts_max).is_some();
        !self.messages[message].is_damaged && !self.tracks[group][message].maybe(may_end)
    }

    /// Whether a damaged message was out for the last time: it can't become a dead letter, and
    /// is tried again and again until it is put away.
    pub fn is_being_exhausted(&self) -> bool {
        self.open_tracks().any(|(group, message)| {
            if self.may_be_either(group, message) {
                return true;
            }
            let attempts_max = self.cast.groups[group].attempts_max;
            let is_last = |state: State| match state {
                State::Leased(lease) => lease.next(attempts_max) == State::Dead,
                other => other == State::Dead,
            };
            self.messages[message].is_damaged && self.tracks[group][message].maybe(is_last)
        })
    }

    pub(super) fn open_tracks(&self) -> impl Iterator<Item = (usize, usize)> {
        self.open.iter().enumerate().flat_map(|(group, by_topic)| {
            by_topic
                .iter()
                .flatten()
                .map(move |message| (group, *message))
        })
    }

    /// The messages that never came to their end, for people.
    pub fn open_text(&self) -> String {
        let open = self.open_tracks();
        let open = open.filter(|(group, message)| self.is_open(*group, *message));
        let text: Vec<String> = open
            .take(5)
            .map(|(group, message)| {
                let name = &self.cast.groups[group].name;
                let id = self.messages[message].content.id();
                format!("{id} of {name}: {:?}", self.tracks[group][message].states())
            })
            .collect();
        text.join("; ")
    }

    /// Nothing was handed out for longer than any lease or delay, so whatever may be over
    /// is over. Holds each message against what was found.
    ///
    /// # Errors
    ///
    /// If a message is gone, or is somewhere where it must not be, or twice.
    pub fn ended(&self, findings: &Findings) -> Checked {
        for (message, sent) in self.messages.iter().enumerate() {
            let mut put_away_surely = 0;
            let mut put_away_maybe = 0;
            for (group, of) in self.cast.groups.iter().enumerate() {
                let letters = findings.dead_letters.iter();
                let letters = letters.filter(|it| **it == (group, message)).count();
                let track = &self.tracks[group][message];
                let told = |problem: &str| {
                    let id = sent.content.id();
                    let what = format!(
                        "{id} of {} {problem}; it may be {:?}",
                        of.name,
                        track.states()
                    );
                    Err(Violation::new("P6 each message has one end", what))
                };
                if letters > 1 + track.died_before() {
                    return told("is in the dead-letter topic more often than it died");
                }
                let may_end = |end| track.maybe(|it| End::of(it, of.attempts_max) == Some(end));
                if letters > track.died_before() && !may_end(End::DeadLetter) {
                    return told("is in the dead-letter topic");
                }
                if sent.is_damaged {
                    let is_open = |it| matches!(it, State::Ready { .. } | State::Leased(_));
                    // What would have died is in one place or in the other.
                    let is_put_away = letters == 0
                        && !sent.age.letters_may_have_ended
                        && track.surely(|it| is_open(it) || it == State::Dead);
                    put_away_surely += usize::from(is_put_away);
                    put_away_maybe +=
                        usize::from(track.maybe(|it| {
                            is_open(it) || matches!(it, State::Unwanted | State::Dead)
                        }));
                } else if sent.was_repaired && !sent.may_be_put_away_again {
                    let records = findings.records(Some(group), message);
                    if records > 0 && !may_end(End::PutAway) {
                        return told("is in quarantine");
                    }
                    let may_be_nowhere = may_end(End::Gone) || sent.age.letters_may_have_ended;
                    if records + letters + findings.of_unknown == 0 && !may_be_nowhere {
                        return told("is nowhere");
                    }
                } else if sent.was_repaired {
                    // Nobody can say how often it was put away.
                } else if letters == 0 && !sent.age.letters_may_have_ended && !may_end(End::Gone) {
                    return told("is not in the dead-letter topic");
                }
            }
            if sent.was_repaired {
                continue;
            }
            let records = findings.quarantined.iter();
            let records = records.filter(|(_, of)| *of == message).count();
            let most = records + findings.of_unknown;
            // A damaged message is met again.
            let put_away_maybe = if sent.may_be_put_away_again {
                usize::MAX
            } else {
                put_away_maybe
            };
            if records > put_away_maybe || most < put_away_surely && !sent.was_dropped {
                let what = format!(
                    "{} is {records} times in quarantine and should be {put_away_surely} to {put_away_maybe} times",
                    sent.content.id()
                );
                return Err(Violation::new("P6 quarantine", what));
            }
        }
        Ok(())
    }
}
