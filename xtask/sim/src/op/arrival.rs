//! Messages that arrived with an answer.

use super::{Answer, Op};
use crate::{
    message::Content,
    model::{Arrived, Millis, Model, Window},
    violation::{Checked, Violation},
};

/// A message that arrived.
#[derive(Debug)]
pub struct Arrival<'a> {
    group: usize,
    topic: usize,
    invisible_ms: Millis,
    receive: u64,
    /// What arrived.
    pub delivery: &'a pop_broker::Delivery,
    at: Window,
}

/// The messages that arrived with this answer.
pub fn arrivals<'a>(op: &Op, answer: &'a Answer, at: Window) -> Vec<Arrival<'a>> {
    match (op, answer) {
        (
            Op::Receive {
                group,
                topic,
                invisible_ms,
                number,
                ..
            },
            Answer::Received(Some(Ok(deliveries))),
        ) => {
            let arrival = |delivery| Arrival {
                group: *group,
                topic: *topic,
                invisible_ms: *invisible_ms,
                receive: *number,
                delivery,
                at,
            };
            deliveries.iter().map(arrival).collect()
        }
        _ => Vec::new(),
    }
}

impl Arrival<'_> {
    /// Tells the model of it. Returns whether it is a new delivery.
    ///
    /// # Errors
    ///
    /// If the promises don't allow it.
    pub fn note(&self, model: &mut Model) -> Checked<bool> {
        let delivery = self.delivery;
        let Some(number) = self.number().filter(|it| *it < model.messages.len()) else {
            let what = format!("{} was never sent", delivery.message.message_id);
            return Err(Violation::new("what is sent arrives", what));
        };
        let content = &model.messages[number].content;
        if content.topic != self.topic {
            let what = format!("{} came from another topic", content.id());
            return Err(Violation::new("what is sent arrives", what));
        }
        content.check(delivery)?;
        let attempt = delivery.delivery_attempt;
        let handle = delivery.handle.to_string();
        let arrived = Arrived {
            group: self.group,
            message: number,
            attempt,
            invisible_ms: self.invisible_ms,
            receive: self.receive,
            place: (delivery.source.queue.get(), delivery.offset.get()),
        };
        model.delivered(arrived, handle, self.at)
    }

    /// Holds its place in its message group against the others, of which `all` arrived at
    /// the same moment.
    ///
    /// # Errors
    ///
    /// If it came out of order (P7).
    pub fn check_order(&self, all: &[Self], model: &Model, now: Millis) -> Checked {
        let Some(number) = self.number() else {
            return Ok(());
        };
        let with = all.iter().filter(|other| other.receive == self.receive);
        let with: Vec<usize> = with.filter_map(Self::number).collect();
        model.check_order(self.group, number, self.receive, &with, self.at, now)
    }

    fn number(&self) -> Option<usize> {
        Content::number_of(&self.delivery.message.message_id)
    }
}
