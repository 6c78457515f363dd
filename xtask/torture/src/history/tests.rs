//! Stories that a judge must tell apart.

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
        history.sending("m", None);
        history.sent("m", 0);
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
            batch: 0,
            index: 0,
            asked_at: at,
            received_at: at,
            invisible_for: INVISIBLE,
            attempt,
        };
        self.history.received("m", true, delivery);
        self
    }

    fn acked(mut self, life: Life, seconds: f64) -> Self {
        let at = self.at(seconds);
        let ack = self.history.acking("m");
        self.history.answered("m", ack, AckOutcome::Ok { life, at });
        self
    }

    fn killed(mut self, life: Life, seconds: f64) -> Self {
        let at = self.at(seconds);
        self.history.kills.insert(life, at);
        self
    }

    #[track_caller]
    fn check(self, promise: Option<&str>) {
        let violations = self.history.judge().violations;
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
    // A flush lasts as long as a synced write does.
    story()
        .killed(0, 1.5)
        .delivered(1, 9.0, 2)
        .check(Some("P4"));
    let slow_send = |began, ended| {
        let mut story = story().killed(0, 1.5).delivered(1, 9.0, 2);
        let send = (story.at(began), story.at(ended));
        story.history.sends.insert(0, vec![send]);
        story
    };
    slow_send(1.2, 1.4).check(None);
    // What was slow before it was acknowledged excuses nothing.
    slow_send(0.8, 1.0).check(Some("P4"));
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
    assert_eq!(story.history.judge().violations.len(), 1);
}

/// A message group of two, received by several batches, told in seconds.
struct Line {
    history: History,
    begin: Instant,
    /// Of which batch each next delivery is.
    batch: u64,
}

impl Line {
    fn begin() -> Self {
        let mut place = Place::first_of(7);
        let mut history = History::default();
        for id in ["first", "second"] {
            history.sending(id, Some(place.take()));
            history.sent(id, 0);
        }
        Self {
            history,
            begin: Instant::now(),
            batch: 0,
        }
    }

    fn at(&self, seconds: f64) -> Instant {
        self.begin + Duration::from_secs_f64(seconds)
    }

    fn batch(mut self, life: Life, seconds: f64, attempt: i32, ids: &[&str]) -> Self {
        self.batch += 1;
        for (index, id) in ids.iter().enumerate() {
            let delivery = Delivery {
                life,
                batch: self.batch,
                index,
                asked_at: self.at(seconds),
                received_at: self.at(seconds),
                invisible_for: INVISIBLE,
                attempt,
            };
            self.history.received(id, true, delivery);
        }
        self
    }

    fn acked(self, life: Life, seconds: f64, id: &str) -> Self {
        let at = self.at(seconds);
        self.ack(seconds, id, AckOutcome::Ok { life, at })
    }

    fn ack(mut self, seconds: f64, id: &str, outcome: AckOutcome) -> Self {
        let asked_at = self.at(seconds);
        let trace = self.history.traces.get_mut(id).expect("it was sent");
        trace.acks.push(Ack { asked_at, outcome });
        self
    }

    fn killed(mut self, life: Life, seconds: f64) -> Self {
        let at = self.at(seconds);
        self.history.kills.insert(life, at);
        self
    }

    #[track_caller]
    fn check(self, is_broken: bool) {
        let violations = self.history.judge().violations;
        let of_order = violations.iter().filter(|it| it.starts_with("P7")).count();
        assert_eq!(of_order > 0, is_broken, "{violations:?}");
    }
}

#[test]
fn a_message_group_comes_one_after_another_or_in_one_batch() {
    Line::begin()
        .batch(0, 1.0, 1, &["first"])
        .acked(0, 1.1, "first")
        .batch(0, 1.2, 1, &["second"])
        .check(false);
    Line::begin()
        .batch(0, 1.0, 1, &["first", "second"])
        .check(false);
}

#[test]
fn a_message_must_not_overtake_an_earlier_one_of_its_group() {
    Line::begin()
        .batch(0, 1.0, 1, &["second"])
        .batch(0, 1.1, 1, &["first"])
        .check(true);
    Line::begin()
        .batch(0, 1.0, 1, &["second", "first"])
        .check(true);
    Line::begin()
        .batch(0, 1.0, 1, &["first"])
        .batch(0, 1.2, 1, &["second"])
        .check(true);
    // Not even once the time of the earlier one is up: it goes first.
    Line::begin()
        .batch(0, 1.0, 1, &["first"])
        .batch(0, 9.0, 1, &["second"])
        .check(true);
}

#[test]
fn an_acknowledgement_that_was_refused_lets_nothing_go() {
    Line::begin()
        .batch(0, 1.0, 1, &["first"])
        .ack(1.1, "first", AckOutcome::Refused)
        .batch(0, 1.2, 1, &["second"])
        .check(true);
    Line::begin()
        .batch(0, 1.0, 1, &["first"])
        .ack(1.1, "first", AckOutcome::Unknown)
        .batch(0, 1.2, 1, &["second"])
        .check(false);
}

#[test]
fn what_a_kill_took_back_comes_first_again() {
    let story = || {
        Line::begin()
            .batch(0, 1.0, 1, &["first"])
            .acked(0, 1.1, "first")
            .batch(0, 1.2, 1, &["second"])
            .killed(0, 1.21)
    };
    story()
        .batch(1, 2.0, 1, &["first"])
        .batch(1, 2.1, 1, &["second"])
        .check(false);
    story()
        .batch(1, 2.0, 1, &["second"])
        .batch(1, 2.1, 1, &["first"])
        .check(true);
}

#[test]
fn a_message_whose_send_had_no_answer_has_its_place_only_after_a_kill() {
    let story = |killed: f64| {
        let mut line = Line::begin().killed(0, killed);
        let at = line.at(1.0);
        let first = line.history.traces.get_mut("first").expect("it was sent");
        (first.send_is_ok, first.send_unknown) = (false, Some((0, at)));
        line.batch(1, 3.0, 1, &["second"])
            .batch(1, 4.0, 1, &["first"])
    };
    story(0.9).check(true);
    // It was sent to a broker that lived on, and may have been written late.
    story(2.0).check(false);
}
