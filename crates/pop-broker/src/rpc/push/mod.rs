//! Push consumers: they name no invisible duration and never ask for more time, so the
//! broker renews what they have for as long as they are there.
//!
//! All of it is in memory. After a restart of the broker a delivery has the time that it
//! was last given, and its handle is as good as before.

mod consumer;

use std::{
    collections::HashMap,
    sync::{Arc, Weak},
    time::Duration,
};

use futures::{StreamExt, stream};
use parking_lot::{Mutex, RwLock};
use pop_model::GroupName;
use tokio::{sync::Notify, time::Instant};

use self::consumer::{Held, PushConsumer, Step};
use crate::{Broker, BrokerError, Delivery};

/// Renewals that run at a time: enough to share a sync.
const CONCURRENT_MAX: usize = 64;

/// How the broker renews the deliveries of push consumers.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PushOptions {
    /// The first lease of a delivery (RocketMQ: 1 minute). It is renewed when a third of
    /// that is left, for three times as long and then for five times.
    pub lease: Duration,
    /// How often is looked for what must be renewed (RocketMQ: 5 s).
    pub look_every: Duration,
    /// How long a consumer may have a message (RocketMQ: 3 hours).
    pub held_max: Duration,
    /// After how long without a stream and without a call a consumer is gone. Clients send
    /// a heartbeat every 10 s.
    pub gone_after: Duration,
}

impl Default for PushOptions {
    fn default() -> Self {
        Self {
            lease: Duration::from_secs(60),
            look_every: Duration::from_secs(5),
            held_max: Duration::from_secs(3 * 60 * 60),
            gone_after: Duration::from_secs(30),
        }
    }
}

/// The push consumers that are there, by client id.
#[derive(Clone, Debug)]
pub(super) struct PushConsumers(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    broker: Broker,
    options: PushOptions,
    consumers: RwLock<HashMap<String, Arc<Mutex<PushConsumer>>>>,
    /// Someone went: what it had is not kept waiting for the next look.
    look: Arc<Notify>,
    runs: std::sync::Once,
}

/// A telemetry stream. Dropped, it has ended.
#[derive(Debug)]
pub(super) struct Session(Arc<Mutex<PushConsumer>>);

impl Drop for Session {
    fn drop(&mut self) {
        self.0.lock().session_ended(Instant::now());
    }
}

impl PushConsumers {
    pub(super) fn new(broker: Broker, options: PushOptions) -> Self {
        Self(Arc::new(Shared {
            broker,
            options,
            consumers: RwLock::default(),
            look: Arc::default(),
            runs: std::sync::Once::new(),
        }))
    }

    /// How long the first lease of a delivery lasts.
    pub(super) fn lease(&self) -> Duration {
        self.0.options.lease
    }

    /// A client opened its telemetry stream.
    pub(super) fn session(&self, client: &str) -> Session {
        let consumer = self.0.make(client);
        consumer.lock().session_began(Instant::now());
        Session(consumer)
    }

    /// A client is there.
    pub(super) fn seen(&self, client: &str) {
        if let Some(consumer) = self.0.get(client) {
            consumer.lock().seen(Instant::now());
        }
    }

    /// A client goes: what it has is another's.
    pub(super) fn terminated(&self, client: &str) {
        if let Some(consumer) = self.0.get(client) {
            consumer.lock().terminated();
            self.0.look.notify_one();
        }
    }

    /// A client was handed messages whose leases the broker renews.
    pub(super) fn delivered(&self, client: &str, group: &GroupName, deliveries: &[Delivery]) {
        let now = Instant::now();
        let consumer = self.0.make(client);
        let mut consumer = consumer.lock();
        for delivery in deliveries {
            let names = (group.clone(), delivery.topic.clone());
            let handle = delivery.handle.clone().into();
            let (attempt, hidden) = (delivery.delivery_attempt, delivery.invisible_for);
            consumer.delivered(handle, names, attempt, hidden, now);
        }
        drop(consumer);
        self.start();
    }

    /// A client acknowledged a delivery, or gave it back.
    pub(super) fn ended(&self, client: &str, handle: &str) {
        if let Some(consumer) = self.0.get(client) {
            consumer.lock().ended(handle);
        }
    }

