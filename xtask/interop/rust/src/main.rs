//! The official Rust client through one round trip; see the README one folder up.

#![allow(
    clippy::disallowed_methods,
    reason = "a client of the broker lives in real time"
)]

mod content;
mod ledger;
mod options;

use std::process::exit;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use content::{Content, content};
use ledger::{Action, Delivery, Ledger};
use options::Options;
use rocketmq::conf::{ClientOption, ProducerOption, SimpleConsumerOption};
use rocketmq::model::common::{FilterExpression, FilterType};
use rocketmq::model::message::{MessageBuilder, MessageView};
use rocketmq::{Producer, SimpleConsumer};
use serde_json::json;
use tokio::task::JoinSet;

/// The manifest pins the client to this version.
const CLIENT: &str = "rocketmq 5.0.0";
const SENDERS: usize = 8;
const RECEIVERS: usize = 4;
const BATCH: i32 = 16;
/// The deadline of a poll is the time it asks to wait, so that a short one needs a server which
/// answers a second early.
const AWAIT: Duration = Duration::from_secs(5);
const FAILURES_MAX: usize = 5;
const SHUTDOWN: Duration = Duration::from_secs(10);

struct Trip {
    options: Options,
    ledger: Mutex<Ledger>,
    started_at: Instant,
    stopped: AtomicBool,
}

