//! A gigabyte of rows of the size of a lease, moved over loopback from one store to another.
//!
//! Beside ours stand, on the same rows and in the same run:
//! - `bare`: RocksDB's writer of sorted files, which gets the rows from memory. It is what a
//!   receiver can't be faster than.
//! - `files`: the engine's files, copied and synced.
//! - `stop and wait`: a chunk, its rows written as one plain batch, an answer, the next chunk,
//!   as BifroMQ moves a range; in its favour without a log, and without the delete of each
//!   row before its put.
//!
//! The source is a process of its own, so that the CPU seconds of both ends are known.
//! `POP_BENCH_ROWS` says how many rows (4,700,000 of 220 bytes else), `POP_BENCH_VALUE` how
//! long a value is, `POP_BENCH_BACKENDS` which stores take part.

use std::{
    fs::{self, File},
    io::{BufRead, BufReader, Read},
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use bytes::{BufMut, Bytes, BytesMut};
use kv_restore::{
    Admission, Dumper, Limiter, Options, PeerId, Restorer, RestorerOptions, SnapshotId,
    SnapshotRef, StreamId, Target,
    transport::{Channel, Transport, TransportError, framed},
};
use pop_benches::{backends, cpu_seconds, cpu_seconds_of, now, open_with};
use pop_store::{Durability, Keyspace, Scan, Store, WriteBatch};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    runtime::Runtime,
};

/// That of the broker.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const ROWS: Keyspace = Keyspace::new("rows");
const SEALS: Keyspace = Keyspace::new("seals");
const KEY_BYTES: usize = 40;
const ROWS_DEFAULT: u64 = 4_700_000;
const VALUE_DEFAULT: usize = 180;
const CHUNK_BYTES: usize = 1 << 20;
const ROWS_A_BATCH: u64 = 500;
const SERVE: &str = "POP_BENCH_SERVE";
const FOLDER: &str = "POP_BENCH_FOLDER";

fn number(name: &str, otherwise: u64) -> u64 {
    let text = std::env::var(name).ok();
    text.map_or(otherwise, |it| it.parse().expect("a number"))
}

fn rows() -> u64 {
    number("POP_BENCH_ROWS", ROWS_DEFAULT)
}

fn value_bytes() -> usize {
    usize::try_from(number("POP_BENCH_VALUE", VALUE_DEFAULT as u64)).expect("it is small")
}

/// A moment, a group and a topic, a queue and an offset, in the order of the moments.
fn key(row: u64) -> Bytes {
    let mut key = BytesMut::with_capacity(KEY_BYTES);
    key.put_u64(1_700_000_000_000 + row / 4);
    key.put_slice(b"billing@orders@eu---");
    key.put_u32(u32::try_from(row % 4).expect("it is small"));
    key.put_u64(row / 4);
    key.freeze()
}

/// Text with numbers in it, about half of which compresses away.
fn value(row: u64, bytes: usize) -> Bytes {
    let mut text = String::with_capacity(bytes + 64);
    text.push_str("{\"broker\":\"broker-a\",\"group\":\"billing\",\"topic\":\"orders\"");
    let mut state = row.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    while text.len() < bytes {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        text.push_str(&format!(",\"f\":{state}"));
    }
    text.truncate(bytes);
    text.into()
}

fn megabytes() -> f64 {
    rows() as f64 * (KEY_BYTES + value_bytes()) as f64 / 1e6
}

async fn fill(store: &dyn Store) {
    let bytes = value_bytes();
    for first in (0..rows()).step_by(usize::try_from(ROWS_A_BATCH).expect("it is small")) {
        let mut batch = WriteBatch::new();
        for row in first..(first + ROWS_A_BATCH).min(rows()) {
            batch.put(ROWS, key(row), value(row, bytes));
        }
        let written = store.write(batch, Durability::Buffered).await;
        written.expect("the store takes rows");
    }
}

/// The way to a source over loopback.
struct Loopback(SocketAddr);

