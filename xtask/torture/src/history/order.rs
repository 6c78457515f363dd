//! P7: messages of a message group come one after another.
//!
//! A message may be received only when all those before it in its group are acknowledged,
//! or are in the same batch before it. An acknowledgement counts from the moment that it
//! was asked for, and one that a kill took back counts, too: what is judged is when the
//! broker let the next one go. After such a kill the earlier one is open again, so it must
//! not come for the first time in that life once a later one has.

use std::collections::{BTreeMap, HashMap};

use tokio::time::Instant;

use super::{AckOutcome, Delivery, History, Life, Trace, Verdict};

/// Where a message stands: its message group, and its number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub(crate) message_group: u64,
    number: u64,
}

impl Place {
    pub(crate) fn first_of(message_group: u64) -> Self {
        Self {
            message_group,
            number: 0,
        }
    }

    /// This place; the next one is left for the next message.
    pub(crate) fn take(&mut self) -> Self {
        let place = *self;
        self.number += 1;
        place
    }
}

/// The messages of one message group, in the order in which they were sent.
type Line<'a> = Vec<(&'a str, &'a Trace)>;

impl History {
    pub(super) fn judge_order(&self, verdict: &mut Verdict) {
        for line in self.lines().values() {
            for (index, (id, trace)) in line.iter().enumerate() {
                let before = line.get(..index).unwrap_or_default();
                judge_wait(id, trace, before, verdict);
                judge_first(id, trace, before, verdict);
            }
        }
    }

    fn lines(&self) -> BTreeMap<u64, Line<'_>> {
        let mut places: Vec<_> = self
            .traces
            .iter()
            .filter(|(_, trace)| self.is_placed(trace))
            .filter_map(|(id, trace)| Some((trace.place?, id.as_str(), trace)))
            .collect();
        places.sort_by_key(|(place, ..)| *place);
        let mut lines: BTreeMap<u64, Line<'_>> = BTreeMap::new();
        for (place, id, trace) in places {
            let line = lines.entry(place.message_group).or_default();
            line.push((id, trace));
        }
        lines
    }

    /// Whether the message is there, and before all that were sent after it: not if its
    /// send ended without an answer while the broker lived on.
    fn is_placed(&self, trace: &Trace) -> bool {
        let decided = match trace.send_unknown {
            None => true,
            Some((life, at)) => self.kills.get(&life).is_some_and(|killed| *killed <= at),
        };
        decided && (trace.send_is_ok || !trace.deliveries.is_empty())
    }
}

/// No delivery of `id` overtakes one of those `before` it.
fn judge_wait(id: &str, trace: &Trace, before: &[(&str, &Trace)], verdict: &mut Verdict) {
    for delivery in &trace.deliveries {
        verdict.in_order += usize::from(!before.is_empty());
        for (earlier_id, earlier) in before {
            if !earlier.let_go(delivery) {
                verdict.violation(format!(
                    "P7: {id} came in life {} (attempt {}) before {earlier_id} was acknowledged",
                    delivery.life, delivery.attempt
                ));
            }
        }
    }
}

/// No message `before` it comes for the first time in a life in which `id` came already.
fn judge_first(id: &str, trace: &Trace, before: &[(&str, &Trace)], verdict: &mut Verdict) {
    let came = first_in_each_life(trace, |delivery| delivery.received_at);
    for (earlier_id, earlier) in before {
        for (life, asked_at) in first_in_each_life(earlier, |delivery| delivery.asked_at) {
            if came.get(&life).is_some_and(|came| *came < asked_at) {
                verdict.violation(format!(
                    "P7: {earlier_id} came in life {life} only after {id} had"
                ));
            }
        }
    }
}

fn first_in_each_life(
    trace: &Trace,
    moment: impl Fn(&Delivery) -> Instant,
) -> HashMap<Life, Instant> {
    let mut first = HashMap::new();
    for delivery in &trace.deliveries {
        let at = moment(delivery);
        let known = first.entry(delivery.life).or_insert(at);
        *known = (*known).min(at);
    }
    first
}

impl Trace {
    /// Whether this message was out of the way of `delivery` of a later one.
    fn let_go(&self, delivery: &Delivery) -> bool {
        let acked = self
            .acks
            .iter()
            .any(|ack| ack.outcome != AckOutcome::Refused && ack.asked_at < delivery.received_at);
        acked
            || self
                .deliveries
                .iter()
                .any(|mine| mine.batch == delivery.batch && mine.index < delivery.index)
    }
}
