//! A broker and everything around it that a run moves: its store, its power, its clocks.

mod life;
mod names;
mod records;

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use pop_broker::{Broker, BrokerError, BrokerOptions, Health, OpenStore, QueueProgress};
use pop_model::{Clock, GroupId, LeaseTime, ManualClock, TopicId, WallTime, resumed_lease_time};
use pop_store::{
    MemStore,
    table::{KEYSPACES, meta},
    testkit::{Faults, Random},
};

use crate::{
    cast::Cast,
    model::Millis,
    violation::{Checked, Violation},
};
use life::Life;
pub use life::SYNC_EVERY;
pub use names::{group, topic};
pub use records::{Origin, PutAway};

/// The longest a store call may take before the store counts as failed.
pub const STORE_TIME_MAX: Duration = Duration::from_secs(2);
/// No call of a client may take longer, beside the time that it asked to wait (P5).
pub const CALL_TIME_MAX: Duration = Duration::from_secs(15);
/// The broker serves again within this time after its store failed (P5).
const RECOVERY_TIME_MAX: Duration = Duration::from_secs(30);
/// How far lease time may go back over a crash.
const MARK_LAG_MS: Millis = 5;
/// A broker that finds its store failing is started again; faults end before so many.
const STARTS_MAX: u32 = 50;
/// Where the wall clock stands at the beginning: far from zero, so that a moment in the
/// past is one.
const WALL_AT_FIRST: i64 = 1_000_000_000;

/// A broker and everything around it.
#[derive(Debug)]
pub struct World {
    /// The broker, in its present life.
    pub broker: Broker,
    /// What goes wrong in the store.
    pub faults: Faults,
    clock: ManualClock,
    life: Arc<Life>,
    options: BrokerOptions,
    // By their place in the cast: every topic and group of the name that ever was.
    topics: Vec<Vec<TopicId>>,
    groups: Vec<Vec<GroupId>>,
    // What damaged rows were before.
    damaged: HashMap<Bytes, Bytes>,
    // Opens of the lives before this one.
    opens_before: u64,
}

impl World {
    /// A broker with the topics and groups of `cast`, and nothing in them.
    pub async fn begin(cast: &Cast, seed: u64) -> Checked<Self> {
        let mut random = Random::new(seed);
        let entropy_seed = random.next_u64();
        let draws = AtomicU64::new(0);
        let entropy = move |bytes: &mut [u8]| {
            let draw = draws.fetch_add(1, Ordering::Relaxed);
            Random::new(entropy_seed.wrapping_add(draw)).fill(bytes);
        };
        let mut options = BrokerOptions::new(Arc::new(entropy));
        options.store_time_max = STORE_TIME_MAX;
        options.recovery_time_max = RECOVERY_TIME_MAX;
        options.reviver.idle_max = Duration::from_millis(50);
        options.cache.idle_max = Duration::from_millis(50);
        let tuning = cast.tuning;
        options.cache.stay = Duration::from_millis(tuning.stay_ms);
        options.cache.leases_max = tuning.leases_max;
        options.cache.held_max = tuning.held_max();
        options.cache.idle_after = Duration::from_millis(tuning.idle_after_ms);
        options.cache.in_flight_per_group_max = tuning.in_flight_max;
        options.retention = tuning.keep_ms.map(Duration::from_millis);
        options.cache.failures_max = tuning.revives_max;
        options.reviver.failures_max = tuning.revives_max;
        options.catalog.auto_create_topics = false;
        options.catalog.auto_create_groups = false;
        let faults = Faults::none();
        let wall = WallTime::from_unix_millis(WALL_AT_FIRST);
        let content = MemStore::new(&KEYSPACES);
        let life = Life::new(content, faults.clone());
        let clock = ManualClock::new(resumed_lease_time(None, wall), wall);
        let broker = open(&life, &options, &clock).await.map_err(unexpected)?;
        let mut world = Self {
            broker,
            faults,
            clock,
            life,
            options,
            topics: vec![Vec::new(); cast.topics.len()],
            groups: vec![Vec::new(); cast.groups.len()],
            damaged: HashMap::new(),
            opens_before: 0,
        };
        world.populate(cast).await?;
        // What is trusted from here on is durable.
        world.broker.confirm_clock().await.map_err(unexpected)?;
        Ok(world)
    }

    /// Lease time now.
    pub fn now(&self) -> Millis {
        self.clock.lease().as_millis()
    }

    /// The clock, to be read while calls run.
    pub fn clock(&self) -> ManualClock {
        self.clock.clone()
    }

    /// Moves both clocks.
    pub fn advance(&self, millis: Millis) {
        self.clock.advance(Duration::from_millis(millis));
    }

    /// Wall time now.
    pub fn wall(&self) -> i64 {
        self.clock.wall().as_unix_millis()
    }

    /// How long messages are kept from the next start on.
    pub fn keep(&mut self, keep: Option<Millis>) {
        self.options.retention = keep.map(Duration::from_millis);
    }

