//! What happened on the data port, counted where it happens.

use std::{
    collections::BTreeMap,
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use parking_lot::Mutex;
use tokio::io::AsyncWrite;

use super::hello::Why;

/// Why somebody was turned away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turned {
    /// As many connections are open as may be.
    NoRoom,
    /// It did not say whole words in time.
    Silent,
    /// It went in the middle of its first words.
    Cut,
    /// What it said is no word of the port.
    Nonsense,
    /// It could not be known by its certificate, or spoke no TLS where that is asked for.
    Tls,
    /// What it asked for was refused with a word.
    Told(Why),
    /// Its channel asked for nothing, or for what is not given.
    NothingAsked,
}

impl Turned {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::NoRoom => "no-room",
            Self::Silent => "silent",
            Self::Cut => "cut",
            Self::Nonsense => "nonsense",
            Self::Tls => "tls",
            Self::Told(Why::Token) => "token",
            Self::Told(Why::Version) => "version",
            Self::Told(Why::Busy) => "busy",
            Self::Told(Why::Impossible) => "impossible",
            Self::Told(Why::TakenBack) => "taken-back",
            Self::Told(Why::Failed) => "failed",
            Self::NothingAsked => "nothing-asked",
        }
    }
}

/// Counts by a word: few, and none that a peer chooses.
#[derive(Debug, Default)]
pub(super) struct Tally(Mutex<BTreeMap<&'static str, u64>>);

impl Tally {
    pub(super) fn add(&self, word: &'static str) {
        *self.0.lock().entry(word).or_default() += 1;
    }

    fn read(&self) -> BTreeMap<&'static str, u64> {
        self.0.lock().clone()
    }
}

/// The counts as they go; of sessions the dumper has its own.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) connections: AtomicU64,
    pub(super) refused: AtomicU64,
    pub(super) turned_away: Tally,
    pub(super) snapshots: AtomicU64,
    pub(super) snapshots_ended: Tally,
    pub(super) handovers: AtomicU64,
    pub(super) handovers_ended: Tally,
    pub(super) bytes: AtomicU64,
}

/// What happened on the data port since the broker was started, and what goes on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DataStats {
    /// Connections that were accepted.
    pub connections: u64,
    /// Those that are open.
    pub open: u64,
    /// Those that were turned away: nonsense, silence, no token, another version, no room.
    pub refused: u64,
    /// The same, by why.
    pub turned_away: BTreeMap<&'static str, u64>,
    /// Snapshots that were taken.
    pub snapshots: u64,
    /// How the keeping of a snapshot ended: `done`, `left`, `gave-way` or `too-old`.
    pub snapshots_ended: BTreeMap<&'static str, u64>,
    /// Handovers that were begun.
    pub handovers: u64,
    /// How they ended: `handed-over`, `left`, `refused` or `in-doubt`.
    pub handovers_ended: BTreeMap<&'static str, u64>,
    /// Sessions that were begun.
    pub begun: u64,
    /// Sessions whose receiver has installed all rows.
    pub installed: u64,
    /// Sessions that ended before that.
    pub failed: u64,
    /// How sessions ended, in the words of `kv-restore`.
    pub ended: BTreeMap<&'static str, u64>,
    /// Rows that were read to be sent.
    pub rows: u64,
    /// Bytes that were sent.
    pub bytes: u64,
    /// Sessions that run.
    pub running: u64,
    /// How long the one that stands still the longest does so.
    pub still: Option<Duration>,
    /// Snapshots that are kept.
    pub pins: u64,
    /// How long ago the oldest of them was taken.
    pub oldest_pin: Option<Duration>,
}

pub(super) fn count(counter: &AtomicU64) {
    // Relaxed: nothing else is read on the strength of it.
    counter.fetch_add(1, Ordering::Relaxed);
}

impl Counters {
    pub(super) fn read(&self) -> DataStats {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        DataStats {
            connections: of(&self.connections),
            refused: of(&self.refused),
            turned_away: self.turned_away.read(),
            snapshots: of(&self.snapshots),
            snapshots_ended: self.snapshots_ended.read(),
            handovers: of(&self.handovers),
            handovers_ended: self.handovers_ended.read(),
            bytes: of(&self.bytes),
            ..DataStats::default()
        }
    }
}

/// Counts the bytes that pass.
pub(super) struct Counted<W> {
    pub(super) write: W,
    pub(super) counters: Arc<Counters>,
}

impl<W: AsyncWrite + Unpin> AsyncWrite for Counted<W> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let poll = Pin::new(&mut self.write).poll_write(cx, bytes);
        if let Poll::Ready(Ok(written)) = &poll {
            let written = u64::try_from(*written).unwrap_or(u64::MAX);
            self.counters.bytes.fetch_add(written, Ordering::Relaxed);
        }
        poll
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.write).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.write).poll_shutdown(cx)
    }
}
