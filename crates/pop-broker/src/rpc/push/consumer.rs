//! One push consumer: whether it is there, and what it has. Pure: told what happens and
//! when, it says what to do.

use std::{collections::HashMap, time::Duration};

use pop_model::{GroupName, TopicName};
use tokio::time::Instant;

use super::PushOptions;

/// How long the first lease lasts, the second, and each that follows, as multiples of the
/// first: what takes long once takes long.
const STEPS: [u32; 3] = [1, 3, 5];

/// What a push consumer has not acknowledged.
#[derive(Clone, Debug)]
pub(super) struct Held {
    pub(super) group: GroupName,
    pub(super) topic: TopicName,
    pub(super) attempt: u32,
    delivered_at: Instant,
    visible_at: Instant,
    renewals: usize,
}

/// What to do with a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Hide it for this long from now on.
    Renew(Duration),
    /// Its consumer is gone, or has had it for long enough: it is another's turn.
    TakeBack,
}

#[derive(Debug)]
pub(super) struct PushConsumer {
    /// Its telemetry streams that are open.
    sessions: usize,
    seen_at: Instant,
    is_terminated: bool,
    held: HashMap<String, Held>,
}

impl PushConsumer {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            sessions: 0,
            seen_at: now,
            is_terminated: false,
            held: HashMap::new(),
        }
    }

    /// It asked for something.
    pub(super) fn seen(&mut self, now: Instant) {
        self.seen_at = now;
        self.is_terminated = false;
    }

    pub(super) fn session_began(&mut self, now: Instant) {
        self.seen(now);
        self.sessions += 1;
    }

    pub(super) fn session_ended(&mut self, now: Instant) {
        self.seen_at = now;
        self.sessions = self.sessions.saturating_sub(1);
    }

    /// It said that it goes.
    pub(super) fn terminated(&mut self) {
        self.is_terminated = true;
    }

    /// It was handed a message, hidden for `invisible_for`.
    pub(super) fn delivered(
        &mut self,
        handle: String,
        (group, topic): (GroupName, TopicName),
        attempt: u32,
        invisible_for: Duration,
        now: Instant,
    ) {
        let held = Held {
            group,
            topic,
            attempt,
            delivered_at: now,
            visible_at: now + invisible_for,
            renewals: 0,
        };
        self.held.insert(handle, held);
    }

    /// It acknowledged a delivery, or gave it back: there is nothing to renew.
    pub(super) fn ended(&mut self, handle: &str) -> Option<Held> {
        self.held.remove(handle)
    }

    pub(super) fn holds(&self, handle: &str) -> Option<&Held> {
        self.held.get(handle)
    }

    /// Whether nothing of it is left.
    pub(super) fn is_over(&self, now: Instant, options: &PushOptions) -> bool {
        self.held.is_empty() && self.is_gone(now, options)
    }

    fn is_gone(&self, now: Instant, options: &PushOptions) -> bool {
        let silent = now.saturating_duration_since(self.seen_at) > options.gone_after;
        self.is_terminated || (self.sessions == 0 && silent)
    }

    /// What must be done by now.
    pub(super) fn due(&self, now: Instant, options: &PushOptions) -> Vec<(String, Held, Step)> {
        let is_gone = self.is_gone(now, options);
        let step = |held: &Held| {
            let left = held.visible_at.saturating_duration_since(now);
            let had = now.saturating_duration_since(held.delivered_at);
            if is_gone {
                Some(Step::TakeBack)
            } else if left > options.lease / 3 {
                None
            } else if had >= options.held_max {
                Some(Step::TakeBack)
            } else {
                let factor = STEPS.get(held.renewals + 1).or(STEPS.last());
                Some(Step::Renew(options.lease * factor.copied().unwrap_or(1)))
            }
        };
        let due = self.held.iter().filter_map(|(handle, held)| {
            let step = step(held)?;
            Some((handle.clone(), held.clone(), step))
        });
        due.collect()
    }

    /// A delivery was renewed: it is hidden for `invisible_for` from `now` on.
    pub(super) fn renewed(&mut self, handle: &str, invisible_for: Duration, now: Instant) {
        if let Some(held) = self.held.get_mut(handle) {
            held.visible_at = now + invisible_for;
            held.renewals += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use pop_model::Namespace;

    use super::*;

    const LEASE: Duration = Duration::from_secs(60);

    struct Told {
        consumer: PushConsumer,
        options: PushOptions,
        begin: Instant,
    }

    impl Told {
        fn holding_one() -> Self {
            let begin = Instant::now();
            let mut consumer = PushConsumer::new(begin);
            consumer.session_began(begin);
            let namespace = Namespace::new("").unwrap();
            let names = (
                GroupName::user(&namespace, "billing").unwrap(),
                TopicName::user(&namespace, "orders").unwrap(),
            );
            consumer.delivered("handle".into(), names, 1, LEASE, begin);
            Self {
                consumer,
                options: PushOptions::default(),
                begin,
            }
        }

        fn at(&self, seconds: u64) -> Instant {
            self.begin + Duration::from_secs(seconds)
        }

        fn due(&self, seconds: u64) -> Option<Step> {
            let due = self.consumer.due(self.at(seconds), &self.options);
            due.first().map(|(_, _, step)| *step)
        }
    }

    /// BR-D04. Mutant: a lease is renewed only once it is over.
    #[test]
    fn a_lease_is_renewed_well_before_it_is_over_and_for_longer_each_time() {
        let mut told = Told::holding_one();
        assert_eq!(told.due(39), None);
        assert_eq!(told.due(40), Some(Step::Renew(3 * LEASE)));
        told.consumer.renewed("handle", 3 * LEASE, told.at(40));
        assert_eq!(told.due(199), None);
        assert_eq!(told.due(200), Some(Step::Renew(5 * LEASE)));
        told.consumer.renewed("handle", 5 * LEASE, told.at(200));
        assert_eq!(told.due(480), Some(Step::Renew(5 * LEASE)));
        // A look comes several times between the margin and the end of the first lease.
        assert!(told.options.look_every * 3 < LEASE / 3);
    }

    #[test]
    fn what_was_acknowledged_or_given_back_is_renewed_no_more() {
        let mut told = Told::holding_one();
        assert!(told.consumer.ended("handle").is_some());
        assert_eq!(told.due(59), None);
    }

    /// Mutant: it is renewed for ever, for a consumer that hangs.
    #[test]
    fn a_consumer_has_a_message_for_a_bounded_time() {
        let mut told = Told::holding_one();
        let most = told.options.held_max.as_secs();
        told.consumer.renewed("handle", LEASE, told.at(most - 40));
        assert_eq!(told.due(most), Some(Step::TakeBack));
    }

    #[test]
    fn what_a_consumer_had_that_is_gone_is_taken_back() {
        let mut told = Told::holding_one();
        told.consumer.session_ended(told.at(5));
        assert_eq!(told.due(30), None, "it may come back");
        assert_eq!(told.due(36), Some(Step::TakeBack));
        told.consumer.seen(told.at(36));
        assert_eq!(told.due(38), None, "it came back");
        // Mutant: only silence counts.
        told.consumer.terminated();
        assert_eq!(told.due(38), Some(Step::TakeBack));
        assert!(!told.consumer.is_over(told.at(38), &told.options));
        told.consumer.ended("handle");
        assert!(told.consumer.is_over(told.at(38), &told.options));
    }

    #[test]
    fn a_consumer_whose_stream_is_open_is_there_however_long_it_is_silent() {
        let told = Told::holding_one();
        assert_eq!(told.due(3_000), Some(Step::Renew(3 * LEASE)));
    }
}
