//! The way to the source: a connection as it is, or one that takes its time, counts, and
//! breaks where it is told to.

use std::{
    io,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use async_trait::async_trait;
use bytes::BytesMut;
use kv_restore::{
    PeerId, StreamId,
    transport::{Channel, Transport, TransportError, framed},
};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, duplex},
    net::TcpStream,
    sync::mpsc,
    time::Instant,
};

/// Over loopback.
pub(super) struct Loopback(pub(super) SocketAddr);

#[async_trait]
impl Transport for Loopback {
    async fn connect(&self, _: &PeerId, _: StreamId) -> Result<Channel, TransportError> {
        let stream = TcpStream::connect(self.0).await?;
        stream.set_nodelay(true)?;
        let (read, write) = stream.into_split();
        Ok(framed(read, write))
    }
}

/// A long line: whatever enters it comes out so much later, and any amount is under way.
pub(super) struct Line {
    pub(super) to: SocketAddr,
    pub(super) one_way: Duration,
    /// After so many bytes towards the target the first connection breaks.
    pub(super) breaks_after: u64,
    /// Bytes that came towards the target.
    pub(super) carried: Arc<AtomicU64>,
}

const STEP_BYTES: usize = 64 << 10;

#[async_trait]
impl Transport for Line {
    async fn connect(&self, _: &PeerId, _: StreamId) -> Result<Channel, TransportError> {
        let stream = TcpStream::connect(self.to).await?;
        stream.set_nodelay(true)?;
        let (from_source, to_source) = stream.into_split();
        let (ours, theirs) = duplex(4 * STEP_BYTES);
        let (from_target, to_target) = tokio::io::split(theirs);
        let is_first = self.carried.load(Relaxed) == 0;
        let breaks_after = if is_first {
            self.breaks_after
        } else {
            u64::MAX
        };
        let carried = Arc::clone(&self.carried);
        tokio::spawn(carry(from_target, to_source, self.one_way, move |_| true));
        tokio::spawn(carry(from_source, to_target, self.one_way, move |bytes| {
            carried.fetch_add(bytes, Relaxed) + bytes < breaks_after
        }));
        let (read, write) = tokio::io::split::<DuplexStream>(ours);
        Ok(framed(read, write))
    }
}

/// Carries bytes until the end, or until `goes_on` says that the line is broken.
async fn carry<R, W>(
    mut from: R,
    mut to: W,
    delay: Duration,
    mut goes_on: impl FnMut(u64) -> bool + Send + 'static,
) -> io::Result<()>
where
    R: AsyncRead + Unpin + Send + 'static,
    W: AsyncWrite + Unpin + Send + 'static,
{
    let (under_way, mut arriving) = mpsc::unbounded_channel::<(Instant, BytesMut)>();
    let reading = async move {
        loop {
            let mut step = BytesMut::with_capacity(STEP_BYTES);
            let length = from.read_buf(&mut step).await?;
            if length == 0 || !goes_on(length as u64) {
                return io::Result::Ok(());
            }
            if under_way.send((Instant::now() + delay, step)).is_err() {
                return Ok(());
            }
        }
    };
    let writing = async move {
        while let Some((at, step)) = arriving.recv().await {
            tokio::time::sleep_until(at).await;
            to.write_all(&step).await?;
        }
        to.shutdown().await
    };
    let (read, written) = tokio::join!(reading, writing);
    read.and(written)
}
