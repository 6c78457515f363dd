//! A broker on a store in memory that can fail and lose power, under a clock that stands
//! still until a test moves it.
//!
//! Tokio's clock is paused in these tests, so that waits cost nothing and nothing races.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use pop_broker::{
    Broker, BrokerError, BrokerOptions, Delivery, GroupSpec, Health, NewMessage, OpenStore,
    ReceiveRequest, SendReceipt, TopicSpec,
};
use pop_model::{
    Backoff, GroupName, LeaseTime, ManualClock, Namespace, RetryPolicy, StartPosition, TopicName,
    WallTime,
};
use pop_store::{
    Error, ErrorKind, MemStore, Store,
    table::KEYSPACES,
    testkit::{FaultStore, Faults, Random},
};

pub(crate) const SECOND: Duration = Duration::from_secs(1);
/// How long the tests hide messages, unless they say otherwise.
pub(crate) const INVISIBLE: Duration = Duration::from_secs(30);
/// How long a lease stays in memory before it is stored.
pub(crate) const STAY: Duration = Duration::from_secs(10);

pub(crate) fn topic(name: &str) -> TopicName {
    TopicName::user(&Namespace::default(), name).unwrap()
}

pub(crate) fn group(name: &str) -> GroupName {
    GroupName::user(&Namespace::default(), name).unwrap()
}

/// The store of one life of the broker: opened again after a failure, until the power goes.
#[derive(Debug)]
struct Life {
    store: Mutex<FaultStore<MemStore>>,
    faults: Faults,
    over: AtomicBool,
}

#[async_trait]
impl OpenStore for Life {
    async fn open(&self) -> pop_store::Result<Arc<dyn Store>> {
        if self.over.load(Ordering::Relaxed) {
            return Err(Error::new(ErrorKind::Locked, "memory", "open"));
        }
        let mut store = self.store.lock();
        // What a power cut left, or else everything: the process lives on.
        let content = store.take_crashed();
        let content = content.unwrap_or_else(|| store.crash(usize::MAX));
        *store = FaultStore::crashable(content, self.faults.clone());
        Ok(Arc::new(store.clone()))
    }
}

/// A broker and everything around it that a test moves.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) broker: Broker,
    pub(crate) clock: ManualClock,
    pub(crate) faults: Faults,
    life: Arc<Life>,
    options: BrokerOptions,
}

impl World {
    pub(crate) async fn new() -> Self {
        Self::with(|_| {}).await
    }

    /// A world whose broker has options other than the defaults.
    pub(crate) async fn with(change: impl FnOnce(&mut BrokerOptions)) -> Self {
        // Far from zero, so that a deadline in the past is one.
        let clock = ManualClock::new(
            LeaseTime::from_millis(1_000_000),
            WallTime::from_unix_millis(1_000_000),
        );
        let seed = AtomicU64::new(1);
        let entropy = move |bytes: &mut [u8]| {
            Random::new(seed.fetch_add(1, Ordering::Relaxed)).fill(bytes);
        };
        let mut options = BrokerOptions::new(Arc::new(entropy)).with_clock(Arc::new(clock.clone()));
        options.catalog.queues = 1;
        options.reviver.idle_max = Duration::from_millis(40);
        options.cache.idle_max = Duration::from_millis(40);
        change(&mut options);
        Self::live(MemStore::new(&KEYSPACES), clock, options).await
    }

    async fn live(content: MemStore, clock: ManualClock, options: BrokerOptions) -> Self {
        let faults = Faults::none();
        let life = Arc::new(Life {
            store: Mutex::new(FaultStore::crashable(content, faults.clone())),
            faults: faults.clone(),
            over: AtomicBool::new(false),
        });
        let opener: Arc<dyn OpenStore> = life.clone();
        let broker = Broker::open(opener, options.clone()).await.unwrap();
        Self {
            broker,
            clock,
            faults,
            life,
            options,
        }
    }

    /// Shuts down, and starts again on what that left.
    pub(crate) async fn restart(self) -> Self {
        self.broker.shutdown().await.unwrap();
        self.life.over.store(true, Ordering::Relaxed);
        // All of it is durable: a power cut after it takes nothing.
        let content = self.life.store.lock().crash(0);
        Self::live(content, self.clock, self.options).await
    }

    /// Cuts the power, keeps the first `keep` of the unsynced writes, and starts again.
    /// Leases that were only in memory are over.
    pub(crate) async fn crash(self, keep: usize) -> Self {
        let content = self.cut(keep).await;
        Self::live(content, self.clock, self.options).await
    }

    /// Cuts the power and leaves it off.
    pub(crate) async fn cut(&self, keep: usize) -> MemStore {
        self.life.over.store(true, Ordering::Relaxed);
        let content = self.life.store.lock().crash(keep);
        // Only ends what still runs of the old life: nothing reaches its store any more.
        let _ = self.broker.shutdown().await;
        content
    }

    /// Takes the store away for good, under a broker that goes on.
    pub(crate) fn lose_the_store(&self) {
        self.life.over.store(true, Ordering::Relaxed);
        drop(self.life.store.lock().crash(0));
    }

    /// Another broker on other keys, with the clock of this one.
    pub(crate) async fn stranger(&self) -> Self {
        let store = MemStore::new(&KEYSPACES);
        Self::live(store, self.clock.clone(), self.options.clone()).await
    }

