//! What happened on the data port, counted where it happens.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use tokio::io::AsyncWrite;

/// The counts as they go.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) connections: AtomicU64,
    pub(super) refused: AtomicU64,
    pub(super) snapshots: AtomicU64,
    pub(super) installed: AtomicU64,
    pub(super) failed: AtomicU64,
    pub(super) bytes: AtomicU64,
}

/// What happened on the data port since the broker was started, and what goes on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DataStats {
    /// Connections that were accepted.
    pub connections: u64,
    /// Those that were turned away: nonsense, silence, no token, another version, no room.
    pub refused: u64,
    /// Snapshots that were taken.
    pub snapshots: u64,
    /// Sessions whose receiver has installed all rows.
    pub installed: u64,
    /// Sessions that ended before that.
    pub failed: u64,
    /// Bytes that were sent.
    pub bytes: u64,
    /// Sessions that run.
    pub running: u64,
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
            snapshots: of(&self.snapshots),
            installed: of(&self.installed),
            failed: of(&self.failed),
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
