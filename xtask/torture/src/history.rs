//! What the clients saw, and whether the broker's promises allow it.
//!
//! Judged from outside alone: nothing here knows how the broker works. Every check errs on
//! the broker's side where an answer was lost, so that what it reports is a broken promise.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    time::Duration,
};

use tokio::time::Instant;

/// How long before a kill an acknowledgement must have been answered to be held durable:
/// three flush intervals of the store.
pub(crate) const ACK_DURABLE_AFTER: Duration = Duration::from_millis(150);

/// One life of the broker: from one start to the kill that ended it.
pub(crate) type Life = usize;

/// One delivery as a receiver saw it.
#[derive(Clone, Debug)]
pub(crate) struct Delivery {
    pub(crate) life: Life,
    /// When the receive was sent: no lease of it began earlier.
    pub(crate) asked_at: Instant,
    pub(crate) received_at: Instant,
    pub(crate) attempt: i32,
    pub(crate) handle: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AckOutcome {
    Ok { life: Life, at: Instant },
    Refused,
    Unknown,
}

#[derive(Debug, Default)]
struct Trace {
    send_is_ok: bool,
    deliveries: Vec<Delivery>,
    acks: Vec<(String, AckOutcome)>,
}

impl Trace {
    /// The acknowledgement that was answered OK.
    fn ack_ok(&self) -> Option<(Life, Instant)> {
        self.acks.iter().find_map(|(_, outcome)| match outcome {
            AckOutcome::Ok { life, at } => Some((*life, *at)),
            _ => None,
        })
    }

    fn may_be_acked(&self) -> bool {
        self.acks
            .iter()
            .any(|(_, outcome)| *outcome != AckOutcome::Refused)
    }
}

/// Everything that happened, by message.
#[derive(Debug, Default)]
pub(crate) struct History {
    traces: HashMap<String, Trace>,
    kills: BTreeMap<Life, Instant>,
    strangers: Vec<String>,
}

impl History {
    /// A send begins: from here on the message may be there.
    pub(crate) fn sending(&mut self, id: &str) {
        self.traces.entry(id.to_owned()).or_default();
    }

    pub(crate) fn sent(&mut self, id: &str) {
        if let Some(trace) = self.traces.get_mut(id) {
            trace.send_is_ok = true;
        }
    }

    /// A message arrived; `whole` says whether its body is the one that was sent.
    pub(crate) fn received(&mut self, id: &str, whole: bool, delivery: Delivery) {
        match self.traces.get_mut(id) {
            Some(trace) if whole => trace.deliveries.push(delivery),
            _ => self.strangers.push(id.to_owned()),
        }
    }

    pub(crate) fn acked(&mut self, id: &str, handle: &str, life: Life) {
        let at = Instant::now();
        self.ack(id, handle, AckOutcome::Ok { life, at });
    }

    /// The broker said no. With an earlier try whose answer was lost, that is its success.
    pub(crate) fn ack_refused(&mut self, id: &str, handle: &str) {
        self.ack(id, handle, AckOutcome::Refused);
    }

    pub(crate) fn ack_unknown(&mut self, id: &str, handle: &str) {
        self.ack(id, handle, AckOutcome::Unknown);
    }