    /// The rows themselves, past the faults.
    pub(crate) fn rows(&self) -> MemStore {
        self.life.store.lock().inner().clone()
    }

    /// Moves the clock, and gives everything that runs by itself the time to follow.
    pub(crate) async fn advance(&self, by: Duration) {
        self.clock.advance(by);
        self.rest().await;
    }

    /// Lets everything that runs by itself come to rest: what is due is swept, and what was
    /// acknowledged is flushed.
    pub(crate) async fn rest(&self) {
        tokio::time::sleep(Duration::from_millis(120)).await;
    }

    /// Lets every lease stay so long that it is stored.
    pub(crate) async fn stay(&self) {
        self.advance(STAY).await;
    }

    /// Waits until the broker serves again. It must, in a bounded time (P5).
    pub(crate) async fn until_serving(&self) {
        let mut health = self.broker.health();
        let serving = health.wait_for(|health| *health == Health::Serving);
        let serving = tokio::time::timeout(Duration::from_secs(120), serving).await;
        serving
            .expect("P5: the broker comes back in a bounded time")
            .expect("the broker is there");
    }

    pub(crate) async fn create_topic(&self, name: &str, queues: u32) {
        let name = topic(name);
        let spec = TopicSpec { name, queues };
        self.broker.create_topic(spec).await.unwrap();
    }

    /// Makes a group that gets a message `attempts` times.
    pub(crate) async fn create_group(&self, name: &str, attempts: u32) {
        self.make_group(name, attempts, false).await;
    }

    /// Makes a group that consumes in order, and gets a message `attempts` times.
    pub(crate) async fn create_fifo_group(&self, name: &str, attempts: u32) {
        self.make_group(name, attempts, true).await;
    }

    async fn make_group(&self, name: &str, attempts: u32, fifo: bool) {
        let policy = RetryPolicy::new(attempts, Backoff::Customized(vec![SECOND])).unwrap();
        let spec = GroupSpec {
            name: group(name),
            policy,
            start: StartPosition::Earliest,
            fifo,
        };
        self.broker.create_group(spec).await.unwrap();
    }

    pub(crate) async fn try_send(
        &self,
        to: &str,
        message: NewMessage,
    ) -> Result<SendReceipt, BrokerError> {
        let outcomes = self.broker.send(&topic(to), vec![message]).await?;
        outcomes.into_iter().next().expect("one outcome a message")
    }

    /// Sends a message whose id is also its body.
    pub(crate) async fn send(&self, to: &str, id: &str) {
        self.try_send(to, message(id)).await.unwrap();
    }

    /// Receives without waiting.
    pub(crate) async fn try_receive(
        &self,
        by: &str,
        from: &str,
    ) -> Result<Vec<Delivery>, BrokerError> {
        let request = request(by, from);
        Ok(self.broker.receive(request).await?.take())
    }

    /// Receives without waiting, in the order of the message ids.
    pub(crate) async fn receive(&self, by: &str, from: &str) -> Vec<Delivery> {
        let mut deliveries = self.try_receive(by, from).await.unwrap();
        deliveries.sort_by(|left, right| left.message.message_id.cmp(&right.message.message_id));
        deliveries
    }

    /// Receives the one message that there is.
    pub(crate) async fn receive_one(&self, by: &str, from: &str) -> Delivery {
        let mut deliveries = self.receive(by, from).await;
        assert_eq!(deliveries.len(), 1, "one message is ready: {deliveries:?}");
        deliveries.remove(0)
    }

    #[track_caller]
    pub(crate) fn ack(
        &self,
        by: &str,
        of: &str,
        delivery: &Delivery,
    ) -> impl Future<Output = Result<(), BrokerError>> + Send + use<> {
        let broker = self.broker.clone();
        let (group, topic) = (group(by), topic(of));
        let handle = delivery.handle.to_string();
        async move { broker.ack(&group, &topic, &handle).await }
    }

    /// Changes how long a delivery is hidden, and returns the new handle.
    pub(crate) async fn change(
        &self,
        by: &str,
        of: &str,
        delivery: &Delivery,
        invisible_for: Duration,
    ) -> Result<String, BrokerError> {
        let handle = delivery.handle.as_str();
        let (by, of) = (group(by), topic(of));
        let changed = self
            .broker
            .change_invisible(&by, &of, handle, invisible_for, false)
            .await?;
        Ok(changed.to_string())
    }
}

pub(crate) fn request(by: &str, from: &str) -> ReceiveRequest {
    ReceiveRequest::new(group(by), topic(from), INVISIBLE)
}

/// A message whose id is also its body.
pub(crate) fn message(id: &str) -> NewMessage {
    NewMessage::new(id, Bytes::copy_from_slice(id.as_bytes()))
}

/// Ids and attempts, to compare with.
pub(crate) fn seen(deliveries: &[Delivery]) -> Vec<(&str, u32)> {
    let seen = |it: &'_ Delivery| it.delivery_attempt;
    deliveries
        .iter()
        .map(|delivery| (delivery.message.message_id.as_str(), seen(delivery)))
        .collect()
}

/// The ids alone.
pub(crate) fn ids(deliveries: &[Delivery]) -> Vec<&str> {
    seen(deliveries).into_iter().map(|(id, _)| id).collect()
}
