//! Acknowledgements and changes of the invisible duration: what each handle may do.

use super::{Delivery, Lease, Millis, Model, State, Told, Window};
use crate::violation::{Checked, Violation};

impl Model {
    /// An acknowledgement was answered.
    ///
    /// # Errors
    ///
    /// If a handle did what it must not (P3), or did not what it must.
    pub fn acked(&mut self, delivery: Delivery, told: Told, at: Window) -> Checked {
        let attempts_max = self.attempts_max_of(delivery);
        let may_be_told_again = self.may_be_told_again(delivery);
        self.settled(
            delivery,
            told,
            at,
            "an acknowledgement",
            |state| {
                let again = state == State::Done && may_be_told_again;
                (again || state.accepts(delivery)).then_some(State::Done)
            },
            |state| state.ack_refused(delivery, at.answered, attempts_max),
        )
    }

    /// A change of the invisible duration was answered.
    ///
    /// # Errors
    ///
    /// As for an acknowledgement.
    pub fn changed(
        &mut self,
        delivery: Delivery,
        told: Told,
        invisible_ms: Millis,
        suspend: bool,
        at: Window,
    ) -> Checked {
        let attempts_max = self.attempts_max_of(delivery);
        self.settled(
            delivery,
            told,
            at,
            "a change",
            |state| match state {
                State::Leased(lease) if lease.delivery == Some(delivery) => {
                    Some(State::Leased(Lease {
                        until_at_least: at.asked + invisible_ms,
                        // What is over at once is due at the next moment.
                        until_at_most: at.answered + invisible_ms.max(1),
                        suspend: suspend || lease.suspend,
                        ..lease
                    }))
                }
                _ => None,
            },
            |state| state.change_refused(delivery, at.answered, attempts_max),
        )
    }

    /// Whether an acknowledgement of what was acknowledged already may be told OK: it is no
    /// harm.
    fn may_be_told_again(&self, delivery: Delivery) -> bool {
        let of = &self.deliveries[delivery];
        let later = self.deliveries.iter().skip(delivery + 1);
        let mut same = later.filter(|it| (it.group, it.message) == (of.group, of.message));
        self.is_of_this_life(delivery) && same.next().is_none()
    }

    pub(super) fn attempts_max_of(&self, delivery: Delivery) -> u32 {
        self.cast.groups[self.deliveries[delivery].group].attempts_max
    }

    pub(super) fn settled(
        &mut self,
        delivery: Delivery,
        told: Told,
        at: Window,
        what: &str,
        becomes: impl Fn(State) -> Option<State>,
        refused: impl Fn(State) -> Option<State>,
    ) -> Checked {
        let (group, message) = {
            let handed = &self.deliveries[delivery];
            (handed.group, handed.message)
        };
        let track = &mut self.tracks[group][message];
        let before = track.states().to_vec();
        let allowed = match told {
            Told::Ok => track.observe(at.time, becomes),
            Told::Over => track.observe(at.time, refused),
            Told::Refused | Told::Gone => true,
            Told::Doubt => {
                let maybe: Vec<State> = before.iter().filter_map(|it| becomes(*it)).collect();
                track.may_be(maybe);
                true
            }
        };
        self.file(group, message);
        if allowed {
            return Ok(());
        }
        let promise = match told {
            Told::Ok => "P3 a stale handle does nothing",
            _ => "P3 a good handle works",
        };
        let name = &self.cast.groups[group].name;
        let id = self.messages[message].content.id();
        Err(Violation::new(
            promise,
            format!(
                "{what} of delivery #{delivery} ({id} of {name}) was told {told:?} at {}; the message may be {before:?}",
                at.answered
            ),
        ))
    }

    /// The deliveries that are surely out and whose handle is known.
    pub fn out(&self) -> Vec<(Delivery, Lease)> {
        let mut out = Vec::new();
        for (group, by_topic) in self.open.iter().enumerate() {
            for message in by_topic.iter().flatten() {
                if let [State::Leased(lease)] = self.tracks[group][*message].states()
                    && let Some(delivery) = lease.delivery
                {
                    out.push((delivery, *lease));
                }
            }
        }
        out
    }

    /// The deliveries that may be out and whose handle is known.
    pub fn maybe_out(&self) -> Vec<Delivery> {
        let mut out = Vec::new();
        for (group, by_topic) in self.open.iter().enumerate() {
            for message in by_topic.iter().flatten() {
                for state in self.tracks[group][*message].states() {
                    if let State::Leased(Lease {
                        delivery: Some(delivery),
                        ..
                    }) = state
                        && !out.contains(delivery)
                    {
                        out.push(*delivery);
                    }
                }
            }
        }
        out
    }
}