    fn ack(&mut self, id: &str, handle: &str, outcome: AckOutcome) {
        if let Some(trace) = self.traces.get_mut(id) {
            trace.acks.push((handle.to_owned(), outcome));
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

    /// Judges the whole, `invisible_for` being what every receive asked for.
    pub(crate) fn judge(&self, invisible_for: Duration) -> Verdict {
        let mut verdict = Verdict::default();
        for id in &self.strangers {
            verdict.violation(format!("{id} was never sent, or not with this body"));
        }
        for (id, trace) in &self.traces {
            self.judge_loss(id, trace, &mut verdict);
            self.judge_acks(id, trace, &mut verdict);
            self.judge_leases(id, trace, invisible_for, &mut verdict);
            self.judge_attempts(id, trace, &mut verdict);
        }
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
        let excused = killed.is_some_and(|killed| at + ACK_DURABLE_AFTER > *killed);
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
    fn judge_leases(
        &self,
        id: &str,
        trace: &Trace,
        invisible_for: Duration,
        verdict: &mut Verdict,
    ) {
        for (index, first) in trace.deliveries.iter().enumerate() {
            let others = trace.deliveries.iter().skip(index + 1);
            for second in others.filter(|second| second.life == first.life) {
                let (first, second) = if first.received_at <= second.received_at {
                    (first, second)
                } else {
                    (second, first)
                };
                if second.received_at < first.asked_at + invisible_for {
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
    /// Deliveries whose lease a kill lost: the same attempt once more.
    repeats_of_an_attempt: usize,
    acks_near_a_kill: usize,
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
             {} delivered again in time; after kills: {} repeats of an attempt, \
             {} repeats of the {} acknowledged less than {ACK_DURABLE_AFTER:?} before; {} violations",
            self.sent,
            self.unknown_sends,
            self.delivered,
            self.acked,
            self.redelivered,
            self.repeats_of_an_attempt,
            self.repeats_after_ack,
            self.acks_near_a_kill,
            self.violations.len()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INVISIBLE: Duration = Duration::from_secs(2);

    /// A history of one message `m`, told in seconds.
    struct Story {
        history: History,
        begin: Instant,
    }

    impl Story {
        fn begin() -> Self {
            let mut history = History::default();
            history.sending("m");
            history.sent("m");
            Self {
                history,
                begin: Instant::now(),
            }
        }

        fn at(&self, seconds: f64) -> Instant {
            self.begin + Duration::from_secs_f64(seconds)
        }

        fn delivered(mut self, life: Life, seconds: f64, attempt: i32) -> Self {
            let at = self.at(seconds);
            let delivery = Delivery {
                life,
                asked_at: at,
                received_at: at,
                attempt,
                handle: "h".into(),
            };
            self.history.received("m", true, delivery);
            self
        }

        fn acked(mut self, life: Life, seconds: f64) -> Self {
            let at = self.at(seconds);
            self.history.ack("m", "h", AckOutcome::Ok { life, at });
            self
        }

        fn killed(mut self, life: Life, seconds: f64) -> Self {
            let at = self.at(seconds);
            self.history.kills.insert(life, at);
            self
        }

        #[track_caller]
        fn check(self, promise: Option<&str>) {
            let violations = self.history.judge(INVISIBLE).violations;
            match promise {
                None => assert!(violations.is_empty(), "{violations:?}"),
                Some(promise) => assert!(
                    violations.iter().any(|it| it.starts_with(promise)),
                    "{promise} is not among {violations:?}"
                ),
            }
        }
    }

    #[test]
    fn a_message_that_is_delivered_and_acknowledged_is_in_order() {
        Story::begin()
            .delivered(0, 1.0, 1)
            .acked(0, 1.1)
            .check(None);
    }

    #[test]
    fn a_message_that_never_comes_is_lost() {
        Story::begin().check(Some("P1"));
    }

    #[test]
    fn a_message_that_is_not_acknowledged_must_come_again() {
        Story::begin().delivered(0, 1.0, 1).check(Some("P1"));
    }

    #[test]
    fn a_message_must_not_come_again_after_a_durable_acknowledgement() {
        let story = || Story::begin().delivered(0, 1.0, 1).acked(0, 1.1);
        story().delivered(0, 9.0, 2).check(Some("P4"));
        story()
            .killed(0, 2.0)
            .delivered(1, 9.0, 2)
            .check(Some("P4"));
        // Within a flush interval of the kill it may.
        story().killed(0, 1.12).delivered(1, 9.0, 2).check(None);
    }

    #[test]
    fn two_receivers_must_not_hold_a_message_at_once() {
        Story::begin()
            .delivered(0, 1.0, 1)
            .delivered(0, 2.5, 2)
            .acked(0, 2.6)
            .check(Some("P3"));
        Story::begin()
            .delivered(0, 1.0, 1)
            .delivered(0, 3.0, 2)
            .acked(0, 3.1)
            .check(None);
    }

    #[test]
    fn an_attempt_repeats_only_after_a_kill_and_never_goes_back() {
        Story::begin()
            .delivered(0, 1.0, 1)
            .delivered(0, 4.0, 1)
            .acked(0, 4.1)
            .check(Some("P4"));
        Story::begin()
            .delivered(0, 1.0, 1)
            .killed(0, 1.01)
            .delivered(1, 2.0, 1)
            .acked(1, 2.1)
            .check(None);
        Story::begin()
            .delivered(0, 1.0, 2)
            .killed(0, 1.01)
            .delivered(1, 2.0, 1)
            .acked(1, 2.1)
            .check(Some("P4"));
    }

    #[test]
    fn a_message_that_nobody_sent_is_a_violation() {
        let mut story = Story::begin().delivered(0, 1.0, 1).acked(0, 1.1);
        let delivery = story.history.traces["m"].deliveries[0].clone();
        story.history.received("other", true, delivery);
        assert_eq!(story.history.judge(INVISIBLE).violations.len(), 1);
    }
}
