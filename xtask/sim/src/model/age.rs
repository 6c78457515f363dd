//! Messages that end by their age: which may have ended, and what must be kept.
//!
//! A message that is old enough may end at any moment, for every group that does not refer
//! to it. What is out, what is to be delivered again, what is in quarantine and what was put
//! back to work refers to its message; a group that consumes in order keeps nothing.

use std::collections::BTreeMap;

use super::{Millis, Model, State};

/// A change of wall time against lease time by more than this stops it ...
const JUMP_MS: u64 = 60 * 60 * 1_000;
/// ... until nothing more of the kind happened for so long.
const STABLE_MS: Millis = 24 * 60 * 60 * 1_000;

/// What the operator wants, and what the clocks say.
#[derive(Debug, Default)]
pub(super) struct Ages {
    /// How long messages are kept.
    keep: Option<Millis>,
    wall: i64,
    lease: Millis,
    // How far wall time may be ahead of lease time where it was last trusted.
    trusted: Vec<i64>,
    // Lease time when the clocks last fell out of step.
    since: Millis,
    // By topic, life and queue: the messages at their offsets.
    places: BTreeMap<(usize, usize, u32), BTreeMap<u64, usize>>,
    // Below these offsets messages may have ended.
    ends: BTreeMap<(usize, usize, u32), u64>,
}

/// How old a message is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Age {
    // Wall time when it was stored, at least.
    stored: i64,
    // The earliest wall time since: its dead letter is of then, at least.
    earliest: i64,
    /// It may have ended, but for those who refer to it.
    pub(super) may_have_ended: bool,
    /// Its dead letters may have ended.
    pub(super) letters_may_have_ended: bool,
}

impl Ages {
    /// A message that is sent now.
    pub(super) fn newborn(&self) -> Age {
        Age {
            stored: self.wall,
            earliest: self.wall,
            may_have_ended: false,
            letters_may_have_ended: false,
        }
    }

    fn is_trusted(&self, ahead: i64) -> bool {
        let is_near = |trusted: &i64| trusted.abs_diff(ahead) <= JUMP_MS;
        self.trusted.iter().any(is_near) || self.lease.saturating_sub(self.since) >= STABLE_MS
    }

    fn ahead(&self) -> i64 {
        self.wall
            .saturating_sub(i64::try_from(self.lease).unwrap_or(i64::MAX))
    }

    fn trust(&mut self, ahead: i64) {
        if !self.trusted.contains(&ahead) {
            self.trusted.push(ahead);
        }
    }
}

impl Model {
    /// The operator says how long messages are kept.
    pub fn keeps(&mut self, keep: Option<Millis>) {
        self.ages.keep = keep;
        self.look_for_the_old();
    }

    /// How long messages are kept.
    pub fn keep(&self) -> Option<Millis> {
        self.ages.keep
    }

    /// The operator says that wall time is right.
    pub fn confirmed(&mut self) {
        let ahead = self.ages.ahead();
        self.ages.trust(ahead);
        self.look_for_the_old();
    }

    /// The clocks say this.
    pub fn clocks(&mut self, wall: i64, lease: Millis) {
        if (wall, lease) == (self.ages.wall, self.ages.lease) {
            return;
        }
        let is_back = wall < self.ages.wall;
        let before = self.ages.ahead();
        (self.ages.wall, self.ages.lease) = (wall, lease);
        if self.ages.ahead() != before {
            self.ages.since = lease;
        }
        if is_back {
            for sent in &mut self.messages {
                sent.age.earliest = sent.age.earliest.min(wall);
            }
            for message in &self.unanswered {
                let age = &mut self.messages[*message].age;
                age.stored = age.stored.min(wall);
            }
        }
        self.look_for_the_old();
    }

    /// A message lies here.
    pub(super) fn lies_at(&mut self, message: usize, (queue, offset): (u32, u64)) {
        let sent = &mut self.messages[message];
        sent.place = Some((queue, offset));
        let places = self
            .ages
            .places
            .entry((sent.content.topic, sent.life, queue));
        places.or_default().insert(offset, message);
    }

    /// Where the broker may look for what is old, it may find it.
    fn look_for_the_old(&mut self) {
        let ahead = self.ages.ahead();
        let Some(keep) = self.ages.keep.filter(|_| self.ages.is_trusted(ahead)) else {
            return;
        };
        self.ages.trust(ahead);
        let keep = i64::try_from(keep).unwrap_or(i64::MAX);
        let cutoff = self.ages.wall.saturating_sub(keep);
        for message in self.runs_of_old(cutoff) {
            self.messages[message].age.may_have_ended = true;
            for group in 0..self.cast.groups.len() {
                self.file(group, message);
            }
        }
        for sent in &mut self.messages {
            sent.age.letters_may_have_ended |= sent.age.earliest < cutoff;
        }
    }

    /// The messages at the start of each queue that are all old; the first one that is not
    /// ends the run. Nobody knows where those lie whose sends were in doubt.
    fn runs_of_old(&mut self, cutoff: i64) -> Vec<usize> {
        let mut old = Vec::new();
        for (queue, places) in &self.ages.places {
            let end = self.ages.ends.entry(*queue).or_default();
            for (offset, message) in places.range(*end..) {
                let sent = &self.messages[*message];
                // What can't be read is as old as what comes after it.
                if sent.age.stored >= cutoff && !sent.is_damaged {
                    break;
                }
                old.push(*message);
                *end = offset + 1;
            }
        }
        let sent = self.messages.iter().enumerate();
        let nowhere = sent.filter(|(_, it)| it.place.is_none() && it.age.stored < cutoff);
        old.extend(nowhere.map(|(message, _)| message));
        old.retain(|message| !self.messages[*message].age.may_have_ended);
        old
    }

    /// Whether a group in this state may have lost a message that is old.
    pub(super) fn may_lose(is_fifo: bool, state: State) -> bool {
        match state {
            State::Ready { attempt, .. } => is_fifo || attempt == 1,
            State::Leased(_) => is_fifo,
            _ => false,
        }
    }
}
