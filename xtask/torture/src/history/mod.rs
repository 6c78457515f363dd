//! What the clients saw, and whether the broker's promises allow it.
//!
//! Judged from outside alone: nothing here knows how the broker works. Every check errs on
//! the broker's side where an answer was lost, so that what it reports is a broken promise.

mod order;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    time::Duration,
};

use tokio::time::Instant;

pub(crate) use self::order::Place;

/// The broker's flush interval.
const FLUSH_EVERY: Duration = Duration::from_millis(50);

/// Longer than this nothing excuses.
const DURABLE_AFTER_MAX: Duration = Duration::from_secs(1);

/// What a busy machine adds to any wait.
const SLACK: Duration = Duration::from_millis(50);

/// One life of the broker: from one start to the kill that ended it.
pub(crate) type Life = usize;

/// One delivery as a receiver saw it.
#[derive(Clone, Debug)]
pub(crate) struct Delivery {
    pub(crate) life: Life,
    /// The receive that brought it, and where in it.
    pub(crate) batch: u64,
    pub(crate) index: usize,
    /// When the receive was sent: no lease of it began earlier.
    pub(crate) asked_at: Instant,
    pub(crate) received_at: Instant,
    pub(crate) invisible_for: Duration,
    pub(crate) attempt: i32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AckOutcome {
    Ok { life: Life, at: Instant },
    Refused,
    Unknown,
}

/// One acknowledgement that a client asked for.
#[derive(Clone, Copy, Debug)]
struct Ack {
    asked_at: Instant,
    outcome: AckOutcome,
}

#[derive(Debug, Default)]
struct Trace {
    send_is_ok: bool,
    sending_at: Option<Instant>,
    /// In which life, and when, its sender was left without an answer.
    send_unknown: Option<(Life, Instant)>,
    place: Option<Place>,
    deliveries: Vec<Delivery>,
    acks: Vec<Ack>,
}

impl Trace {
    /// The acknowledgement that was answered OK.
    fn ack_ok(&self) -> Option<(Life, Instant)> {
        self.acks.iter().find_map(|ack| match ack.outcome {
            AckOutcome::Ok { life, at } => Some((life, at)),
            _ => None,
        })
    }

    fn may_be_acked(&self) -> bool {
        self.acks
            .iter()
            .any(|ack| ack.outcome != AckOutcome::Refused)
    }
}

/// Everything that happened, by message.
#[derive(Debug, Default)]
pub(crate) struct History {
    traces: HashMap<String, Trace>,
    kills: BTreeMap<Life, Instant>,
    /// When sends began and ended, each of which is answered after a synced write.
    sends: BTreeMap<Life, Vec<(Instant, Instant)>>,
    strangers: Vec<String>,
}

impl History {
    /// A send begins: from here on the message may be there.
    pub(crate) fn sending(&mut self, id: &str, place: Option<Place>) {
        let trace = self.traces.entry(id.to_owned()).or_default();
        trace.place = place;
        trace.sending_at = Some(Instant::now());
    }

    /// It was answered OK by the broker of `life`.
    pub(crate) fn sent(&mut self, id: &str, life: Life) {
        if let Some(trace) = self.traces.get_mut(id) {
            trace.send_is_ok = true;
            self.took(id, life, Instant::now());
        }
    }

    /// A send to the broker of `life` ended without an OK: the message may be there.
    pub(crate) fn send_unknown(&mut self, id: &str, life: Life) {
        let now = Instant::now();
        if let Some(trace) = self.traces.get_mut(id) {
            trace.send_unknown = Some((life, now));
            // It waited until the kill at most.
            let until = self.kills.get(&life).copied().unwrap_or(now);
            self.took(id, life, until);
        }
    }

    fn took(&mut self, id: &str, life: Life, until: Instant) {
        let began = self.traces.get(id).and_then(|trace| trace.sending_at);
        let send = (began.unwrap_or(until), until);
        self.sends.entry(life).or_default().push(send);
    }

