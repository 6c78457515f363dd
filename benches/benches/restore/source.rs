//! The source: a process of its own, so that the CPU seconds of both ends are known.

use std::{
    io::{BufRead, BufReader, Read},
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::Arc,
    time::Duration,
};

use bytes::{BufMut, BytesMut};
use kv_restore::{
    Admission, Dumper, Limiter, Options, PeerId, SnapshotId, SnapshotRef, transport::framed,
};
use pop_benches::{cpu_seconds_of, open_with};
use pop_store::{Scan, Store};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

use super::{
    rows::{self, KEY_BYTES, KEYSPACES, ROWS},
    transfers,
};

const CHUNK_BYTES: usize = 1 << 20;
const SERVE: &str = "POP_BENCH_SERVE";
const FOLDER: &str = "POP_BENCH_FOLDER";
const WINDOW: &str = "POP_BENCH_WINDOW";

pub(super) fn snapshot_ref() -> SnapshotRef {
    SnapshotRef::new("space", SnapshotId(1), &[ROWS.name()])
}

/// What this process is to serve, if it is a source.
pub(super) fn asked_to_serve() -> Option<(String, PathBuf)> {
    let backend = std::env::var(SERVE).ok()?;
    let folder = std::env::var(FOLDER).expect("the parent says");
    Some((backend, PathBuf::from(folder)))
}

/// Writes the rows, in a process of its own: what that leaves of the heap is not ours.
pub(super) fn fill(backend: &str, folder: &Path) {
    let program = std::env::current_exe().expect("it runs");
    let done = Command::new(program)
        .env(SERVE, backend)
        .env(FOLDER, folder)
        .status()
        .expect("a process starts");
    assert!(done.success(), "the rows are written");
}

/// Serves the content of a folder in both ways until its input ends; without a window it is
/// to make that content.
#[expect(clippy::print_stdout, reason = "tells the parent where it listens")]
pub(super) async fn serve(backend: &str, folder: &Path) {
    let store = open_with(backend, folder, &KEYSPACES);
    let Ok(window) = std::env::var(WINDOW) else {
        rows::fill(store.as_ref()).await;
        store.close().await.expect("it closes");
        return;
    };
    let options = Options::default().with_window_bytes(window.parse().expect("a number"));
    let dumper = Dumper::new(options, Admission::new(4), Limiter::none());
    let snapshot = store.snapshot().await.expect("it has snapshots");
    let offer = dumper.offer(snapshot_ref(), store.as_ref(), snapshot);
    let _offer = offer.expect("nothing else is on offer");
    let ours = listen().await;
    let plain = listen().await;
    let port = |it: &TcpListener| it.local_addr().expect("it is bound").port();
    println!("{} {}", port(&ours), port(&plain));
    transfers().spawn(async move {
        while let Ok((stream, _)) = ours.accept().await {
            stream.set_nodelay(true).expect("it is a socket");
            let (read, write) = stream.into_split();
            let dumper = dumper.clone();
            tokio::spawn(async move {
                let peer = PeerId::new("target");
                dumper.serve(&peer, framed(read, write)).await;
            });
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

pub(super) async fn listen() -> TcpListener {
    let bound = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await;
    bound.expect("a port is free")
}

/// A chunk, an answer, the next chunk; an empty one at the end.
async fn send_and_wait(store: &dyn Store, mut stream: TcpStream) {
    stream.set_nodelay(true).expect("it is a socket");
    let row_bytes = KEY_BYTES + rows::value_bytes();
    let mut scan = Scan::all().with_entries_max(CHUNK_BYTES / row_bytes);
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

/// The parent's end of it.
pub(super) struct Source {
    child: Child,
    pub(super) ours: SocketAddr,
    #[cfg_attr(not(feature = "rocksdb"), expect(dead_code, reason = "a peer's"))]
    pub(super) plain: SocketAddr,
}

impl Source {
    /// A source whose engine has come to rest: what it owes to the rows before is not ours.
    pub(super) fn at_rest(backend: &str, folder: &Path, window_bytes: u64) -> Self {
        let source = Self::start(backend, folder, window_bytes);
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

    fn start(backend: &str, folder: &Path, window_bytes: u64) -> Self {
        let program = std::env::current_exe().expect("it runs");
        let mut child = Command::new(program)
            .env(SERVE, backend)
            .env(FOLDER, folder)
            .env(WINDOW, window_bytes.to_string())
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
            plain: port(),
        }
    }

    pub(super) fn cpu_seconds(&self) -> f64 {
        cpu_seconds_of(&self.child.id().to_string())
    }
}

#[expect(clippy::disallowed_methods, reason = "a benchmark waits for a process")]
fn rest() {
    std::thread::sleep(Duration::from_millis(500));
}

impl Drop for Source {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}
