//! What may come back, when and how often: the promises that a round trip checks.
//!
//! Knows nothing of the client. The crate cannot change an invisible duration, so this ledger has
//! no plans for it.

use std::collections::HashMap;
use std::time::{Duration, Instant};

/// The two sides round their clocks apart.
const EARLY_MAX: Duration = Duration::from_millis(100);
/// On top of the invisible duration, after the last ack.
const QUIET: Duration = Duration::from_secs(2);
const PROBLEMS_MAX: usize = 20;

/// What a receiver does with a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    Ack,
    Leave,
}

/// One message: what was sent and what happened to it so far.
#[derive(Clone, Default)]
struct Entry {
    id: Option<String>,
    deliveries: i32,
    settled: bool,
    earliest: Option<Instant>,
}

/// One delivery as the client showed it.
pub struct Delivery<'a> {
    pub index: usize,
    pub id: &'a str,
    pub attempt: i32,
    pub asked_at: Instant,
    pub arrived_at: Instant,
}

pub struct Ledger {
    count: usize,
    invisible: Duration,
    entries: Vec<Entry>,
    ids: HashMap<String, usize>,
    pub sent: usize,
    pub received_first: usize,
    pub acked_first: usize,
    pub received_second: usize,
    pub settled: usize,
    last_settled_at: Option<Instant>,
    pub problems: Vec<String>,
    problems_dropped: usize,
}

impl Ledger {
    pub fn new(count: usize, invisible: Duration) -> Self {
        Self {
            count,
            invisible,
            entries: vec![Entry::default(); count],
            ids: HashMap::new(),
            sent: 0,
            received_first: 0,
            acked_first: 0,
            received_second: 0,
            settled: 0,
            last_settled_at: None,
            problems: Vec::new(),
            problems_dropped: 0,
        }
    }

    pub fn problem(&mut self, text: String) {
        if self.problems.len() < PROBLEMS_MAX {
            println!("problem: {text}");
            self.problems.push(text);
        } else {
            self.problems_dropped += 1;
        }
    }

    pub fn on_sent(&mut self, index: usize, id: &str) {
        self.sent += 1;
        if let Some(other) = self.ids.insert(id.to_owned(), index) {
            self.problem(format!("messages {other} and {index} share the id {id}"));
        }
        self.entries[index].id = Some(id.to_owned());
    }

    /// Checks one delivery and says what to do with the message.
    pub fn on_delivery(&mut self, delivery: &Delivery<'_>) -> Action {
        let Delivery {
            index, id, attempt, ..
        } = *delivery;
        let entry = &mut self.entries[index];
        entry.deliveries += 1;
        let (deliveries, settled, sent_id) = (entry.deliveries, entry.settled, entry.id.clone());
        if sent_id.as_deref() != Some(id) {
            self.problem(format!(
                "message {index} came with id {id}, sent was {sent_id:?}"
            ));
        }
        if attempt != deliveries {
            self.problem(format!(
                "message {index}: delivery attempt {attempt} on delivery {deliveries}"
            ));
        }
        if settled {
            self.problem(format!("message {index} came back after its ack"));
            return Action::Leave;
        }
        if deliveries > 2 {
            self.problem(format!("message {index} came {deliveries} times"));
        }
        if deliveries == 1 {
            self.first(delivery)
        } else {
            self.second(delivery)
        }
    }

    fn first(&mut self, delivery: &Delivery<'_>) -> Action {
        self.received_first += 1;
        self.entries[delivery.index].earliest = Some(delivery.asked_at + self.invisible);
        if delivery.index.is_multiple_of(2) {
            Action::Ack
        } else {
            Action::Leave
        }
    }

    fn second(&mut self, delivery: &Delivery<'_>) -> Action {
        self.received_second += 1;
        let earliest = self.entries[delivery.index].earliest;
        let early = earliest.map_or(Duration::ZERO, |earliest| {
            earliest.saturating_duration_since(delivery.arrived_at)
        });
        if early > EARLY_MAX {
            self.problem(format!(
                "message {} came back {early:?} too early",
                delivery.index
            ));
        }
        Action::Ack
    }

    pub fn on_acked(&mut self, index: usize) {
        let entry = &mut self.entries[index];
        entry.settled = true;
        if entry.deliveries == 1 && index.is_multiple_of(2) {
            self.acked_first += 1;
        }
        self.settled += 1;
        self.last_settled_at = Some(Instant::now());
    }

    /// True once all is acked and each acked message has had the time to come back wrongly.
    pub fn finished(&self) -> bool {
        self.settled >= self.count
            && self
                .last_settled_at
                .is_some_and(|last| last.elapsed() > self.invisible + QUIET)
    }

    /// Names what never came, at the end of a run.
    pub fn missing(&mut self) {
        let rounds = [
            (1, self.received_first, self.count),
            (2, self.received_second, self.count / 2),
        ];
        for (times, got, expected) in rounds
            .into_iter()
            .filter(|(_, got, expected)| got != expected)
        {
            let absent: Vec<usize> = (0..self.count)
                .filter(|&index| {
                    let entry = &self.entries[index];
                    entry.deliveries < times && !entry.settled
                })
                .take(5)
                .collect();
            self.problem(format!(
                "delivery {times}: {got} of {expected} messages came, missing e.g. {absent:?}"
            ));
        }
        if self.problems_dropped > 0 {
            self.problems
                .push(format!("and {} more problems", self.problems_dropped));
        }
    }
}
