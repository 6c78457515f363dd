//! The reference: what each message may be for each group, given what clients were told.
//!
//! It shares no code with the broker. It follows answers alone, and says of each whether
//! the promises allow it. Where an answer was in doubt, or a restart may have forgotten
//! something, a message may be several things; what is seen later tells which.

mod end;
mod order;
mod reset;
mod settle;
mod state;
mod track;

use std::collections::BTreeSet;

pub use end::Findings;
pub use reset::Reset;
pub use state::{Delivery, Lease, Millis, State};
pub use track::Track;

use crate::{
    cast::Cast,
    message::Content,
    violation::{Checked, Violation},
};

/// Stored deliveries of queues that are not in memory are not counted against the bound, so
/// that it is exceeded by up to this factor.
const STORED_UNCOUNTED: u64 = 2;

/// When something was asked and answered.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    /// Simulated time of the answer.
    pub time: Millis,
    /// Lease time when it was asked.
    pub asked: Millis,
    /// Lease time when it was answered.
    pub answered: Millis,
    /// Nothing went wrong in the store meanwhile.
    pub is_calm: bool,
}

/// What a client was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// It is done.
    Ok,
    /// The delivery is over: nothing was done.
    Over,
    /// Nothing was done, try again.
    Refused,
    /// Nobody knows.
    Doubt,
}

/// A message that a client sent.
#[derive(Debug)]
pub struct Sent {
    /// What it carries.
    pub content: Content,
    /// It may never have been stored.
    pub is_doubtful: bool,
    /// Its row was damaged.
    pub is_damaged: bool,
    /// A group was set to before or behind it.
    pub was_reset: bool,
    /// Queue and offset, if its producer was told.
    pub place: Option<(u32, u64)>,
}

/// A message that arrived.
#[derive(Clone, Copy, Debug)]
pub struct Arrived {
    /// With whom.
    pub group: usize,
    /// Which one.
    pub message: usize,
    /// The number of the attempt.
    pub attempt: u32,
    /// How long it is hidden.
    pub invisible_ms: Millis,
    /// The receive that got it.
    pub receive: u64,
    /// Its queue and offset, where it comes from the queue itself.
    pub place: (u32, u64),
}

/// A delivery that a client was handed.
#[derive(Debug)]
pub struct Handed {
    /// The group.
    pub group: usize,
    /// The message.
    pub message: usize,
    /// Its handles: the first, and one for each change.
    pub handles: Vec<String>,
}

/// Whether a group is subscribed to a topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Subscribed {
    No,
    Maybe,
    Yes,
}

/// Every message of every group.
#[derive(Debug)]
pub struct Model {
    cast: Cast,
    /// All messages, in the order of their sends.
    pub messages: Vec<Sent>,
    /// All deliveries, in the order in which they were seen.
    pub deliveries: Vec<Handed>,
    // By group and message.
    tracks: Vec<Vec<Track>>,
    // By group and topic: the messages that may still be handed out.
    open: Vec<Vec<BTreeSet<usize>>>,
    // Group and message: what a power cut may bring back.
    recent: BTreeSet<(usize, usize)>,
    subscribed: Vec<Vec<Subscribed>>,
    durable_until: Millis,
    // Deliveries from this one on are of the present life of the broker.
    of_this_life: Delivery,
    // By group: how many deliveries of earlier lives may be out. They are counted when the
    // broker meets them, and not before.
    of_earlier_lives: Vec<u64>,
}

impl Model {
    /// Nothing was sent yet.
    pub fn new(cast: Cast) -> Self {
        let groups = cast.groups.len();
        let topics = cast.topics.len();
        Self {
            messages: Vec::new(),
            deliveries: Vec::new(),
            tracks: vec![Vec::new(); groups],
            open: vec![vec![BTreeSet::new(); topics]; groups],
            recent: BTreeSet::new(),
            subscribed: vec![vec![Subscribed::No; topics]; groups],
            durable_until: 0,
            of_this_life: 0,
            of_earlier_lives: vec![0; groups],
            cast,
        }
    }