#[async_trait]
impl Transport for Loopback {
    async fn connect(&self, _: &PeerId, _: StreamId) -> Result<Channel, TransportError> {
        let stream = TcpStream::connect(self.0).await?;
        stream.set_nodelay(true)?;
        let (read, write) = stream.into_split();
        Ok(framed(read, write))
    }
}

fn snapshot_ref() -> SnapshotRef {
    SnapshotRef::new("space", SnapshotId(1), &[ROWS.name()])
}

/// Serves the content of a folder in both ways until its input ends.
#[expect(clippy::print_stdout, reason = "tells the parent where it listens")]
async fn serve(backend: &str, folder: &Path) {
    let store = open_with(backend, folder, &[ROWS, SEALS]);
    let dumper = Dumper::new(Options::default(), Admission::new(4), Limiter::none());
    let snapshot = store.snapshot().await.expect("it has snapshots");
    let offer = dumper.offer(snapshot_ref(), store.as_ref(), snapshot);
    let _offer = offer.expect("nothing else is on offer");
    let ours = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await;
    let ours = ours.expect("a port is free");
    let plain = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await;
    let plain = plain.expect("a port is free");
    let port = |it: &TcpListener| it.local_addr().expect("it is bound").port();
    println!("{} {}", port(&ours), port(&plain));
    tokio::spawn(async move {
        while let Ok((stream, _)) = ours.accept().await {
            stream.set_nodelay(true).expect("it is a socket");
            let (read, write) = stream.into_split();
            let peer = PeerId::new("target");
            dumper.serve(&peer, framed(read, write)).await;
        }
    });
    let chunks = Arc::clone(&store);
    tokio::spawn(async move {
        while let Ok((stream, _)) = plain.accept().await {
            send_and_wait(chunks.as_ref(), stream).await;
        }
    });
    let ended = tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new()));
    let _ = ended.await;
}

/// A chunk, an answer, the next chunk; an empty one at the end.
async fn send_and_wait(store: &dyn Store, mut stream: TcpStream) {
    stream.set_nodelay(true).expect("it is a socket");
    let mut scan = Scan::all().with_entries_max(CHUNK_BYTES / (KEY_BYTES + value_bytes()));
    loop {
        let entries = store.scan(ROWS, scan.clone()).await.expect("it reads");
        let mut chunk = BytesMut::new();
        for entry in &entries {
            for part in [&entry.key, &entry.value] {
                chunk.put_u32(u32::try_from(part.len()).expect("it is small"));
                chunk.put_slice(part);
            }
        }
        let length = u32::try_from(chunk.len()).expect("it is small");
        stream.write_u32(length).await.expect("it is taken");
        stream.write_all(&chunk).await.expect("it is taken");
        let Some(last) = entries.last() else {
            return;
        };
        stream.read_u8().await.expect("it is answered");
        scan.start = [last.key.as_ref(), &[0]].concat().into();
    }
}

#[expect(clippy::disallowed_methods, reason = "a benchmark waits for a process")]
fn rest() {
    std::thread::sleep(Duration::from_millis(500));
}

struct Source {
    child: Child,
    ours: SocketAddr,
    #[cfg(feature = "rocksdb")]
    plain: SocketAddr,
}

impl Source {
    /// A source whose engine has come to rest: what it owes to the rows before is not ours.
    fn at_rest(backend: &str, folder: &Path) -> Self {
        let source = Self::start(backend, folder);
        let mut before = f64::NEG_INFINITY;
        loop {
            let after = source.cpu_seconds();
            if after - before < 0.02 {
                return source;
            }
            before = after;
            rest();
        }
    }

