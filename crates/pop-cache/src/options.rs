//! How the cache works: times and bounds.

use std::time::Duration;

use pop_model::REVIVE_FAILURES_MAX;

/// Options of a cache.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CacheOptions {
    /// How long a lease stays in memory before it is stored (RocketMQ: 10 s).
    pub stay: Duration,
    /// How long acknowledgements wait for each other before they are synced.
    pub flush_every: Duration,
    /// The most leases in memory, of all queues. Beyond it, a receive stores as many as it
    /// adds (RocketMQ: 200,000).
    pub leases_max: usize,
    /// The most deliveries of a queue that are out, stored ones included. Beyond it,
    /// receives are held back.
    pub in_flight_per_queue_max: u64,
    /// The same, of all queues of a group.
    pub in_flight_per_group_max: u64,
    /// How many messages of an ordered queue may wait in memory behind others of their
    /// message group. Beyond it, they are parked in the store.
    pub held_max: usize,
    /// How long a queue is looked at by nobody before its state leaves memory (RocketMQ:
    /// 2 minutes).
    pub idle_after: Duration,
    /// How long a decision about an expired lease may take before it counts as failed.
    pub decision_time_max: Duration,
    /// After how many failed revives a delivery goes to quarantine.
    pub failures_max: u32,
    /// How long a consumer's call waits for an outcome that is being written.
    pub wait_max: Duration,
    /// The longest sleep between two looks at the clock.
    pub idle_max: Duration,
}

impl Default for CacheOptions {
    fn default() -> Self {
        Self {
            stay: Duration::from_secs(10),
            flush_every: Duration::from_millis(50),
            leases_max: 1_000_000,
            in_flight_per_queue_max: 1_000_000,
            in_flight_per_group_max: 4_000_000,
            held_max: 10_000,
            idle_after: Duration::from_secs(120),
            decision_time_max: Duration::from_secs(5),
            failures_max: REVIVE_FAILURES_MAX,
            wait_max: Duration::from_secs(10),
            idle_max: Duration::from_secs(1),
        }
    }
}
