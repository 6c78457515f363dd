//! The calls of clients: how each is made, and what its answer tells the model.

mod answer;
mod arrival;
mod call;
mod end;

pub use answer::Answer;
pub use arrival::{Arrival, arrivals};

use crate::{
    message::Content,
    model::{Delivery, Millis, Model, Reset},
};

/// What a consumer does with what it receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It takes the messages.
    Taken,
    /// It is gone when they come.
    Dropped,
    /// It gives up after so many milliseconds.
    Abandoned(Millis),
}

/// A call of a client.
#[derive(Clone, Debug)]
pub enum Op {
    /// Sends these messages, of one topic.
    Send {
        /// The topic.
        topic: usize,
        /// What each message carries; its number is given when the call begins.
        contents: Vec<Content>,
    },
    /// Receives.
    Receive {
        /// The group.
        group: usize,
        /// The topic.
        topic: usize,
        /// How many messages at most.
        batch: usize,
        /// How long they are hidden.
        invisible_ms: Millis,
        /// How long to wait for a first one.
        wait_ms: Millis,
        /// The number of the receive; one that repeats another has its number.
        number: u64,
        /// What becomes of them.
        fate: Fate,
    },
    /// Acknowledges a delivery.
    Ack {
        /// Which one.
        delivery: Delivery,
        /// With which of its handles.
        handle: usize,
    },
    /// Changes how long a delivery is hidden.
    Change {
        /// Which one.
        delivery: Delivery,
        /// With which of its handles.
        handle: usize,
        /// For how long.
        invisible_ms: Millis,
        /// The next delivery is not to count.
        suspend: bool,
    },
    /// Gives a delivery up: its message is to go to the dead letters.
    GiveUp {
        /// Which one.
        delivery: Delivery,
        /// With which of its handles.
        handle: usize,
    },
    /// Sets where a group goes on in a topic.
    Reset {
        /// The group.
        group: usize,
        /// The topic.
        topic: usize,
        /// Where.
        to: Reset,
    },
    /// Says that wall time is right, and has what is old ended.
    ConfirmClock,
    /// Puts a record in quarantine back to work, or gives it up.
    Quarantined {
        /// Its place.
        place: u64,
        /// The group that it is of, unless that is deleted.
        group: Option<usize>,
        /// The message that it is about.
        message: usize,
        /// It is given up.
        is_dropped: bool,
    },
    /// Deletes a topic.
    DeleteTopic {
        /// Which one.
        topic: usize,
    },
    /// Deletes a group.
    DeleteGroup {
        /// Which one.
        group: usize,
        /// Its dead letters go with it.
        with_letters: bool,
    },
}

impl Op {
    /// Tells the model that the call begins.
    pub fn begin(&mut self, model: &mut Model, now: Millis) {
        match self {
            Self::Send { contents, .. } => {
                for content in contents {
                    content.number = model.messages.len();
                    model.sending(content.clone());
                }
            }
            Self::Receive { group, topic, .. } | Self::Reset { group, topic, .. } => {
                model.receiving(*group, *topic);
            }
            Self::ConfirmClock => model.confirmed(),
            Self::DeleteTopic { topic } => model.deleting_topic(*topic, now),
            Self::DeleteGroup { group, .. } => model.deleting_group(*group, now),
            Self::Ack { .. }
            | Self::Change { .. }
            | Self::GiveUp { .. }
            | Self::Quarantined { .. } => {}
        }
    }

    fn wait_ms(&self) -> Millis {
        match self {
            Self::Receive { wait_ms, .. } => *wait_ms,
            _ => 0,
        }
    }

    /// The call, for people.
    pub fn text(&self, model: &Model) -> String {
        match self {
            Self::Send { topic, contents } => {
                let ids: Vec<String> = contents.iter().map(Content::id).collect();
                format!("send {ids:?} to topic {topic}")
            }
            Self::Receive {
                group,
                topic,
                batch,
                invisible_ms,
                wait_ms,
                number,
                fate,
            } => format!(
                "receive {number}: group {group} receives {batch} of topic {topic} for {invisible_ms} ms, waits {wait_ms} ms, {fate:?}"
            ),
            Self::Ack { delivery, handle } => {
                format!("ack {}", delivery_text(*delivery, *handle, model))
            }
            Self::GiveUp { delivery, handle } => {
                format!("dead-letter {}", delivery_text(*delivery, *handle, model))
            }
            Self::Change {
                delivery,
                handle,
                invisible_ms,
                suspend,
            } => format!(
                "hide {} for {invisible_ms} ms, suspend {suspend}",
                delivery_text(*delivery, *handle, model)
            ),
            Self::Reset { group, topic, to } => {
                format!("set group {group} in topic {topic} to {to:?}")
            }
            Self::ConfirmClock => "confirm the time".to_owned(),
            Self::Quarantined {
                place,
                message,
                is_dropped,
                ..
            } => {
                let what = if *is_dropped { "give up" } else { "re-drive" };
                format!("{what} the record of m{message} at {place}")
            }
            Self::DeleteTopic { topic } => format!("delete topic {topic}"),
            Self::DeleteGroup {
                group,
                with_letters,
            } => format!("delete group {group}, with its dead letters {with_letters}"),
        }
    }
}

fn delivery_text(delivery: Delivery, handle: usize, model: &Model) -> String {
    let handed = &model.deliveries[delivery];
    let id = model.messages[handed.message].content.id();
    let handle = handle % handed.handles.len();
    format!(
        "#{delivery} ({id} of group {}, handle {handle})",
        handed.group
    )
}
