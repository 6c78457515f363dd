//! The workload through the broker: messages are sent, received, acknowledged, given back
//! and left to expire.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering},
    },
    time::Duration,
};

use anyhow::Result;
use bytes::Bytes;
use pop_broker::{Broker, BrokerError, BrokerOptions, Delivery, NewMessage, ReceiveRequest};
use pop_model::{GroupName, Namespace, TopicName};
use pop_store::{Durability, ErrorKind, testkit::Random};

use crate::{
    marks::{BrokerMark, Mark, Marks},
    stores::Opener,
};

const SENDERS: u64 = 6;
const CONSUMERS: u64 = 3;
// Senders wait above it, so that what is left is quickly received.
const OPEN_MAX: i64 = 300;
const INVISIBLE_FOR: Duration = Duration::from_millis(300);

pub(crate) fn topic() -> Result<TopicName> {
    Ok(TopicName::user(&Namespace::default(), "orders")?)
}

pub(crate) fn group() -> Result<GroupName> {
    Ok(GroupName::user(&Namespace::default(), "billing")?)
}

/// The options that the workload and the judge share.
pub(crate) fn options() -> BrokerOptions {
    let entropy = |bytes: &mut [u8]| {
        #[expect(clippy::disallowed_methods, reason = "the edge of a program")]
        getrandom::fill(bytes).expect("the operating system has a source of randomness");
    };
    let mut options = BrokerOptions::new(Arc::new(entropy));
    options.ack_durability = Durability::Synced;
    options.reviver.idle_max = Duration::from_millis(20);
    options
}

/// What the clients of all lives share.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    next_id: AtomicU64,
    /// Sent and not acknowledged.
    open: AtomicI64,
}

/// One life of a broker, from its open to its shutdown.
///
/// # Errors
///
/// The broker's, other than a handle whose time was up.
pub(crate) async fn work(
    opener: Opener,
    marks: &Arc<Marks>,
    progress: &Arc<Progress>,
    stop: &Arc<AtomicBool>,
) -> Result<()> {
    let broker = Broker::open(Arc::new(opener), options()).await?;
    let client = |number| Client {
        broker: broker.clone(),
        marks: Arc::clone(marks),
        progress: Arc::clone(progress),
        stop: Arc::clone(stop),
        random: Random::new(number),
    };
    let senders = (0..SENDERS).map(|number| tokio::spawn(client(number).send()));
    let consumers = (0..CONSUMERS).map(|number| tokio::spawn(client(SENDERS + number).consume()));
    for ended in futures::future::join_all(senders.chain(consumers)).await {
        ended??;
    }
    broker.shutdown().await?;
    Ok(())
}

struct Client {
    broker: Broker,
    marks: Arc<Marks>,
    progress: Arc<Progress>,
    stop: Arc<AtomicBool>,
    random: Random,
}

impl Client {
    fn say(&self, mark: BrokerMark) -> Result<()> {
        self.marks.add(&Mark::Broker(mark))
    }

    fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    async fn send(mut self) -> Result<()> {
        let topic = topic()?;
        while !self.is_over() {
            if self.progress.open.load(Ordering::Relaxed) > OPEN_MAX {
                tokio::time::sleep(Duration::from_millis(1)).await;
                continue;
            }
            let count = 1 + self.random.index(4);
            let ids: Vec<_> = (0..count).map(|_| self.next_id()).collect();
            for id in &ids {
                self.say(BrokerMark::Sending { id: id.clone() })?;
            }
            let messages = ids.iter().map(|id| NewMessage::new(id.clone(), body(id)));
            let sent = self.broker.send(&topic, messages.collect()).await?;
            for (id, outcome) in ids.into_iter().zip(sent) {
                if is_refused(outcome.as_ref().err()) {
                    continue;
                }
                outcome?;
                self.progress.open.fetch_add(1, Ordering::Relaxed);
                self.say(BrokerMark::Sent { id })?;
            }
        }
        Ok(())
    }

    fn next_id(&self) -> String {
        format!(
            "m-{}",
            self.progress.next_id.fetch_add(1, Ordering::Relaxed)
        )
    }

    async fn consume(mut self) -> Result<()> {
        let mut request = ReceiveRequest::new(group()?, topic()?, INVISIBLE_FOR);
        request.wait_max = Duration::from_millis(50);
        while !self.is_over() {
            request.batch_size = 1 + self.random.index(16);
            let handout = match self.broker.receive(request.clone()).await {
                Err(error) if is_refused(Some(&error)) => continue,
                handout => handout?,
            };
            for delivery in handout.take() {
                match self.random.below(10) {
                    // Left to expire.
                    0 => {}
                    1 => self.give_back(&delivery).await?,
                    _ => self.acknowledge(&delivery).await?,
                }
            }
        }
        Ok(())
    }

    async fn give_back(&self, delivery: &Delivery) -> Result<()> {
        let handle = delivery.handle.as_str();
        let (group, topic) = (group()?, topic()?);
        let changed = self
            .broker
            .change_invisible(&group, &topic, handle, Duration::ZERO, false);
        match changed.await {
            Ok(_) | Err(BrokerError::DeliveryOver) => Ok(()),
            Err(error) if is_refused(Some(&error)) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    async fn acknowledge(&self, delivery: &Delivery) -> Result<()> {
        let id = delivery.message.message_id.clone();
        self.say(BrokerMark::Acking { id: id.clone() })?;
        match self
            .broker
            .ack(&group()?, &topic()?, delivery.handle.as_str())
            .await
        {
            Ok(()) => {
                self.progress.open.fetch_sub(1, Ordering::Relaxed);
                self.say(BrokerMark::Acked { id })
            }
            // Its time was up: it comes again.
            Err(BrokerError::DeliveryOver) => Ok(()),
            Err(error) if is_refused(Some(&error)) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// Whether the store was too busy and changed nothing.
fn is_refused(error: Option<&BrokerError>) -> bool {
    matches!(error, Some(BrokerError::Store(error)) if error.kind() == ErrorKind::Unavailable)
}

/// A body that follows from the id; one in a hundred is large enough to go in chunks.
pub(crate) fn body(id: &str) -> Bytes {
    let seed = id.bytes().fold(7, |seed: u64, byte| {
        seed.wrapping_mul(31).wrapping_add(u64::from(byte))
    });
    let mut random = Random::new(seed);
    let length = match random.below(100) {
        0 => 270_000 + random.index(60_000),
        _ => 1 + random.index(2_000),
    };
    let mut body = vec![0; length];
    random.fill(&mut body);
    body.into()
}
