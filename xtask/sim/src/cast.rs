//! Who takes part in a run: its topics and groups.

use pop_store::testkit::Random;

/// The one tag that filters ask for.
pub const TAG: &str = "music";

/// A topic of a run.
#[derive(Clone, Debug)]
pub struct Topic {
    /// Its name.
    pub name: &'static str,
    /// How many queues it has.
    pub queues: u32,
    /// Its messages belong to message groups.
    pub has_message_groups: bool,
}

/// A group of a run.
#[derive(Clone, Debug)]
pub struct Group {
    /// Its name.
    pub name: &'static str,
    /// How often it gets a message.
    pub attempts_max: u32,
    /// It wants messages with [`TAG`] only.
    pub is_filtered: bool,
    /// It starts at the end of each queue and not at the beginning.
    pub starts_at_the_end: bool,
    /// It gets the messages of a message group in order, one batch at a time.
    pub is_fifo: bool,
}

/// How the broker of a run is set up, where that makes a difference.
#[derive(Clone, Copy, Debug)]
pub struct Tuning {
    /// How long a lease stays in memory.
    pub stay_ms: u64,
    /// How many leases fit into memory.
    pub leases_max: usize,
    /// After how long without use the state of a queue leaves memory.
    pub idle_after_ms: u64,
    /// How many deliveries of a group may be out.
    pub in_flight_max: u64,
    /// How long messages are kept, at first.
    pub keep_ms: Option<u64>,
    /// After how many failed revives a delivery goes to quarantine.
    pub revives_max: u32,
}

impl Tuning {
    /// More deliveries than a run has.
    const UNBOUNDED: u64 = 1_000_000;
    /// More messages than a run has.
    const HELD_MAX: usize = 10_000;

    /// The defaults in half of the runs, and bounds that are reached in the others.
    fn draw(random: &mut Random) -> Self {
        Self {
            stay_ms: [10_000, 10_000, 1_000, 3_000][random.index(4)],
            leases_max: [1_000_000, 1_000_000, 1, 10][random.index(4)],
            idle_after_ms: [120_000, 120_000, 400, 2_000][random.index(4)],
            in_flight_max: [Self::UNBOUNDED, Self::UNBOUNDED, Self::UNBOUNDED, 12][random.index(4)],
            keep_ms: [None, None, Some(20_000), Some(120_000)][random.index(4)],
            // Beyond the end of the table of delays.
            revives_max: [16, 2, 18][random.index(3)],
        }
    }

    /// How many messages of a queue may wait in memory behind others of their message groups,
    /// before those that come after them are parked.
    pub fn held_max(&self) -> usize {
        self.leases_max.clamp(2, Self::HELD_MAX)
    }

    /// Whether a run has enough messages that some are parked.
    pub fn parks_messages(&self) -> bool {
        self.held_max() < Self::HELD_MAX
    }

    /// Whether so many deliveries may be out that receives are held back.
    pub fn is_bounded(&self) -> bool {
        self.in_flight_max < Self::UNBOUNDED
    }
}

/// The topics and groups of a run. Every group consumes every topic.
#[derive(Clone, Debug)]
pub struct Cast {
    /// The topics.
    pub topics: Vec<Topic>,
    /// The groups.
    pub groups: Vec<Group>,
    /// How the broker is set up.
    pub tuning: Tuning,
}

impl Cast {
    /// Draws who takes part.
    pub fn draw(random: &mut Random) -> Self {
        let topics = ["orders", "mail", "logs"].into_iter();
        let topics = topics.take(2 + random.index(2)).map(|name| Topic {
            name,
            queues: if random.chance(1, 2) { 1 } else { 2 },
            has_message_groups: random.chance(1, 3),
        });
        let topics = topics.collect();
        let groups = ["billing", "search", "audit"].into_iter();
        let mut groups: Vec<_> = groups
            .take(2 + random.index(2))
            .map(|name| Group {
                name,
                attempts_max: 1 + u32::try_from(random.below(4)).unwrap_or(0),
                is_filtered: false,
                starts_at_the_end: random.chance(1, 3),
                is_fifo: random.chance(1, 4),
            })
            .collect();
        if let Some(last) = groups.last_mut() {
            last.is_filtered = true;
            last.is_fifo = false;
        }
        Self {
            topics,
            groups,
            tuning: Tuning::draw(random),
        }
    }
}
