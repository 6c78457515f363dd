//! Deliveries that their consumers give up: the message goes to the dead letters.
//!
//! Where messages come in order, a client that was not told OK asks for ever, and its line
//! waits for it. So there OK says no more than that the message is done, whoever did it.

use super::{Delivery, Model, State, Told, Void, Window};
use crate::violation::Checked;

/// What is known of a delivery that a group in order gives up.
#[derive(Clone, Copy, Debug)]
struct InOrder {
    /// It may be told OK where its message is done.
    may_be_told: bool,
    /// It must be.
    must_be_told: bool,
    /// This life of the broker may not have read it: then it goes on, and can be given up
    /// once it was.
    may_be_unread: bool,
}

impl Model {
    /// A delivery that was given up was answered.
    ///
    /// # Errors
    ///
    /// As for an acknowledgement.
    pub fn given_up(&mut self, delivery: Delivery, told: Told, at: Window) -> Checked {
        let attempts_max = self.attempts_max_of(delivery);
        let in_order = self.in_order(delivery);
        let is_damaged = self.messages[self.deliveries[delivery].message].is_damaged;
        self.settled(
            delivery,
            told,
            at,
            "a giving up",
            |state| match state {
                State::Leased(lease) if lease.delivery == Some(delivery) => Some(State::Dead),
                _ if !in_order.is_some_and(|it| it.may_be_told) => None,
                // It may have been put away instead.
                state if state.is_final() || is_damaged => Some(state),
                state => state
                    .ended(at.answered, attempts_max)
                    .filter(|it| it.is_final()),
            },
            |state| match (state, in_order) {
                (State::Leased(lease), Some(it))
                    if lease.delivery == Some(delivery) && it.may_be_unread =>
                {
                    Some(state)
                }
                (State::Done | State::Dead, Some(it)) if it.must_be_told => None,
                _ => state.change_refused(delivery, at.answered, attempts_max),
            },
        )
    }

    fn in_order(&self, delivery: Delivery) -> Option<InOrder> {
        let of = &self.deliveries[delivery];
        let is_of_this_life = self.is_of_this_life(delivery);
        self.cast.groups[of.group].is_fifo.then(|| InOrder {
            may_be_told: is_of_this_life && of.void != Void::Yes,
            // What is parked is done and comes again, so there nothing is told.
            must_be_told: is_of_this_life
                && of.void == Void::No
                && !self.cast.tuning.parks_messages(),
            may_be_unread: self.may_be_unread(delivery),
        })
    }

    fn may_be_unread(&self, delivery: Delivery) -> bool {
        let of = &self.deliveries[delivery];
        let sent = &self.messages[of.message];
        let topic = sent.content.topic;
        if delivery >= self.of_this_life {
            return false;
        }
        let Some((queue, offset)) = sent.place else {
            return true;
        };
        let read = self.read.get(&(of.group, topic, queue));
        self.failed_reads.contains(&(of.group, topic)) || read.is_none_or(|read| *read < offset)
    }

    /// A group in order was handed what lies here: its queue was read up to this.
    pub(super) fn has_read(&mut self, group: usize, topic: usize, (queue, offset): (u32, u64)) {
        let read = self.read.entry((group, topic, queue)).or_default();
        *read = offset.max(*read);
    }

    /// Something went wrong during a receive: nobody can say what was read.
    pub fn may_have_failed_to_read(&mut self, group: usize, topic: usize) {
        self.failed_reads.insert((group, topic));
    }

    /// Another life of the broker has read nothing.
    pub(super) fn reads_anew(&mut self) {
        self.read.clear();
        self.failed_reads.clear();
    }

    /// Deliveries of a message are void, or may be.
    pub(super) fn is_void(&mut self, group: usize, message: usize, void: Void) {
        let deliveries = self.deliveries.iter_mut();
        for of in deliveries.filter(|it| (it.group, it.message) == (group, message)) {
            of.void = of.void.max(void);
        }
    }
}
