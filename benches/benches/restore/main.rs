//! A gigabyte of rows of the size of a lease, moved over loopback from one store to another.
//!
//! Beside ours stand, on the same rows and in the same run:
//! - `bare`: RocksDB's writer of sorted files, which gets the rows from memory. It is what a
//!   receiver can't be faster than. A second time beside a thread that keeps the other core
//!   busy, as the source does beside ours.
//! - `files`: the engine's files, copied and synced.
//! - `stop and wait`: a chunk, its rows written as one plain batch without a log, an answer,
//!   the next chunk, as BifroMQ moves a range; once in its favour, and once with the delete of
//!   each row before its put that it does.
//!
//! The source is a process of its own, so that the CPU seconds of both ends are known.
//! `POP_BENCH_ROWS` says how many rows (4,700,000 of 220 bytes else), `POP_BENCH_VALUE` how
//! long a value is, `POP_BENCH_BACKENDS` which stores take part, `POP_BENCH_ONLY` which half
//! is measured: `speed` or `bounds`.

mod bounds;
mod line;
mod peers;
mod rows;
mod source;

use std::{
    fs,
    path::Path,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
};

use kv_restore::{
    Admission, Limiter, Options, PeerId, Restorer, RestorerOptions, Session, Target,
    transport::Transport,
};
use pop_benches::{backends, cpu_seconds, now, open_with};
use pop_store::Store;
use tokio::runtime::{Builder, Handle, Runtime};

use self::{
    line::Loopback,
    rows::{KEYSPACES, SEALS},
    source::{Source, snapshot_ref},
};

/// That of the broker.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() {
    let runtime = Runtime::new().expect("a runtime starts");
    if let Some((backend, folder)) = source::asked_to_serve() {
        return runtime.block_on(source::serve(&backend, &folder));
    }
    let base = tempfile::tempdir().expect("a temporary folder");
    let chosen = std::env::var("POP_BENCH_BACKENDS").unwrap_or_default();
    let chosen = |it: &&str| chosen.is_empty() || chosen.split(',').any(|one| one == *it);
    let only = std::env::var("POP_BENCH_ONLY").unwrap_or_default();
    for backend in backends()
        .into_iter()
        .filter(|it| *it != "memory")
        .filter(chosen)
    {
        let base = base.path().join(backend);
        let from = base.join("from");
        source::fill(backend, &from);
        if only != "speed" {
            bounds::measure(&runtime, backend, &base, &from);
        }
        if only != "bounds" {
            compare(&runtime, backend, &base, &from);
        }
        fs::remove_dir_all(&base).expect("it is there");
    }
}

/// Asks for the snapshot of the source.
fn start(
    store: Arc<dyn Store>,
    transport: Arc<dyn Transport>,
    options: Options,
    limiter: Limiter,
) -> (Restorer, Session) {
    let numbers = AtomicU64::new(1);
    let chance = Arc::new(move || numbers.fetch_add(1, Ordering::Relaxed));
    let restorer = Restorer::new(
        Target::new(store).with_seals(SEALS),
        transport,
        RestorerOptions::new(Admission::new(1), chance)
            .with_session(options)
            .with_limiter(limiter),
        transfers(),
    );
    let session = restorer.restore(snapshot_ref(), &[PeerId::new("source")]);
    (restorer, session.expect("it can be asked for"))
}

/// Where transfers run, as in the broker: behind those who wait for answers.
fn transfers() -> Handle {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    let runtime = RUNTIME.get_or_init(|| {
        Builder::new_multi_thread()
            .worker_threads(1)
            .on_thread_start(pop_store::run_in_background)
            .enable_all()
            .build()
            .expect("a runtime starts")
    });
    runtime.handle().clone()
}

async fn restore(source: &Source, store: Arc<dyn Store>) {
    let transport = Arc::new(Loopback(source.ours));
    let (_restorer, session) = start(store, transport, Options::default(), Limiter::none());
    let installed = session.outcome().await.expect("it is installed");
    assert_eq!(installed.seal.totals.rows(), rows::count());
}

