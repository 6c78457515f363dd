//! The reference: what each message may be for each group, given what clients were told.
//!
//! It shares no code with the broker. It follows answers alone, and says of each whether
//! the promises allow it. Where an answer was in doubt, or a restart may have forgotten
//! something, a message may be several things; what is seen later tells which.

mod age;
mod delete;
mod deliver;
mod end;
mod give_up;
mod order;
mod quarantine;
mod ready;
mod reset;
mod restart;
mod send;
mod settle;
mod state;
mod track;

use std::collections::{BTreeMap, BTreeSet};

pub use end::Findings;
pub use quarantine::Redriven;
pub use reset::Reset;
pub use state::{Delivery, Lease, Millis, State};
pub use track::Track;

use age::{Age, Ages};
use delete::Lives;

use crate::{cast::Cast, message::Content};

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
    /// Its topic or its group is not there.
    Gone,
}

/// A message that a client sent.
#[derive(Debug)]
pub struct Sent {
    /// What it carries.
    pub content: Content,
    /// It may never have been stored.
    pub is_doubtful: bool,
    /// Its row is damaged.
    pub is_damaged: bool,
    /// Its row was damaged and is what it was.
    pub was_repaired: bool,
    /// A record of it in quarantine was given up.
    pub was_dropped: bool,
    /// How often its topic had been deleted.
    pub life: usize,
    /// It was never stored, for sure.
    pub was_refused: bool,
    /// A group was set to before or behind it, or begins anew.
    pub may_be_put_away_again: bool,
    age: Age,
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
    /// How often the group had been deleted.
    pub group_life: usize,
    /// The message.
    pub message: usize,
    /// Its handles: the first, and one for each change.
    pub handles: Vec<String>,
    /// A reset made it void.
    void: Void,
}

/// Whether a reset made a delivery void.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Void {
    No,
    Maybe,
    Yes,
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
    topics: Vec<Lives>,
    groups: Vec<Lives>,
    ages: Ages,
    // Group and message: what was put back to work, and refers to its message from then on.
    put_back: BTreeSet<(usize, usize)>,
    // Sends that go on.
    unanswered: BTreeSet<usize>,
    durable_until: Millis,
    // Deliveries from this one on are of the present life of the broker.
    of_this_life: Delivery,
    // By group: how many deliveries of earlier lives may be out. They are counted when the
    // broker meets them, and not before.
    of_earlier_lives: Vec<u64>,
    // By group in order, topic and queue: up to which offset this life has read.
    read: BTreeMap<(usize, usize, u32), u64>,
    // Group and topic: something went wrong during a receive of this life.
    failed_reads: BTreeSet<(usize, usize)>,
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
            topics: vec![Lives::default(); topics],
            groups: vec![Lives::default(); groups],
            ages: Ages::default(),
            put_back: BTreeSet::new(),
            unanswered: BTreeSet::new(),
            durable_until: 0,
            of_this_life: 0,
            of_earlier_lives: vec![0; groups],
            read: BTreeMap::new(),
            failed_reads: BTreeSet::new(),
            cast,
        }
    }

    /// What a message may be for a group.
    pub fn track(&self, group: usize, message: usize) -> &Track {
        &self.tracks[group][message]
    }

    /// Files a track under what may still happen to it.
    fn file(&mut self, group: usize, message: usize) {
        let sent = &self.messages[message];
        let topic = sent.content.topic;
        if sent.age.may_have_ended && !self.put_back.contains(&(group, message)) {
            let is_fifo = self.cast.groups[group].is_fifo;
            let track = &mut self.tracks[group][message];
            if track.maybe(|state| Self::may_lose(is_fifo, state)) {
                track.may_be([State::Absent]);
            }
        }
        let open = &mut self.open[group][topic];
        if self.tracks[group][message].surely(State::is_final) {
            open.remove(&message);
        } else {
            open.insert(message);
        }
        self.recent.insert((group, message));
    }
}