    /// Sets the wall clock this much forward or back; lease time does not follow.
    pub fn shift_wall(&self, millis: i64) {
        let wall = self.clock.wall().as_unix_millis().saturating_add(millis);
        self.clock.set_wall(WallTime::from_unix_millis(wall));
    }

    /// How often a broker opened the store. One more than before means that whatever it
    /// had in memory alone is gone.
    pub fn opens(&self) -> u64 {
        self.opens_before + self.life.opens()
    }

    /// How many writes a power cut could lose now.
    pub fn unsynced_count(&self) -> usize {
        self.life.rows().unsynced_count()
    }

    /// Whether the power went in the middle of a call.
    pub fn has_lost_power(&self) -> bool {
        self.life.has_lost_power()
    }

    /// Cuts the power, unless it is gone already, and starts again on the first `keep` of
    /// the writes that were not synced.
    pub async fn crash(&mut self, keep: usize) -> Checked {
        let content = self.life.end(keep);
        // Only ends what still runs of the old life: nothing reaches its store any more.
        self.stop().await?;
        self.start(content).await
    }

    /// Shuts down and starts again. Returns whether the shutdown went well.
    pub async fn restart(&mut self) -> Checked<bool> {
        let before = self.now();
        let went_well = self.stop().await?;
        let content = self.life.end(usize::MAX);
        self.start(content).await?;
        if went_well && self.now() < before {
            let what = format!(
                "lease time was {before} at a shutdown and is {} after it",
                self.now()
            );
            return Err(Violation::new("lease time never goes back", what));
        }
        Ok(went_well)
    }

    async fn stop(&self) -> Checked<bool> {
        match tokio::time::timeout(CALL_TIME_MAX, self.broker.shutdown()).await {
            Ok(outcome) => Ok(outcome.is_ok()),
            Err(_) => Err(Violation::new("P5 no wedge", "a shutdown never ended")),
        }
    }

    /// Starts a broker on `content`, again and again where the store does not let it.
    async fn start(&mut self, content: MemStore) -> Checked {
        let wall = self.clock.wall();
        let mark = meta::lease_clock_mark(&content).await;
        let mark = mark.map_err(|error| unexpected(error.into()))?;
        // The mark is stored once a second. Steps let lease time leap and simulated time not,
        // so without this it would be far behind, as it never is.
        let least = LeaseTime::from_millis(self.now().saturating_sub(MARK_LAG_MS));
        let resumed = resumed_lease_time(mark, wall).max(least);
        self.clock = ManualClock::new(resumed, wall);
        self.renew(content);
        for _ in 0..STARTS_MAX {
            match open(&self.life, &self.options, &self.clock).await {
                Ok(broker) => {
                    self.broker = broker;
                    return Ok(());
                }
                Err(_) if self.life.has_lost_power() => {
                    let content = self.life.end(0);
                    self.renew(content);
                }
                Err(_) => {}
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Err(Violation::new("P5 no wedge", "the broker does not start"))
    }

    fn renew(&mut self, content: MemStore) {
        self.opens_before = self.opens();
        self.life = Life::new(content, self.faults.clone());
    }

    /// How far a group has come in each queue of a topic, as the broker says.
    pub async fn progress(
        &self,
        cast: &Cast,
        of: usize,
        in_topic: usize,
    ) -> Result<Vec<QueueProgress>, BrokerError> {
        let (group, topic) = (
            group(cast.groups[of].name),
            topic(cast.topics[in_topic].name),
        );
        let progress = self.broker.progress(&group, &topic);
        let answer = tokio::time::timeout(CALL_TIME_MAX, progress).await;
        answer.unwrap_or(Err(BrokerError::Busy("no answer in time")))
    }

    /// Waits until the broker serves again.
    ///
    /// # Errors
    ///
    /// If it doesn't in time (P5).
    pub async fn until_serving(&self) -> Checked {
        let mut health = self.broker.health();
        if *health.borrow() == Health::Serving {
            return Ok(());
        }
        let serving = health.wait_for(|health| *health == Health::Serving);
        match tokio::time::timeout(RECOVERY_TIME_MAX * 2, serving).await {
            Ok(Ok(_)) => Ok(()),
            _ => Err(Violation::new(
                "P5 no wedge",
                "the broker does not serve again after its store failed",
            )),
        }
    }
}

async fn open(
    life: &Arc<Life>,
    options: &BrokerOptions,
    clock: &ManualClock,
) -> Result<Broker, BrokerError> {
    let opener: Arc<dyn OpenStore> = Arc::clone(life) as _;
    let options = options.clone().with_clock(Arc::new(clock.clone()));
    Broker::open(opener, options).await
}

fn unexpected(error: BrokerError) -> Violation {
    Violation::new("nothing fails without a fault", error.to_string())
}

/// The moment as the broker's clocks have it.
pub fn lease_millis(clock: &ManualClock) -> Millis {
    LeaseTime::as_millis(clock.lease())
}