    /// How soon a delivery may come again that a client gives back, if it is one of a push
    /// consumer: not before the delay of its group for this attempt (some clients ask for
    /// none at all, and would spin).
    pub(super) fn delay_min(&self, client: &str, handle: &str) -> Option<Duration> {
        let consumer = self.0.get(client)?;
        let held = consumer.lock().holds(handle).cloned()?;
        Some(self.0.delay_after(&held))
    }

    fn start(&self) {
        self.0.runs.call_once(|| {
            let look = Arc::clone(&self.0.look);
            let every = self.0.options.look_every;
            tokio::spawn(run(Arc::downgrade(&self.0), look, every));
        });
    }
}

/// Looks after the consumers for as long as there is a service.
async fn run(shared: Weak<Shared>, look: Arc<Notify>, every: Duration) {
    loop {
        tokio::select! {
            () = look.notified() => {}
            () = tokio::time::sleep(every) => {}
        }
        let Some(shared) = shared.upgrade() else {
            return;
        };
        shared.look_after_all().await;
    }
}

impl Shared {
    fn get(&self, client: &str) -> Option<Arc<Mutex<PushConsumer>>> {
        self.consumers.read().get(client).cloned()
    }

    fn make(&self, client: &str) -> Arc<Mutex<PushConsumer>> {
        if let Some(consumer) = self.get(client) {
            return consumer;
        }
        let new = || Arc::new(Mutex::new(PushConsumer::new(Instant::now())));
        let mut consumers = self.consumers.write();
        Arc::clone(consumers.entry(client.to_owned()).or_insert_with(new))
    }

    async fn look_after_all(&self) {
        let now = Instant::now();
        let consumers: Vec<_> = self.consumers.read().values().cloned().collect();
        let due = consumers.into_iter().flat_map(|consumer| {
            let due = consumer.lock().due(now, &self.options);
            due.into_iter().map(move |due| (Arc::clone(&consumer), due))
        });
        let steps = stream::iter(due).map(|(consumer, (handle, held, step))| async move {
            self.take(&consumer, &handle, &held, step).await;
        });
        steps.buffer_unordered(CONCURRENT_MAX).collect::<()>().await;
        let now = Instant::now();
        // One that is being handed something right now is kept by whoever hands it out.
        self.consumers.write().retain(|_, consumer| {
            Arc::strong_count(consumer) > 1 || !consumer.lock().is_over(now, &self.options)
        });
    }

    async fn take(&self, consumer: &Mutex<PushConsumer>, handle: &str, held: &Held, step: Step) {
        let hidden_for = match step {
            Step::Renew(lease) => lease,
            Step::TakeBack => self.delay_after(held),
        };
        let (group, topic) = (&held.group, &held.topic);
        let asked_at = Instant::now();
        let changed = self
            .broker
            .change_invisible(group, topic, handle, hidden_for, false);
        match (changed.await, step) {
            (Ok(_), Step::Renew(lease)) => consumer.lock().renewed(handle, lease, asked_at),
            (Ok(_), Step::TakeBack) => {
                tracing::info!(%group, %topic, ?hidden_for, "took back what a push consumer had that is gone, or had for too long");
                consumer.lock().ended(handle);
            }
            (Err(error), _) if is_over(&error) => {
                consumer.lock().ended(handle);
            }
            // Its time goes on, and it is tried again at the next look.
            (Err(error), _) => {
                tracing::warn!(%group, %topic, %error, "a delivery of a push consumer could not be renewed; it is tried again");
            }
        }
    }

    fn delay_after(&self, held: &Held) -> Duration {
        let group = self.broker.group(&held.group).ok().flatten();
        group.map_or(Duration::ZERO, |group| {
            group.policy.delay_after(held.attempt)
        })
    }
}

/// Whether nothing is left to renew.
fn is_over(error: &BrokerError) -> bool {
    matches!(
        error,
        BrokerError::DeliveryOver
            | BrokerError::TopicNotFound(_)
            | BrokerError::GroupNotFound(_)
            | BrokerError::Deleted
    )
}