    /// How long after its answer, at `at`, an acknowledgement is held durable: it waited for
    /// a flush that ran, for the next one to begin, and for that one. A flush is a synced
    /// write, and at worst as slow as the sends of that time.
    fn durable_after(&self, life: Life, at: Instant) -> Duration {
        let sends = self.sends.get(&life).into_iter().flatten();
        let then = sends.filter(|(_, ended)| *ended >= at);
        let slowest = then.map(|(began, ended)| ended.saturating_duration_since(*began));
        FLUSH_EVERY + SLACK + 2 * slowest.max().unwrap_or_default()
    }

    /// A message arrived; `whole` says whether its body is the one that was sent.
    pub(crate) fn received(&mut self, id: &str, whole: bool, delivery: Delivery) {
        match self.traces.get_mut(id) {
            Some(trace) if whole => trace.deliveries.push(delivery),
            _ => self.strangers.push(id.to_owned()),
        }
    }

    /// An acknowledgement is asked for: from here on it may happen. Returns its number
    /// among those of this message.
    pub(crate) fn acking(&mut self, id: &str) -> usize {
        let Some(trace) = self.traces.get_mut(id) else {
            return 0;
        };
        trace.acks.push(Ack {
            asked_at: Instant::now(),
            outcome: AckOutcome::Unknown,
        });
        trace.acks.len() - 1
    }

    pub(crate) fn acked(&mut self, id: &str, ack: usize, life: Life) {
        let at = Instant::now();
        self.answered(id, ack, AckOutcome::Ok { life, at });
    }

    /// The broker said no. With an earlier try whose answer was lost, that is its success.
    pub(crate) fn ack_refused(&mut self, id: &str, ack: usize) {
        self.answered(id, ack, AckOutcome::Refused);
    }

    fn answered(&mut self, id: &str, ack: usize, outcome: AckOutcome) {
        let trace = self.traces.get_mut(id);
        if let Some(ack) = trace.and_then(|trace| trace.acks.get_mut(ack)) {
            ack.outcome = outcome;
        }
    }

    /// Recorded before the signal is sent, so that no answer counts as earlier than it was.
    pub(crate) fn killed(&mut self, life: Life) {
        self.kills.insert(life, Instant::now());
    }

    /// How many messages whose send was answered OK are not acknowledged yet, as far as
    /// the clients know.
    pub(crate) fn open_count(&self) -> usize {
        let open = |trace: &&Trace| trace.send_is_ok && !trace.may_be_acked();
        self.traces.values().filter(open).count()
    }

    /// Judges the whole.
    pub(crate) fn judge(&self) -> Verdict {
        let mut verdict = Verdict::default();
        for id in &self.strangers {
            verdict.violation(format!("{id} was never sent, or not with this body"));
        }
        for (id, trace) in &self.traces {
            self.judge_loss(id, trace, &mut verdict);
            self.judge_acks(id, trace, &mut verdict);
            self.judge_leases(id, trace, &mut verdict);
            self.judge_attempts(id, trace, &mut verdict);
        }
        self.judge_order(&mut verdict);
        verdict
    }

    /// P1: what was answered OK reaches a consumer, and stays until it is acknowledged.
    fn judge_loss(&self, id: &str, trace: &Trace, verdict: &mut Verdict) {
        verdict.sent += usize::from(trace.send_is_ok);
        verdict.unknown_sends += usize::from(!trace.send_is_ok);
        verdict.delivered += trace.deliveries.len();
        verdict.acked += usize::from(trace.ack_ok().is_some());
        if trace.send_is_ok && trace.deliveries.is_empty() {
            verdict.violation(format!("P1: {id} was answered OK and never delivered"));
        } else if trace.send_is_ok && !trace.may_be_acked() {
            verdict.violation(format!(
                "P1: {id} was not acknowledged and never came again"
            ));
        }
    }

