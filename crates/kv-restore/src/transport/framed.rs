//! Channels over any stream of bytes: TCP, TLS, a pipe.

use async_trait::async_trait;
use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::{Channel, FrameRx, FrameTx, TransportError};
use crate::frame::{Frame, decode, encode_all_but_rows};

// So that small frames don't cost a call each.
const READ_BYTES: usize = 16 << 10;

/// A channel that reads and writes frames.
///
/// Its memory is bounded by one frame in each direction. A stream that ends inside a frame
/// is broken; one that ends between two is closed, which only an explicit last frame makes a
/// success.
pub fn framed<R, W>(read: R, write: W) -> Channel
where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    Channel {
        tx: Box::new(Tx {
            write,
            buffer: BytesMut::new(),
        }),
        rx: Box::new(Rx {
            read,
            buffer: BytesMut::new(),
            expected: READ_BYTES,
        }),
    }
}

struct Tx<W> {
    write: W,
    buffer: BytesMut,
}

#[async_trait]
impl<W: AsyncWrite + Send + Unpin + 'static> FrameTx for Tx<W> {
    async fn send(&mut self, frame: Frame) -> Result<(), TransportError> {
        self.buffer.clear();
        let rows = encode_all_but_rows(&frame, &mut self.buffer)?;
        let mut bytes = Buf::chain(self.buffer.as_ref(), rows);
        self.write.write_all_buf(&mut bytes).await?;
        self.write.flush().await?;
        Ok(())
    }
}

struct Rx<R> {
    read: R,
    buffer: BytesMut,
    // As many bytes as the frame before had, if it was a large one: the next is like it.
    expected: usize,
}

#[async_trait]
impl<R: AsyncRead + Send + Unpin + 'static> FrameRx for Rx<R> {
    async fn recv(&mut self) -> Result<Option<Frame>, TransportError> {
        loop {
            let before = self.buffer.len();
            if let Some(frame) = decode(&mut self.buffer)? {
                let length = before - self.buffer.len();
                self.expected = READ_BYTES.max(length + length / 32);
                return Ok(Some(frame));
            }
            // Room for a frame that is begun is there: more would have it copied.
            if self.buffer.len() == self.buffer.capacity() {
                self.buffer.reserve(self.expected);
            }
            if self.read.read_buf(&mut self.buffer).await? > 0 {
                continue;
            }
            return match self.buffer.is_empty() {
                true => Ok(None),
                false => Err(TransportError::Broken("it ended inside a frame".into())),
            };
        }
    }
}
