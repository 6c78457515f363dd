//! What a seed draws before anything happens: who takes part, and how much goes wrong.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use kv_restore::{Epoch, Options, PeerId, SnapshotId, SnapshotRef, frame::Row};
use pop_store::{Entry, testkit::Random};

pub const SOURCES: usize = 2;
pub const SNAPSHOTS: u128 = 3;

/// A fault of a source that no checksum of a frame can see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// Two rows change places.
    Swap,
    /// A row of a keyspace that is not part of the snapshot.
    Outsider,
    /// A chunk is left out, and the numbers go on without a gap.
    LeaveOut,
    /// A bit of the rows flips before the frame is made.
    Flip,
    /// It sends more than it was asked for.
    Oversend,
    /// It says that it lives, and nothing else.
    Talk,
    /// It is silent.
    Silent,
    /// It closes the channel after the first chunk.
    CloseEarly,
    /// It sends on after its end.
    GoesOn,
}

const BUGS: [Bug; 9] = [
    Bug::Swap,
    Bug::Outsider,
    Bug::LeaveOut,
    Bug::Flip,
    Bug::Oversend,
    Bug::Talk,
    Bug::Silent,
    Bug::CloseEarly,
    Bug::GoesOn,
];

/// Chances in a thousand.
#[derive(Clone, Copy, Debug, Default)]
pub struct Odds {
    pub drop: u64,
    pub double: u64,
    pub reorder: u64,
    pub damage: u64,
    pub cut: u64,
    pub refuse: u64,
    pub panic: u64,
    pub hang: u64,
    pub slow: u64,
    pub doubt: u64,
}

#[derive(Clone, Copy, Debug)]
pub enum Step {
    /// Asks for a snapshot.
    Request {
        snapshot: u128,
        epoch: u64,
        sources: [usize; SOURCES],
        count: usize,
        hold: bool,
    },
    /// Lets one of the handles switch.
    Commit,
    /// Asks for what was asked for last.
    Repeat,
    /// Cancels one of the handles.
    Cancel,
    /// Drops one of the handles.
    Drop,
    /// The receiving process dies and comes back.
    Crash,
    /// A source dies and comes back.
    SourceCrash(usize),
    /// Somebody asks a source for a snapshot, says that he lives, and takes nothing of it, or
    /// all without ever saying what came of it.
    Leech { source: usize, takes: bool },
    /// The restorer is closed, and another one is made.
    Close,
}

#[derive(Debug)]
pub struct Plan {
    pub options: Options,
    pub queue_within: Duration,
    pub odds: Odds,
    pub bugs: [Option<Bug>; SOURCES],
    pub rows: Vec<Arc<Vec<Row>>>,
    pub steps: Vec<(Duration, Step)>,
    pub latency_ms: u64,
}

pub fn peer(source: usize) -> PeerId {
    PeerId::new(["first", "second"].get(source).copied().unwrap_or("nobody"))
}

pub fn snapshot(id: u128, epoch: u64) -> SnapshotRef {
    let applied = u64::try_from(id).unwrap_or(0) * 10;
    SnapshotRef::new("space", SnapshotId(id), &["a", "b"]).at(Epoch(epoch), applied)
}

impl Plan {
    pub fn draw(random: &mut Random) -> Self {
        let calm = random.chance(1, 4);
        let mut odd = |parts: u64| {
            let on = !calm && random.chance(1, 3);
            if on { random.below(parts) } else { 0 }
        };
        let odds = Odds {
            drop: odd(120),
            double: odd(300),
            reorder: odd(60),
            damage: odd(40),
            cut: odd(40),
            refuse: odd(80),
            panic: odd(60),
            hang: odd(80),
            slow: 0,
            doubt: odd(200),
        };
        let odds = Odds {
            // Slowness within its bounds is no fault, and happens in calm runs, too.
            slow: if random.chance(1, 2) {
                random.below(500)
            } else {
                0
            },
            ..odds
        };
        let bugs =
            [(); SOURCES].map(|()| (!calm && random.chance(1, 4)).then(|| *pick(random, &BUGS)));
        Self {
            options: options(random),
            queue_within: Duration::from_secs(30),
            odds,
            bugs,
            rows: (0..SNAPSHOTS).map(|_| Arc::new(rows(random))).collect(),
            steps: steps(random),
            latency_ms: 1 + random.below(200),
        }
    }
}

pub fn pick<'a, T>(random: &mut Random, from: &'a [T]) -> &'a T {
    from.get(random.index(from.len()))
        .expect("an index below the length")
}

/// Shorter than in life, in the same proportions.
fn options(random: &mut Random) -> Options {
    let mut options = Options::default()
        .with_chunk_bytes(1 + u32::try_from(random.below(120)).unwrap_or(0))
        .with_window_bytes(1 + random.below(400))
        .with_reconnects(u32::try_from(random.below(3)).unwrap_or(0));
    options.open_within = Duration::from_secs(8);
    options.connect_within = Duration::from_secs(3);
    options.first_frame_within = Duration::from_secs(3);
    options.idle = Duration::from_secs(4);
    options.taken_within = Duration::from_secs(12);
    options.outcome_within = Duration::from_secs(50);
    options.load_within = Duration::from_secs(8);
    options.hold_within = Duration::from_secs(15);
    options.commit_within = Duration::from_secs(20);
    options.repeat_every = Duration::from_millis(700);
    options.reconnect_after = Duration::from_millis(50);
    options.rate_min = 1;
    options.rate_span = Duration::from_secs(25);
    options.tombstone = Duration::from_secs(8);
    options.checkpoint_bytes = 1 + random.below(300);
    options.limit_counting = random.chance(1, 2);
    options
}

fn rows(random: &mut Random) -> Vec<Row> {
    let count = random.below(14);
    let mut rows: Vec<_> = (0..count)
        .map(|_| {
            let keyspace = u16::try_from(random.below(2)).unwrap_or(0);
            let key = Bytes::copy_from_slice(&random.below(1_000).to_be_bytes());
            let mut value = vec![0; random.index(30)];
            random.fill(&mut value);
            let value = value.into();
            let entry = Entry { key, value };
            Row { keyspace, entry }
        })
        .collect();
    rows.sort_by(|left, right| place(left).cmp(&place(right)));
    rows.dedup_by(|left, right| place(left) == place(right));
    rows
}

fn place(row: &Row) -> (u16, &Bytes) {
    (row.keyspace, &row.entry.key)
}

fn steps(random: &mut Random) -> Vec<(Duration, Step)> {
    let mut now = 0;
    let count = 1 + random.index(6);
    let mut steps = vec![(Duration::ZERO, request(random))];
    for _ in 1..count {
        let pause = *pick(random, &[100, 1_000, 12_000]);
        now += random.below(pause);
        let step = match random.below(21) {
            0..7 => request(random),
            7..11 => Step::Repeat,
            11..13 => Step::Cancel,
            13 => Step::Commit,
            14..16 => Step::Drop,
            16 => Step::Crash,
            17 | 18 => Step::SourceCrash(random.index(SOURCES)),
            19 => Step::Leech {
                source: random.index(SOURCES),
                takes: random.chance(1, 2),
            },
            _ => Step::Close,
        };
        steps.push((Duration::from_millis(now), step));
    }
    steps
}

fn request(random: &mut Random) -> Step {
    let first = random.index(SOURCES);
    Step::Request {
        snapshot: 1 + u128::from(random.below(3)),
        epoch: 1 + random.below(3),
        sources: [first, 1 - first],
        count: 1 + random.index(SOURCES),
        hold: random.chance(1, 4),
    }
}
