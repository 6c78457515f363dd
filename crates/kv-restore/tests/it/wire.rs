//! Over a stream of bytes: the same sessions, and what damage and nonsense on it do.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use async_trait::async_trait;
use kv_restore::{
    Admission, Damage, Dumper, ErrorKind, Options, PeerId, Restorer, RestorerOptions, StreamId,
    Target,
    transport::{Channel, Transport, TransportError, framed},
};
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex, split};

use crate::kit::{SEALS, World, at, failed, leader, other};

/// What happens to the bytes that the source sends.
#[derive(Clone, Copy)]
enum Bytes {
    Untouched,
    /// One bit of the byte at this place.
    Flipped(usize),
    /// Nothing after this place, and then a clean close.
    CutAt(usize),
    /// These instead of all.
    Instead(&'static [u8]),
}

/// Every channel is a stream of bytes in process, the first one with something wrong.
struct Stream {
    dumper: Dumper,
    bytes: Mutex<Bytes>,
    later: Bytes,
    /// How many bytes came from the source, channel by channel.
    passed: Mutex<Vec<Arc<AtomicUsize>>>,
}

#[async_trait]
impl Transport for Stream {
    async fn connect(&self, _: &PeerId, _: StreamId) -> Result<Channel, TransportError> {
        let (ours, relay) = duplex(64 << 10);
        let (relayed, theirs) = duplex(64 << 10);
        let passed = Arc::<AtomicUsize>::default();
        self.passed.lock().push(Arc::clone(&passed));
        let bytes = std::mem::replace(&mut *self.bytes.lock(), self.later);
        tokio::spawn(pass(relay, relayed, bytes, passed));
        let dumper = self.dumper.clone();
        tokio::spawn(async move {
            let (read, write) = split(theirs);
            dumper
                .serve(&PeerId::new("follower"), framed(read, write))
                .await;
        });
        let (read, write) = split(ours);
        Ok(framed(read, write))
    }
}

async fn pass(near: DuplexStream, far: DuplexStream, bytes: Bytes, count: Arc<AtomicUsize>) {
    let (mut near_rx, mut near_tx) = split(near);
    let (mut far_rx, mut far_tx) = split(far);
    let ask = async { tokio::io::copy(&mut near_rx, &mut far_tx).await };
    let reply = async {
        let (mut buffer, mut passed) = (vec![0; 7_000], 0);
        loop {
            let read = far_rx.read(&mut buffer).await.unwrap_or(0);
            let end = passed + read;
            let mut read = buffer[..read].to_vec();
            match bytes {
                Bytes::Flipped(place) if (passed..end).contains(&place) => {
                    read[place - passed] ^= 4;
                }
                Bytes::CutAt(place) => read.truncate(place.saturating_sub(passed)),
                Bytes::Instead(other) => read = other.to_vec(),
                _ => {}
            }
            passed = end;
            count.fetch_add(read.len(), Ordering::Relaxed);
            if read.is_empty() || near_tx.write_all(&read).await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        _ = ask => {}
        () = reply => {}
    }
}

async fn restored(world: &World, bytes: Bytes) -> kv_restore::Outcome {
    restored_with(world, bytes, bytes, &[leader()], 0).await.0
}

/// With `bytes` on the first channel and `later` on those after it; and how many bytes came
/// on each.
async fn restored_with(
    world: &World,
    bytes: Bytes,
    later: Bytes,
    sources: &[PeerId],
    reconnects: u32,
) -> (kv_restore::Outcome, Vec<usize>) {
    let transport = Arc::new(Stream {
        dumper: world.dumper.clone(),
        bytes: Mutex::new(bytes),
        later,
        passed: Mutex::default(),
    });
    let session = Options::default().with_reconnects(reconnects);
    let restorer = Restorer::new(
        Target::new(Arc::new(world.target.clone())).with_seals(SEALS),
        Arc::clone(&transport) as Arc<dyn Transport>,
        RestorerOptions::new(Admission::new(1), Arc::new(|| 7))
            .with_session(session.with_chunk_bytes(1_000)),
        tokio::runtime::Handle::current(),
    );
    let session = restorer.restore(at(1, 1, 10), sources).unwrap();
    let outcome = session.outcome().await;
    let passed = transport.passed.lock();
    let passed = passed.iter().map(|it| it.load(Ordering::Relaxed));
    (outcome, passed.collect())
}

/// Cut anywhere, it goes on at the next source, or at the same one again.
async fn check_goes_on(sources: &[PeerId], reconnects: u32) {
    let untouched = Bytes::Untouched;
    let world = World::filled().await;
    let (outcome, whole) = restored_with(&world, untouched, untouched, sources, 0).await;
    outcome.unwrap();
    let whole = whole[0];
    for place in (0..whole).step_by(211) {
        let world = World::filled().await;
        let cut = Bytes::CutAt(place);
        let (outcome, passed) = restored_with(&world, cut, untouched, sources, reconnects).await;
        outcome.unwrap();
        assert!(world.same().await);
        assert_eq!(world.begins(), 1, "what was loaded is kept");
        // Not more than the chunk in which it was cut comes twice, and a few heads.
        let again: usize = passed.iter().sum::<usize>().saturating_sub(whole);
        assert!(
            again < 2_000,
            "{again} of {whole} bytes came again, cut at {place}"
        );
        assert_eq!(passed.len(), 2);
    }
}

// Mutants: ResumeForgetsTotals; a reconnect that begins at the first row.
#[tokio::test(start_paused = true)]
async fn s71_a_stream_that_is_cut_goes_on_where_it_was_and_moves_only_the_rest() {
    check_goes_on(&[leader()], 1).await;
}

// Mutants: the same, and one that turns to nobody else.
#[tokio::test(start_paused = true)]
async fn s24_a_source_that_breaks_in_the_middle_is_followed_by_another_which_sends_the_rest() {
    check_goes_on(&[leader(), other()], 0).await;
}

// Catches: reconnects that are counted over the whole of a transfer.
#[tokio::test(start_paused = true)]
async fn a_stream_that_is_cut_again_and_again_goes_on_as_long_as_rows_come() {
    let world = World::filled().await;
    let cut = Bytes::CutAt(3_000);
    let (outcome, passed) = restored_with(&world, cut, cut, &[leader()], 1).await;
    outcome.unwrap();
    assert!(world.same().await);
    assert!(passed.len() > 4, "{passed:?}");
    let world = World::filled().await;
    let cut = Bytes::CutAt(500);
    let (outcome, passed) = restored_with(&world, cut, cut, &[leader()], 1).await;
    failed(outcome, ErrorKind::Transport);
    assert_eq!(passed.len(), 2, "no row in {passed:?}");
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_goes_over_a_stream_of_bytes() {
    let world = World::filled().await;
    restored(&world, Bytes::Untouched).await.unwrap();
    assert!(world.same().await);
    world.is_quiet().await;
}

#[tokio::test]
async fn a_snapshot_goes_over_tcp() {
    let world = World::new();
    world.fill(2_000).await;
    struct Tcp(std::net::SocketAddr);
    #[async_trait]
    impl Transport for Tcp {
        async fn connect(&self, _: &PeerId, _: StreamId) -> Result<Channel, TransportError> {
            let (read, write) = tokio::net::TcpStream::connect(self.0).await?.into_split();
            Ok(framed(read, write))
        }
    }
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let dumper = world.dumper.clone();
    let serving = tokio::spawn(async move {
        let (stream, peer) = listener.accept().await.unwrap();
        let (read, write) = stream.into_split();
        let peer = PeerId::new(peer.to_string());
        dumper.serve(&peer, framed(read, write)).await;
    });
    let restorer = Restorer::new(
        Target::new(Arc::new(world.target.clone())),
        Arc::new(Tcp(address)),
        RestorerOptions::new(Admission::new(1), Arc::new(|| 7)),
        tokio::runtime::Handle::current(),
    );
    let session = restorer.restore(at(1, 1, 10), &[leader()]).unwrap();
    session.outcome().await.unwrap();
    assert!(world.same().await);
    serving.await.unwrap();
}

// Mutant: a checksum that covers the head of a frame alone.
#[tokio::test(start_paused = true)]
async fn s40_a_flipped_bit_anywhere_is_never_installed() {
    let world = World::filled().await;
    let untouched = Bytes::Untouched;
    let (_, whole) = restored_with(&world, untouched, untouched, &[leader()], 0).await;
    // The last frame, which has no rows, at every byte.
    let whole = whole[0];
    for place in (0..whole - 72).step_by(97).chain(whole - 72..whole) {
        let world = World::filled().await;
        let before = world.target_rows().await;
        let outcome = restored(&world, Bytes::Flipped(place)).await;
        let error = outcome.expect_err("a flipped bit can't pass");
        assert!(
            matches!(
                error.kind(),
                ErrorKind::Corrupt(Damage::Chunk) | ErrorKind::Protocol | ErrorKind::Idle
            ),
            "{error}"
        );
        assert_eq!(world.target_rows().await, before);
    }
}

// Mutant: EarlyEndIsSuccess.
#[tokio::test(start_paused = true)]
async fn s44_a_stream_that_is_closed_anywhere_before_the_end_is_no_success() {
    for place in (0..11_000).step_by(97) {
        let world = World::filled().await;
        let before = world.target_rows().await;
        let error = restored(&world, Bytes::CutAt(place)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Transport, "{error}");
        assert_eq!(world.target_rows().await, before);
    }
}

#[tokio::test(start_paused = true)]
async fn s47_s79_nonsense_another_version_and_an_oversize_frame_end_the_session_at_once() {
    let oversize = b"KR\x01\x03aaaaaaaaaaaaaaaabbbb\xff\xff\xff\xffcccc";
    for (bytes, detail) in [
        (&b"HTTP/1.1 400 Bad Request"[..], "another protocol"),
        (&b"KR\x02"[..], "version 2"),
        (&oversize[..], "above the limit"),
    ] {
        let world = World::filled().await;
        let outcome = restored(&world, Bytes::Instead(bytes)).await;
        let error = failed(outcome, ErrorKind::Protocol);
        assert!(error.detail().contains(detail), "{error}");
        world.is_quiet().await;
    }
}

#[tokio::test(start_paused = true)]
async fn s47_nonsense_to_the_source_ends_that_channel_alone() {
    let world = World::filled().await;
    let (mut ours, theirs) = duplex(1 << 10);
    let dumper = world.dumper.clone();
    let serving = tokio::spawn(async move {
        let (read, write) = split(theirs);
        dumper
            .serve(&PeerId::new("anybody"), framed(read, write))
            .await;
    });
    ours.write_all(&[0xa5; 100]).await.unwrap();
    serving.await.unwrap();
    restored(&world, Bytes::Untouched).await.unwrap();
}
