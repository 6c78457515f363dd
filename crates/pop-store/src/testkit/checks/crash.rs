//! Kills: a child process works until it is killed, and its parent reads what is left.
//!
//! The child is this very test, started again with a folder in its environment. It
//! reports every answered step on its standard output; what the parent read there must
//! have happened. A kill leaves the page cache alone: what a power cut takes is beyond
//! a process, and no check here proves a sync.

use std::{
    fmt::Display,
    io::{BufRead, BufReader, Write},
    process::{Child, ChildStdout, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::task::JoinSet;

use super::{
    A, B, C, Kit, StoreFactory, all, bytes, commit, entry, get,
    replace::{begin, load, publish, refuses},
};
use crate::{
    Durability, Entry, Store, WriteBatch,
    testkit::{
        Random,
        kit::{CRASH_FOLDER, FORKS},
    },
};

// Before each report, since the test harness writes to the same pipe.
const REPORT: &str = "pop-store-kit:";
const ROUNDS: u64 = 6;
const WRITERS: usize = 4;
// Rows of `A` that a writer keeps; older ones it deletes.
const KEPT: u64 = 40;
// How long after a report the kill may come: about as long as a publish takes.
const KILL_MICROS_MAX: u64 = 6_000;
// The child ends by itself if nobody kills it.
const STEPS_MAX: u64 = 100_000;

/// After a kill: all that was synced, each batch whole, and a prefix of the commit order.
///
/// Four writers number their batches. Each batch carries the numbers that all writers had
/// been answered when it began: if it survived, those must have survived.
// Catches: `Synced` answered before the write, keyspaces recovered apart, a log cut or
// skipped in its middle, a torn record taken for a whole one.
pub async fn a_kill_loses_nothing_synced_and_leaves_no_hole<F: StoreFactory>(kit: &Kit<F>) {
    if kit.is_child() {
        return write_until_killed(kit).await;
    }
    let mut random = Random::new(11);
    let mut floor = [0; WRITERS];
    for round in 0..ROUNDS {
        let reports = kill_child(kit, 1 + random.below(150), &mut random).await;
        let mut synced = floor;
        for report in &reports {
            let [writer, n, is_synced] = numbers(report);
            if is_synced == 1 {
                let writer = usize::try_from(writer).expect("a writer's number is small");
                synced[writer] = synced[writer].max(n);
            }
        }
        let store = kit.open().await;
        let survived = survivors(&store).await;
        check_rows(&store, &survived).await;
        for writer in 0..WRITERS {
            assert!(
                survived[writer] >= synced[writer],
                "round {round}: writer {writer} was told that {} is synced, {} is there",
                synced[writer],
                survived[writer]
            );
        }
        floor = survived;
        store.close().await.expect("the store closes");
    }
}

async fn write_until_killed<F: StoreFactory>(kit: &Kit<F>) {
    let store = Arc::new(kit.open().await);
    let answered = Arc::new(survivors(&*store).await.map(AtomicU64::new));
    let mut writers = JoinSet::new();
    for writer in 0..WRITERS {
        let store = Arc::clone(&store);
        let answered = Arc::clone(&answered);
        writers.spawn(async move {
            let first = answered[writer].load(Ordering::SeqCst) + 1;
            for n in first..first + STEPS_MAX {
                let clock = [0, 1, 2, 3].map(|it: usize| answered[it].load(Ordering::SeqCst));
                let synced = n % 5 == 0;
                let durability = if synced {
                    Durability::Synced
                } else {
                    Durability::Buffered
                };
                let answer = store.write(numbered(writer, n, clock), durability).await;
                answer.expect("the write is committed");
                answered[writer].store(n, Ordering::SeqCst);
                report(format_args!("{writer} {n} {}", u8::from(synced)));
            }
        });
    }
    while writers.join_next().await.is_some() {}
}

/// Batch `n` of a writer: its row in `A` and `B`, its number in `C`, an old row deleted.
fn numbered(writer: usize, n: u64, clock: [u64; WRITERS]) -> WriteBatch {
    let mut value: Vec<u8> = clock.iter().flat_map(|it| it.to_be_bytes()).collect();
    value.resize(
        value.len() + usize::try_from(n % 7 * 300).expect("small"),
        7,
    );
    let mut batch = WriteBatch::new();
    batch
        .put(A, row_key(writer, n), bytes(&value))
        .put(B, row_key(writer, n), bytes(&value))
        .put(C, row_key(writer, 0), bytes(n.to_be_bytes()))
        .delete(A, row_key(writer, n.saturating_sub(KEPT)));
    batch
}

fn row_key(writer: usize, n: u64) -> bytes::Bytes {
    bytes([(writer as u64).to_be_bytes(), n.to_be_bytes()].concat())
}

async fn survivors<S: Store>(store: &S) -> [u64; WRITERS] {
    let mut survived = [0; WRITERS];
    for (writer, last) in survived.iter_mut().enumerate() {
        if let Some(value) = get(store, C, row_key(writer, 0)).await {
            *last = word(&value, 0);
        }
    }
    survived
}

/// Checks that exactly the rows of the surviving batches are there, and no later cause.
async fn check_rows<S: Store>(store: &S, survived: &[u64; WRITERS]) {
    let mut kept = Vec::new();
    let mut written = Vec::new();
    for (writer, last) in survived.iter().enumerate() {
        written.extend((1..=*last).map(|n| row_key(writer, n)));
        let oldest = last.saturating_sub(KEPT) + 1;
        kept.extend((oldest..=*last).map(|n| row_key(writer, n)));
    }
    let keys = |rows: &[Entry]| -> Vec<_> { rows.iter().map(|it| it.key.clone()).collect() };
    let rows = all(store, B).await;
    assert_eq!(keys(&rows), written, "{B} has each batch up to the last");
    assert_eq!(keys(&all(store, A).await), kept, "{A} has the newest rows");
    for row in rows {
        for (writer, last) in survived.iter().enumerate() {
            assert!(
                word(&row.value, writer) <= *last,
                "a batch survived and one answered before it began did not: {} of writer \
                 {writer}, whose last is {last}",
                word(&row.value, writer)
            );
        }
    }
}

/// After a kill while loading or around publish: the old content or the new one, whole.
// Catches: a switch record written before its content, content of two generations mixed,
// a half-loaded staging that shows or that keeps its slot.
pub async fn a_kill_around_a_replace_leaves_the_old_or_the_new_content<F: StoreFactory>(
    kit: &Kit<F>,
) {
    if kit.is_child() {
        return replace_until_killed(kit).await;
    }
    let store = kit.open().await;
    if refuses(&store).await {
        return;
    }
    publish_generation(&store, 0, |_| {}).await;
    store.close().await.expect("the store closes");
    drop(store);

    let mut random = Random::new(13);
    for round in 0..ROUNDS {
        let steps = 1 + random.below(3 * STEPS_PER_GENERATION);
        let reports = kill_child(kit, steps, &mut random).await;
        let [mut begun, mut published] = [0; 2];
        for report in &reports {
            let [generation, is_published, _step] = numbers(report);
            begun = begun.max(generation);
            if is_published == 1 {
                published = published.max(generation);
            }
        }
        let store = kit.open().await;
        let generation = generation(&store).await;
        assert!(
            (published..=begun).contains(&generation),
            "round {round}: {generation} is there, {published} was published, {begun} begun"
        );
        for keyspace in [A, B] {
            assert!(
                all(&store, keyspace).await == content(generation),
                "round {round}: {keyspace} has generation {generation}, whole and alone"
            );
        }
        // Nothing of the staging that was killed is in the next one, nor in its way.
        publish_generation(&store, generation, |_| {}).await;
        assert!(all(&store, A).await == content(generation));
        assert_eq!(get(&store, C, "untouched").await, Some(bytes("yes")));
        store.close().await.expect("the store closes");
    }
}

const CONTENT_ROWS: u64 = 24;
const CONTENT_ROWS_PER_LOAD: usize = 8;
const STEPS_PER_GENERATION: u64 = 2 * CONTENT_ROWS / CONTENT_ROWS_PER_LOAD as u64 + 2;

async fn replace_until_killed<F: StoreFactory>(kit: &Kit<F>) {
    let store = kit.open().await;
    let first = generation(&store).await + 1;
    for generation in first..first + STEPS_MAX {
        publish_generation(&store, generation, |step| {
            report(format_args!("{generation} 0 {step}"));
        })
        .await;
        report(format_args!("{generation} 1 {STEPS_PER_GENERATION}"));
    }
}

async fn publish_generation<S: Store>(store: &S, generation: u64, mut step: impl FnMut(u64)) {
    commit(store, super::puts([(C, "untouched", "yes")])).await;
    step(0);
    let mut staging = begin(store, &[A, B]).await;
    let mut steps = 1;
    for rows in content(generation).chunks(CONTENT_ROWS_PER_LOAD) {
        for keyspace in [A, B] {
            load(&mut staging, keyspace, rows.to_vec()).await;
            step(steps);
            steps += 1;
        }
    }
    publish(staging).await;
}

/// The rows of a generation. Keys are those of every generation, so that a mix shows.
fn content(generation: u64) -> Vec<Entry> {
    let value = [&generation.to_be_bytes()[..], &[7; 3_000]].concat();
    (0..CONTENT_ROWS)
        .map(|n| entry(n.to_be_bytes(), &value))
        .collect()
}

async fn generation<S: Store>(store: &S) -> u64 {
    let value = get(store, A, 0_u64.to_be_bytes()).await;
    word(&value.expect("some generation is there"), 0)
}

/// Starts this test again as a child and kills it some moments after so many reports. The
/// answer is all of its reports, also those it made between the last one read and the kill.
async fn kill_child<F: StoreFactory>(
    kit: &Kit<F>,
    reports: u64,
    random: &mut Random,
) -> Vec<String> {
    let (mut child, stdout) = spawn(kit);
    let mut read = Vec::new();
    for line in stdout.lines() {
        let line = line.expect("reports are text");
        let Some((_, report)) = line.split_once(REPORT) else {
            continue;
        };
        read.push(report.to_owned());
        if read.len() as u64 == reports {
            // A kill right at a report would always hit the same step of the store.
            let moments = Duration::from_micros(random.below(KILL_MICROS_MAX));
            tokio::time::sleep(moments).await;
            child.0.kill().expect("the child is killed");
        }
    }
    assert!(
        read.len() as u64 >= reports,
        "the child ended by itself after {} of {reports} reports; its errors are above",
        read.len()
    );
    read
}

fn spawn<F: StoreFactory>(kit: &Kit<F>) -> (Killed, BufReader<ChildStdout>) {
    let program = std::env::current_exe().expect("a test has a program");
    let _forking = FORKS.write();
    let child = Command::new(program)
        .args([kit.test(), "--exact", "--nocapture", "--test-threads=1"])
        .env(CRASH_FOLDER, kit.folder())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the test starts itself again as a child");
    let mut child = Killed(child);
    let stdout = child.0.stdout.take().expect("it is piped");
    let mut stdout = BufReader::new(stdout);
    // The system tells the parent of the new program before it has closed the files of the
    // old one. Once the program says its first word, it has.
    let first = stdout.read_line(&mut String::new());
    first.expect("the harness says something");
    (child, stdout)
}

/// A child that doesn't outlive its check, whichever way that ends.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        // It may be dead already, which is what is wanted.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Tells the parent. Past the test harness's capture, and in one piece; without a parent
/// the pipe breaks and the child ends.
fn report(words: impl Display) {
    let line = format!("{REPORT} {words}\n");
    let mut stdout = std::io::stdout().lock();
    stdout
        .write_all(line.as_bytes())
        .and_then(|()| stdout.flush())
        .expect("the parent reads");
}

fn numbers<const N: usize>(report: &str) -> [u64; N] {
    let numbers: Vec<u64> = report
        .split_whitespace()
        .map(|word| word.parse().expect("a report has numbers"))
        .collect();
    numbers
        .try_into()
        .unwrap_or_else(|other: Vec<_>| panic!("a report has {N} numbers: {other:?}"))
}

/// The big-endian word number `index` of a value.
fn word(value: &[u8], index: usize) -> u64 {
    let words = value.chunks_exact(8);
    let word = words.into_iter().nth(index).expect("a value has its words");
    u64::from_be_bytes(word.try_into().expect("a word has 8 bytes"))
}