    fn start(backend: &str, folder: &Path) -> Self {
        let program = std::env::current_exe().expect("it runs");
        let mut child = Command::new(program)
            .env(SERVE, backend)
            .env(FOLDER, folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a source starts");
        let mut line = String::new();
        let output = child.stdout.take().expect("it is piped");
        let read = BufReader::new(output).read_line(&mut line);
        read.expect("it says where it listens");
        let ports = line
            .split_whitespace()
            .map(|it| it.parse().expect("a port"));
        let mut ports = ports.map(|it: u16| SocketAddr::from((Ipv4Addr::LOCALHOST, it)));
        let mut port = || ports.next().expect("it says two ports");
        Self {
            child,
            ours: port(),
            #[cfg(feature = "rocksdb")]
            plain: port(),
        }
    }

    fn cpu_seconds(&self) -> f64 {
        cpu_seconds_of(&self.child.id().to_string())
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

async fn restore(from: SocketAddr, store: Arc<dyn Store>) {
    let numbers = AtomicU64::new(1);
    let chance = Arc::new(move || numbers.fetch_add(1, Ordering::Relaxed));
    let restorer = Restorer::new(
        Target::new(store).with_seals(SEALS),
        Arc::new(Loopback(from)),
        RestorerOptions::new(chance),
        tokio::runtime::Handle::current(),
    );
    let session = restorer.restore(snapshot_ref(), &[PeerId::new("source")]);
    let outcome = session.expect("it can be asked for").outcome().await;
    let installed = outcome.expect("it is installed");
    assert_eq!(installed.seal.totals.rows(), rows());
}

#[cfg(feature = "rocksdb")]
mod peers {
    //! What stands beside ours.

    use std::time::Duration;

    use rocksdb::{DB, DBCompressionType, Options, SstFileWriter, WriteBatch, WriteOptions};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    const FILE_BYTES: u64 = 64 << 20;

    fn options() -> Options {
        let mut options = Options::default();
        options.create_if_missing(true);
        options.set_compression_type(DBCompressionType::Lz4);
        options.set_write_buffer_size(64 << 20);
        options
    }

    /// Writes sorted files of rows that are in memory, and syncs them.
    pub(super) fn bare(folder: &Path, rows: &[(Bytes, Bytes)]) {
        let options = options();
        let mut rows = rows.iter().peekable();
        let mut files = 0;
        while rows.peek().is_some() {
            let path = folder.join(format!("{files:04}.sst"));
            let mut writer = SstFileWriter::create(&options);
            writer.open(&path).expect("it is made");
            while writer.file_size() < FILE_BYTES {
                let Some((key, value)) = rows.next() else {
                    break;
                };
                writer.put(key, value).expect("it is taken");
            }
            writer.finish().expect("it is written");
            File::open(&path)
                .and_then(|it| it.sync_all())
                .expect("it is synced");
            files += 1;
        }
    }

    /// The receiver's end of stop and wait.
    pub(super) async fn stop_and_wait(from: SocketAddr, folder: &Path, round_trip: Duration) {
        let database = DB::open(&options(), folder).expect("it opens");
        let mut write = WriteOptions::default();
        write.disable_wal(true);
        let mut stream = TcpStream::connect(from).await.expect("it listens");
        stream.set_nodelay(true).expect("it is a socket");
        let mut count = 0;
        loop {
            let length = stream.read_u32().await.expect("a length");
            if length == 0 {
                break;
            }
            let mut chunk = vec![0; length as usize];
            stream.read_exact(&mut chunk).await.expect("a chunk");
            let mut chunk = Bytes::from(chunk);
            let mut batch = WriteBatch::default();
            while !chunk.is_empty() {
                let mut part = || {
                    let length = chunk.split_to(4);
                    let length = u32::from_be_bytes(length.as_ref().try_into().expect("four"));
                    chunk.split_to(length as usize)
                };
                batch.put(part(), part());
                count += 1;
            }
            database.write_opt(batch, &write).expect("it is taken");
            tokio::time::sleep(round_trip).await;
            stream.write_u8(1).await.expect("it is taken");
        }
        database.flush().expect("it is written");
        assert_eq!(count, rows());
    }
}

/// Copies a folder and syncs each file.
fn copy(from: &Path, to: &Path) -> u64 {
    fs::create_dir_all(to).expect("it is made");
    let mut bytes = 0;
    for entry in fs::read_dir(from).expect("it is there") {
        let entry = entry.expect("it is there");
        let target = to.join(entry.file_name());
        if entry.file_type().expect("it is known").is_dir() {
            bytes += copy(&entry.path(), &target);
            continue;
        }
        bytes += fs::copy(entry.path(), &target).expect("it is copied");
        File::open(&target)
            .and_then(|it| it.sync_all())
            .expect("it is synced");
    }
    bytes
}

#[expect(clippy::print_stdout, reason = "a benchmark says what it measured")]
fn row(name: &str, took: Duration, cpu: f64, of_source: f64, note: &str) {
    let (seconds, all) = (took.as_secs_f64(), megabytes());
    println!(
        "restore/{name:<28} {seconds:>6.2} s {:>6.0} MB/s, CPU {cpu:.2} s here ({:.0} MB a second of it), {of_source:.2} s at the source{note}",
        all / seconds,
        all / cpu.max(0.01),
    );
}

fn measure(name: &str, source: Option<&Source>, work: impl FnOnce() -> String) {
    let (begun, cpu) = (now(), cpu_seconds());
    let theirs = source.map_or(0.0, Source::cpu_seconds);
    let note = work();
    let of_source = source.map_or(0.0, Source::cpu_seconds) - theirs;
    row(name, begun.elapsed(), cpu_seconds() - cpu, of_source, &note);
}

fn main() {
    let runtime = Runtime::new().expect("a runtime starts");
    if let Ok(backend) = std::env::var(SERVE) {
        let folder = PathBuf::from(std::env::var(FOLDER).expect("the parent says"));
        runtime.block_on(serve(&backend, &folder));
        return;
    }
    let base = tempfile::tempdir().expect("a temporary folder");
    let chosen = std::env::var("POP_BENCH_BACKENDS").unwrap_or_default();
    let chosen = |it: &&str| chosen.is_empty() || chosen.split(',').any(|one| one == *it);
    for backend in backends()
        .into_iter()
        .filter(|it| *it != "memory")
        .filter(chosen)
    {
        compare(&runtime, backend, &base.path().join(backend));
    }
}

fn compare(runtime: &Runtime, backend: &str, base: &Path) {
    let from = base.join("from");
    runtime.block_on(async {
        let store = open_with(backend, &from, &[ROWS, SEALS]);
        fill(store.as_ref()).await;
        store.close().await.expect("it closes");
    });
    let source = Source::at_rest(backend, &from);
    let to = base.join("to");
    let target = open_with(backend, &to, &[ROWS, SEALS]);
    measure(&format!("{backend}/ours"), Some(&source), || {
        runtime.block_on(restore(source.ours, Arc::clone(&target)));
        String::new()
    });
    runtime.block_on(target.close()).expect("it closes");
    drop(target);
    fs::remove_dir_all(&to).expect("it is there");
    #[cfg(feature = "rocksdb")]
    if backend == "rocksdb" {
        measure("rocksdb/stop and wait", Some(&source), || {
            runtime.block_on(peers::stop_and_wait(source.plain, &to, Duration::ZERO));
            String::new()
        });
        fs::remove_dir_all(&to).expect("it is there");
        let bytes = value_bytes();
        let all: Vec<_> = (0..rows()).map(|it| (key(it), value(it, bytes))).collect();
        fs::create_dir_all(&to).expect("it is made");
        measure("rocksdb/bare", None, || {
            peers::bare(&to, &all);
            String::new()
        });
        fs::remove_dir_all(&to).expect("it is there");
    }
    drop(source);
    measure(&format!("{backend}/files"), None, || {
        let bytes = copy(&from, &to);
        format!(" ({} MB of files)", bytes / 1_000_000)
    });
    fs::remove_dir_all(base).expect("it is there");
}