#[expect(clippy::print_stdout, reason = "a benchmark says what it measured")]
fn row(backend: &str, name: &str, note: String) {
    println!("restore/{backend:<8} {name:<28} {note}");
}

#[expect(clippy::cast_precision_loss, reason = "a rate")]
fn measure(backend: &str, name: &str, source: Option<&Source>, work: impl FnOnce() -> String) {
    let (begun, cpu) = (now(), cpu_seconds());
    let theirs = source.map_or(0.0, Source::cpu_seconds);
    let note = work();
    let of_source = source.map_or(0.0, Source::cpu_seconds) - theirs;
    let (seconds, cpu) = (begun.elapsed().as_secs_f64(), cpu_seconds() - cpu);
    let all = rows::bytes() as f64 / 1e6;
    row(
        backend,
        name,
        format!(
            "{seconds:>6.2} s {:>6.0} MB/s, CPU {cpu:.2} s here ({:.0} MB a second of it), {of_source:.2} s at the source{note}",
            all / seconds,
            all / cpu.max(0.01),
        ),
    );
}

/// Seconds, and CPU seconds of this thread, while another one is as busy as the source is
/// beside a target: two processors are often one core, and each is slower then.
#[cfg(feature = "rocksdb")]
fn beside_another_thread(work: impl FnOnce()) -> (f64, f64) {
    use std::sync::atomic::AtomicBool;

    use pop_benches::cpu_seconds_of;

    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let bytes = vec![7_u8; 1 << 20];
            while !is_over.load(Ordering::Relaxed) {
                std::hint::black_box(bytes.iter().map(|it| u64::from(*it)).sum::<u64>());
            }
        });
        let (begun, cpu) = (now(), cpu_seconds_of("thread-self"));
        work();
        is_over.store(true, Ordering::Relaxed);
        let cpu = cpu_seconds_of("thread-self") - cpu;
        (begun.elapsed().as_secs_f64(), cpu)
    })
}

fn compare(runtime: &Runtime, backend: &str, base: &Path, from: &Path) {
    let source = Source::at_rest(backend, from, Options::default().window_bytes);
    let to = base.join("to");
    let target = open_with(backend, &to, &KEYSPACES);
    measure(backend, "ours", Some(&source), || {
        runtime.block_on(restore(&source, Arc::clone(&target)));
        format!(" ({} MB of files)", peers::bytes_in(&to) / 1_000_000)
    });
    runtime.block_on(target.close()).expect("it closes");
    drop(target);
    fs::remove_dir_all(&to).expect("it is there");
    #[cfg(feature = "rocksdb")]
    if backend == "rocksdb" {
        for (name, deletes_first) in [("stop and wait", false), ("the same, deletes first", true)] {
            measure(backend, name, Some(&source), || {
                runtime.block_on(peers::stop_and_wait(source.plain, &to, deletes_first));
                String::new()
            });
            fs::remove_dir_all(&to).expect("it is there");
        }
        let bytes = rows::value_bytes();
        let all: Vec<_> = (0..rows::count())
            .map(|it| (rows::key(it), rows::value(it, bytes)))
            .collect();
        fs::create_dir_all(&to).expect("it is made");
        measure(backend, "bare", None, || {
            peers::bare(&to, &all);
            String::new()
        });
        fs::remove_dir_all(&to).expect("it is there");
        fs::create_dir_all(&to).expect("it is made");
        let (seconds, cpu) = beside_another_thread(|| peers::bare(&to, &all));
        let note = format!("{seconds:>6.2} s, CPU {cpu:.2} s of its thread");
        row(backend, "bare, the other core busy", note);
        fs::remove_dir_all(&to).expect("it is there");
    }
    drop(source);
    measure(backend, "files", None, || {
        let bytes = peers::copy(from, &to);
        format!(" ({} MB of files)", bytes / 1_000_000)
    });
    fs::remove_dir_all(&to).expect("it is there");
}