    /// P4: an acknowledgement that is durable is final.
    fn judge_acks(&self, id: &str, trace: &Trace, verdict: &mut Verdict) {
        let Some((life, at)) = trace.ack_ok() else {
            return;
        };
        let killed = self.kills.get(&life);
        let excused = killed.is_some_and(|killed| {
            let before = killed.saturating_duration_since(at);
            let excused = before < DURABLE_AFTER_MAX && before < self.durable_after(life, at);
            if excused {
                verdict.durable_after = verdict.durable_after.max(before);
            }
            excused
        });
        verdict.acks_near_a_kill += usize::from(excused);
        let back: Vec<_> = trace
            .deliveries
            .iter()
            .filter(|delivery| delivery.received_at > at)
            .collect();
        for delivery in back {
            if excused && delivery.life > life {
                verdict.repeats_after_ack += 1;
            } else {
                let before = killed.map(|killed| killed.saturating_duration_since(at));
                verdict.violation(format!(
                    "P4: {id} came again (attempt {}) after its acknowledgement was answered OK {before:?} before a kill",
                    delivery.attempt
                ));
            }
        }
    }

    /// P3: within one life, a second receiver gets a message only once the time of the
    /// first is up.
    fn judge_leases(&self, id: &str, trace: &Trace, verdict: &mut Verdict) {
        for (index, first) in trace.deliveries.iter().enumerate() {
            let others = trace.deliveries.iter().skip(index + 1);
            for second in others.filter(|second| second.life == first.life) {
                let (first, second) = if first.received_at <= second.received_at {
                    (first, second)
                } else {
                    (second, first)
                };
                if second.received_at < first.asked_at + first.invisible_for {
                    verdict.violation(format!(
                        "P3: {id} was handed out again {:?} after attempt {}",
                        second.received_at - first.received_at,
                        first.attempt
                    ));
                }
            }
        }
    }

    /// Attempts go up by one delivery, and repeat at most once a kill.
    fn judge_attempts(&self, id: &str, trace: &Trace, verdict: &mut Verdict) {
        let mut deliveries: Vec<_> = trace.deliveries.iter().collect();
        deliveries.sort_by_key(|delivery| delivery.received_at);
        for pair in deliveries.windows(2) {
            let [first, second] = pair else { continue };
            if second.attempt > first.attempt {
                verdict.redelivered += 1;
            } else if second.attempt == first.attempt && second.life > first.life {
                verdict.repeats_of_an_attempt += 1;
            } else {
                verdict.violation(format!(
                    "P4: {id} had attempt {} in life {} and then attempt {} in life {}",
                    first.attempt, first.life, second.attempt, second.life
                ));
            }
        }
    }
}

/// What came of a run.
#[derive(Debug, Default)]
pub(crate) struct Verdict {
    pub(crate) violations: Vec<String>,
    sent: usize,
    unknown_sends: usize,
    delivered: usize,
    acked: usize,
    redelivered: usize,
    /// Deliveries that had to wait for those before them in their message group.
    in_order: usize,
    /// Deliveries whose lease a kill lost: the same attempt once more.
    repeats_of_an_attempt: usize,
    acks_near_a_kill: usize,
    /// How long before its kill the earliest of them was answered.
    durable_after: Duration,
    /// Deliveries of messages that were acknowledged shortly before a kill.
    repeats_after_ack: usize,
}

impl Verdict {
    fn violation(&mut self, what: String) {
        self.violations.push(what);
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} sends answered OK, {} unknown; {} deliveries, {} acknowledged; \
             {} in the order of their message group; \
             {} delivered again in time; after kills: {} repeats of an attempt, \
             {} repeats of the {} acknowledged less than a flush before ({:.0?} at most); {} violations",
            self.sent,
            self.unknown_sends,
            self.delivered,
            self.acked,
            self.in_order,
            self.redelivered,
            self.repeats_of_an_attempt,
            self.repeats_after_ack,
            self.acks_near_a_kill,
            self.durable_after,
            self.violations.len()
        )
    }
}