impl Trip {
    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().expect("no holder of the ledger panics")
    }

    fn problem(&self, text: String) {
        self.ledger().problem(text);
    }

    fn say(&self, text: &str) {
        println!("{:6.1} s  {text}", self.started_at.elapsed().as_secs_f64());
    }

    fn connection(&self) -> ClientOption {
        let mut option = ClientOption::default();
        option.set_access_url(self.options.endpoint.clone());
        option.set_enable_tls(false);
        option.set_long_polling_timeout(AWAIT);
        option
    }

    fn content(&self, index: usize) -> Content {
        content(index, self.options.messages, self.options.body_max)
    }

    async fn send_all(self: &Arc<Self>) -> Result<(), String> {
        let mut option = ProducerOption::default();
        option.set_topics(vec![self.options.topic.clone()]);
        let mut producer =
            Producer::new(option, self.connection()).map_err(|error| error.to_string())?;
        producer
            .start()
            .await
            .map_err(|error| format!("start of the producer: {error}"))?;
        let producer = Arc::new(producer);
        let (next, failures) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let mut senders = JoinSet::new();
        for _ in 0..SENDERS {
            let (trip, producer) = (Arc::clone(self), Arc::clone(&producer));
            let (next, failures) = (Arc::clone(&next), Arc::clone(&failures));
            senders.spawn(async move {
                while failures.load(Ordering::SeqCst) < FAILURES_MAX {
                    let index = next.fetch_add(1, Ordering::SeqCst);
                    if index >= trip.options.messages {
                        break;
                    }
                    if let Err(error) = trip.send(&producer, index).await {
                        failures.fetch_add(1, Ordering::SeqCst);
                        trip.problem(format!("send of message {index} failed: {error}"));
                    }
                }
            });
        }
        self.join(senders, "sender").await;
        self.say(&format!(
            "sent {} of {}",
            self.ledger().sent,
            self.options.messages
        ));
        let producer = Arc::into_inner(producer).ok_or("a sender still holds the producer")?;
        producer
            .shutdown()
            .await
            .map_err(|error| format!("shutdown of the producer: {error}"))?;
        if failures.load(Ordering::SeqCst) > 0 {
            Err("sends failed".to_owned())
        } else {
            Ok(())
        }
    }

    async fn send(&self, producer: &Producer, index: usize) -> Result<(), String> {
        let wanted = self.content(index);
        let message = MessageBuilder::builder()
            .set_topic(self.options.topic.clone())
            .set_body(wanted.body)
            .set_tag(wanted.tag)
            .set_keys(wanted.keys.into_iter().collect())
            .set_properties(wanted.properties)
            .build()
            .map_err(|error| error.to_string())?;
        let receipt = producer
            .send(message)
            .await
            .map_err(|error| error.to_string())?;
        self.ledger().on_sent(index, receipt.message_id());
        Ok(())
    }

    async fn receive_all(self: &Arc<Self>) -> Result<(), String> {
        let mut option = SimpleConsumerOption::default();
        option.set_consumer_group(self.options.group.clone());
        option.set_topics(vec![self.options.topic.clone()]);
        let mut consumer =
            SimpleConsumer::new(option, self.connection()).map_err(|error| error.to_string())?;
        consumer
            .start()
            .await
            .map_err(|error| format!("start of the consumer: {error}"))?;
        let consumer = Arc::new(consumer);
        let mut receivers = JoinSet::new();
        for _ in 0..RECEIVERS {
            let (trip, consumer) = (Arc::clone(self), Arc::clone(&consumer));
            receivers.spawn(async move { trip.receive(&consumer).await });
        }
        let telling = tokio::spawn(Arc::clone(self).tell());
        self.join(receivers, "receiver").await;
        telling.abort();
        self.say("receivers ended");
        let consumer = Arc::into_inner(consumer).ok_or("a receiver still holds the consumer")?;
        consumer
            .shutdown()
            .await
            .map_err(|error| format!("shutdown of the consumer: {error}"))
    }

    /// Waits for all tasks; the client panics where a server answers what it does not know, and
    /// such a panic ends one task only.
    async fn join(&self, mut tasks: JoinSet<()>, what: &str) {
        while let Some(ended) = tasks.join_next().await {
            if let Err(error) = ended {
                self.problem(format!("a {what} panicked: {error}"));
            }
        }
    }

    async fn tell(self: Arc<Self>) {
        let count = self.options.messages;
        while self.ledger().received_first < count {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        self.say(&format!("received all {count}"));
        while self.ledger().settled < count {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let again = self.ledger().received_second;
        self.say(&format!(
            "received {again} again, all acked; now it must be quiet"
        ));
    }

    async fn receive(&self, consumer: &SimpleConsumer) {
        let all = FilterExpression::new(FilterType::Tag, "*");
        let mut failures = 0;
        while !self.stopped.load(Ordering::SeqCst) && !self.ledger().finished() {
            let asked_at = Instant::now();
            let topic = &self.options.topic;
            match consumer
                .receive_with(topic, &all, BATCH, self.options.invisible)
                .await
            {
                Ok(messages) => {
                    let arrived_at = Instant::now();
                    for message in &messages {
                        self.handle(consumer, message, asked_at, arrived_at).await;
                    }
                }
                Err(error) => {
                    self.problem(format!("receive failed: {error}"));
                    failures += 1;
                    if failures >= FAILURES_MAX {
                        return;
                    }
                    tokio::time::sleep(Duration::from_millis(500)).await;
                }
            }
        }
    }

    async fn handle(
        &self,
        consumer: &SimpleConsumer,
        message: &MessageView,
        asked_at: Instant,
        arrived_at: Instant,
    ) {
        let Some(index) = self.verify(message) else {
            return;
        };
        let delivery = Delivery {
            index,
            id: message.message_id(),
            attempt: message.delivery_attempt(),
            asked_at,
            arrived_at,
        };
        let action = self.ledger().on_delivery(&delivery);
        if action == Action::Ack {
            match consumer.ack(message).await {
                Ok(()) => self.ledger().on_acked(index),
                Err(error) => self.problem(format!("ack of message {index} failed: {error}")),
            }
        }
    }

    /// The message's number if it is one of ours; whatever differs becomes a problem.
    fn verify(&self, message: &MessageView) -> Option<usize> {
        let text = message.properties().get("index").map_or("", String::as_str);
        let index = text
            .parse()
            .ok()
            .filter(|&index| index < self.options.messages);
        let Some(index) = index else {
            let id = message.message_id();
            self.problem(format!(
                "a message that was not sent: id {id}, index {text:?}"
            ));
            return None;
        };
        let wanted = self.content(index);
        let differs = |what: String| self.problem(format!("message {index}: {what}"));
        if message.topic() != self.options.topic {
            differs(format!("topic {:?}", message.topic()));
        }
        if message.body() != wanted.body {
            let (got, sent) = (message.body().len(), wanted.body.len());
            differs(format!("body of {got} bytes differs, sent were {sent}"));
        }
        if message.tag() != Some(&wanted.tag) {
            differs(format!(
                "tag {:?}, sent was {:?}",
                message.tag(),
                wanted.tag
            ));
        }
        if message.keys().len() != 2 || !message.keys().iter().all(|key| wanted.keys.contains(key))
        {
            differs(format!("keys {:?}", message.keys()));
        }
        if *message.properties() != wanted.properties {
            differs(format!("properties {:?}", message.properties()));
        }
        Some(index)
    }

    /// Prints the closing line and ends the process. Whoever comes first holds the ledger until
    /// the end, so that the line is printed once.
    fn report(&self) -> ! {
        let mut ledger = self.ledger();
        ledger.missing();
        let ok = ledger.problems.is_empty();
        let line = json!({
            "language": "rust",
            "client": CLIENT,
            "sent": ledger.sent,
            "received_first": ledger.received_first,
            "acked_first": ledger.acked_first,
            "received_second": ledger.received_second,
            "changed": 0,
            "not_applicable": ["change_invisible_duration", "old_receipt_handle"],
            "ok": ok,
            "problems": ledger.problems,
        });
        println!("{line}");
        exit(if ok { 0 } else { 1 })
    }

    /// Runs on a thread of its own, so that a client that blocks the runtime is ended too.
    fn watch(&self) {
        let limit = self.options.limit;
        std::thread::sleep(limit.saturating_sub(SHUTDOWN).max(Duration::from_secs(1)));
        self.stopped.store(true, Ordering::SeqCst);
        std::thread::sleep(limit.min(SHUTDOWN));
        self.problem(format!("not done within {limit:?}"));
        self.report()
    }
}

#[tokio::main]
async fn main() {
    let options = Options::parse(std::env::args().skip(1)).unwrap_or_else(|error| {
        eprintln!("{error}");
        exit(2)
    });
    let trip = Arc::new(Trip {
        ledger: Mutex::new(Ledger::new(options.messages, options.invisible)),
        options,
        started_at: Instant::now(),
        stopped: AtomicBool::new(false),
    });
    let watched = Arc::clone(&trip);
    std::thread::spawn(move || watched.watch());
    if trip.options.tls {
        trip.problem("the client offers no usable TLS".to_owned());
        trip.report();
    }
    let mut outcome = trip.send_all().await;
    if outcome.is_ok() {
        outcome = trip.receive_all().await;
    }
    if let Err(error) = outcome {
        trip.problem(format!("failed: {error}"));
    }
    trip.report()
}