    /// A message is about to be sent. Returns its number.
    pub fn sending(&mut self, content: Content) -> usize {
        let number = self.messages.len();
        for (group, of) in self.cast.groups.iter().enumerate() {
            let mut states = vec![State::Absent];
            if of.is_filtered && !content.has_tag {
                states.push(State::Unwanted);
            } else {
                let subscribed = self.subscribed[group][content.topic];
                if of.starts_at_the_end && subscribed != Subscribed::Yes {
                    states.push(State::Before);
                }
                if !of.starts_at_the_end || subscribed != Subscribed::No {
                    states.push(State::NEW);
                }
            }
            self.tracks[group].push(Track::new(states));
            self.open[group][content.topic].insert(number);
        }
        self.messages.push(Sent {
            content,
            is_doubtful: true,
            is_damaged: false,
            was_reset: false,
            place: None,
        });
        number
    }

    /// A send was answered.
    pub fn sent(&mut self, message: usize, told: Told, place: Option<(u32, u64)>) {
        match told {
            Told::Ok => {
                self.messages[message].place = place;
                self.is_stored(message);
            }
            Told::Refused | Told::Over => {
                self.messages[message].is_doubtful = false;
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
        self.deliveries.push(Handed {
            group,
            message,
            handles: vec![handle],
        });
        if self.cast.groups[group].is_fifo {
            self.messages[message].place.get_or_insert(arrived.place);
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

    /// The row of a message was damaged: it must go to quarantine and never be handed out.
    pub fn damaged(&mut self, message: usize) {
        self.messages[message].is_damaged = true;
    }

    /// Another life of the broker begins.
    pub fn lives_anew(&mut self) {
        self.of_this_life = self.deliveries.len();
        for group in 0..self.cast.groups.len() {
            let is_out = |state| matches!(state, State::Leased(_));
            let of_group = self.open[group].iter().flatten();
            let out = of_group.filter(|message| self.tracks[group][**message].maybe(is_out));
            self.of_earlier_lives[group] = out.count() as u64;
        }
    }

    /// A restart lost what was in memory alone, and what was not durable.
    pub fn restarted(&mut self, now: Millis) {
        self.lives_anew();
        self.forget(now, |_| true);
    }

    /// A restart with a warning lost nothing, but for changes of deliveries in order that
    /// the broker had not read again since the restart before.
    pub fn restarted_in_order(&mut self, now: Millis) {
        let fifo: Vec<bool> = self.cast.groups.iter().map(|it| it.is_fifo).collect();
        self.forget(now, |group| fifo[group]);
    }

    fn forget(&mut self, now: Millis, is_of: impl Fn(usize) -> bool) {
        let mut touched: BTreeSet<(usize, usize)> = self.open_tracks().collect();
        touched.extend(&self.recent);
        touched.retain(|(group, _)| is_of(*group));
        for (group, message) in touched {
            let attempts_max = self.cast.groups[group].attempts_max;
            let track = &mut self.tracks[group][message];
            track.restarted(
                self.durable_until,
                now,
                attempts_max,
                self.cast.groups[group].is_fifo,
            );
            self.file(group, message);
        }
    }

    /// Everything that was answered up to here is durable (P4).
    pub fn is_durable_until(&mut self, time: Millis) {
        self.durable_until = self.durable_until.max(time);
        let (until, tracks) = (self.durable_until, &mut self.tracks);
        self.recent
            .retain(|(group, message)| tracks[*group][*message].forget_until(until));
    }

    /// How many messages of a topic a group must be able to get. Leases count that were
    /// over between these moments of lease time: nothing went wrong since.
    pub fn ready_count(&self, group: usize, topic: usize, over: std::ops::Range<Millis>) -> usize {
        if self.may_be_held_back(group) {
            return 0;
        }
        // What is ready in order depends on what is before it: the end of a run tells.
        if self.cast.groups[group].is_fifo {
            return 0;
        }
        let open = self.open[group][topic].iter();
        open.filter(|it| !self.messages[**it].is_damaged)
            .filter(|it| self.is_ready(group, **it, &over))
            .count()
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
    fn check_bound(&self, group: usize, since: Delivery, at: Window) -> Checked {
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

    /// What a message may be for a group.
    pub fn track(&self, group: usize, message: usize) -> &Track {
        &self.tracks[group][message]
    }

    fn is_stored(&mut self, message: usize) {
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

    /// Files a track under what may still happen to it.
    fn file(&mut self, group: usize, message: usize) {
        let topic = self.messages[message].content.topic;
        let open = &mut self.open[group][topic];
        if self.tracks[group][message].surely(State::is_final) {
            open.remove(&message);
        } else {
            open.insert(message);
        }
        self.recent.insert((group, message));
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
