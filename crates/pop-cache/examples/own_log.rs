//! A queue over a log of one's own: a text file, a message a line.
//!
//! `cargo run -p pop-cache --example own_log -- FOLDER --crash` hands out six of ten
//! messages, acknowledges four, and dies with two out. Run again without `--crash`, it gets
//! exactly what was not acknowledged: the two, and the four that nobody had yet.
//! With `--forget` it forgets the first message that it gets: when the time of that is up,
//! [`RetrySink::revive`] appends it once more, and it comes as the last.

#![allow(clippy::print_stdout, reason = "an example prints what it shows")]

use std::{
    fs::{File, OpenOptions},
    hash::{BuildHasher, RandomState},
    io::{Read, Write},
    path::Path,
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use parking_lot::Mutex;
use pop_cache::{
    CacheOptions, Foundation, LeaseCache, RetrySink, Revival, RevivalKind, SinkError, Subscribe,
    Terms,
};
use pop_model::{
    Checkpoint, Clock, GroupId, Incarnation, LeaseTime, LogBounds, Offset, QueueId, StartPosition,
    SubscriptionQueue, SystemClock, TopicId,
};
use pop_store::{
    Durability, Durable, FjallStore, Outcome, Store, WriteBatch,
    table::{DueSchedule, KEYSPACES, meta},
};

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// A file of lines. The offset of a message is the number of its line.
#[derive(Debug)]
struct TextLog(Mutex<(File, Vec<String>)>);

impl TextLog {
    fn open(path: &Path) -> Result<Self, Failure> {
        let options = OpenOptions::new()
            .read(true)
            .append(true)
            .create(true)
            .open(path);
        let mut file = options?;
        let mut text = String::new();
        file.read_to_string(&mut text)?;
        let lines = text.lines().map(str::to_owned).collect();
        Ok(Self(Mutex::new((file, lines))))
    }

    fn append(&self, message: &str) -> Result<(), Failure> {
        let (file, lines) = &mut *self.0.lock();
        file.write_all(format!("{message}\n").as_bytes())?;
        file.sync_data()?;
        lines.push(message.to_owned());
        Ok(())
    }

    fn read(&self, offset: Offset) -> Option<String> {
        let line = usize::try_from(offset.get()).ok()?;
        self.0.lock().1.get(line).cloned()
    }

    fn bounds(&self) -> LogBounds {
        LogBounds {
            start: Offset::ZERO,
            end: Offset::new(self.0.lock().1.len() as u64),
        }
    }
}

/// What is not acknowledged in time is appended once more. A crash between that and the end
/// of the old delivery repeats it, and never loses it.
#[async_trait]
impl RetrySink for TextLog {
    type Token = ();

    async fn revive(&self, due: &Checkpoint) -> Result<Revival<()>, SinkError> {
        let kind = match self.read(due.identity.offset) {
            Some(message) => {
                self.append(&message)?;
                RevivalKind::Retried
            }
            None => RevivalKind::Gone,
        };
        let writes = WriteBatch::new();
        Ok(Revival {
            kind,
            writes,
            token: (),
        })
    }

    fn settled(&self, _due: &Checkpoint, _token: Durable<()>) {}

    fn unsettled(&self, _due: &Checkpoint, _token: (), _outcome: Outcome) {}
}

/// Opens the store, and a cache on it for this run.
async fn open(
    folder: &Path,
    log: &Arc<TextLog>,
) -> Result<(LeaseCache<TextLog>, Arc<dyn Clock>), Failure> {
    let options = pop_store::OpenOptions::new(&KEYSPACES).with_free_bytes_min(0);
    let store = FjallStore::open(folder.join("store"), options)?;
    let clock = Arc::new(SystemClock::resume(meta::lease_clock_mark(&store).await?));
    // A run has a name of its own, which is durable before anything is handed out.
    let previous = meta::incarnation(&store).await?;
    let incarnation = Incarnation::new(RandomState::new().hash_one("a run"));
    let mut batch = WriteBatch::new();
    meta::put_incarnation(&mut batch, incarnation);
    meta::put_lease_clock_mark(&mut batch, clock.lease());
    store.write(batch, Durability::Synced).await?;
    let on = Foundation {
        store: Arc::new(store),
        clock: Arc::clone(&clock) as Arc<dyn Clock>,
        due: DueSchedule::restore(|_| LeaseTime::ZERO),
        quarantine: Arc::default(),
        sink: Arc::clone(log),
        incarnation,
        previous,
    };
    Ok((LeaseCache::new(on, CacheOptions::default()), clock))
}

/// What becomes of the messages that a consumer gets.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Consumer {
    /// It acknowledges each.
    Diligent,
    /// It dies with the fifth.
    Dies,
    /// It does nothing about the first, and acknowledges each after that.
    Forgets,
}

/// Gets what there is, six at a time, until nothing is out.
pub(crate) async fn consume(folder: &Path, consumer: Consumer) -> Result<(), Failure> {
    std::fs::create_dir_all(folder)?;
    let log = Arc::new(TextLog::open(&folder.join("log.txt"))?);
    for number in log.bounds().end.get()..10 {
        log.append(&format!("message {number}"))?;
    }
    let (cache, clock) = open(folder, &log).await?;
    let runs = cache.clone();
    let running = tokio::spawn(async move { runs.run(std::future::pending()).await });

    let bounds = log.bounds();
    let queue = SubscriptionQueue {
        group: GroupId::new(1),
        topic: TopicId::new(1),
        queue: QueueId::new(0),
    };
    let start = StartPosition::Earliest;
    let subscribe = Subscribe {
        queue,
        bounds,
        found_end: bounds.end,
        start,
        ordered: false,
    };
    let cached = cache.subscribe(subscribe).await?;
    let mut forgets = consumer == Consumer::Forgets;
    loop {
        // Looked at first: what is over by now was appended once more before.
        let is_over = cached.look(|leases| leases.counts().in_memory() == 0);
        let count = if forgets { 1 } else { 6 };
        let mut reserved = cache.reserve(&cached, count, log.bounds())?;
        if reserved.is_empty() && is_over {
            return Ok(());
        }
        if running.is_finished() {
            return Ok(running.await??);
        }
        if reserved.is_empty() {
            tokio::time::sleep(Duration::from_millis(20)).await;
            continue;
        }
        let offsets = reserved.offsets().to_vec();
        let terms = Terms {
            now: clock.lease(),
            invisible_for: Duration::from_millis(if forgets { 100 } else { 30_000 }),
            attempt: 1,
            attempt_id: None,
            auto_renew: false,
        };
        for (number, lease) in reserved.lease(&offsets, &terms).await?.iter().enumerate() {
            let message = log.read(lease.identity.offset).unwrap_or_default();
            println!("got {message}");
            if consumer == Consumer::Dies && number == 4 {
                std::process::abort();
            }
            if std::mem::take(&mut forgets) {
                continue;
            }
            cache
                .ack(&cached, &lease.identity, Durability::Synced)
                .await?;
            println!("done {message}");
        }
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    let mut args = std::env::args().skip(1);
    let folder = args
        .next()
        .ok_or("usage: own_log FOLDER [--crash | --forget]")?;
    let consumer = match args.next().as_deref() {
        None => Consumer::Diligent,
        Some("--crash") => Consumer::Dies,
        Some("--forget") => Consumer::Forgets,
        Some(other) => return Err(format!("{other} is neither --crash nor --forget").into()),
    };
    consume(Path::new(&folder), consumer).await
}
