//! What the two ends of a session say to each other, and how it is written.
//!
//! The wire is this crate's own. Each frame names its version and its session and carries
//! a CRC32C over all of it; a frame that can't be read is never guessed at.

mod code;
mod codec;
pub(crate) mod rows;
pub(crate) mod wire;

#[cfg(test)]
mod tests;

use bytes::Bytes;

use pop_store::Estimate;

use crate::{Digest, Resume, SnapshotId, SnapshotRef, StreamId};

pub use code::AbortCode;
pub(crate) use codec::encode_all_but_rows;
pub use codec::{decode, encode};
pub use rows::{Part, Row};

/// The version that this program speaks, and the only one.
pub const VERSION: u8 = 1;

/// The most bytes of a frame behind its head, so that a reader's memory is bounded.
pub const BODY_BYTES_MAX: usize = 4 << 20;

/// One message of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Whose it is.
    pub stream: StreamId,
    /// What it says.
    pub body: Body,
}

impl Frame {
    /// What is said to a frame of a session that is not known here, so that its sender learns
    /// that nobody listens. A side that ended has nothing to learn.
    pub(crate) fn unknown(self) -> Option<Self> {
        let body = Body::Abort {
            code: AbortCode::UnknownSession,
            text: String::new(),
        };
        let is_over = matches!(self.body, Body::Abort { .. });
        (!is_over).then_some(Self { body, ..self })
    }
}

/// What a frame says. Each may come twice, and a second one changes nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Body {
    /// Receiver: send me this.
    Pull {
        /// The snapshot.
        at: Box<SnapshotRef>,
        /// Only what lies behind this.
        resume: Option<Resume>,
        /// How many bytes of rows may be under way, counted from the start of the stream.
        credit: u64,
        /// About how many bytes of rows a chunk should have.
        chunk_bytes: u32,
    },
    /// Sender: I have it and begin.
    Offer {
        /// What all its rows add up to, if I know already.
        totals: Option<Digest>,
        /// About how much that is, if I can say so without counting.
        about: Option<Estimate>,
    },
    /// Sender: the next rows.
    Chunk {
        /// Counts chunks and the end, from 0.
        seq: u64,
        /// Rows in ascending order.
        rows: Bytes,
        /// CRC32C of `rows`, from where they were read to where they are loaded.
        crc: u32,
    },
    /// Sender: that was all.
    End {
        /// Counts on behind the last chunk.
        seq: u64,
        /// What all rows of the snapshot add up to, also those before a resumed start.
        totals: Digest,
    },
    /// Receiver: I have everything below `next`, and I live.
    Ack {
        /// The lowest number that I have not received.
        next: u64,
        /// As in [`Body::Pull`]; it only grows.
        credit: u64,
        /// With waiting for my rate limit: I can't be expected to take rows meanwhile.
        limited: bool,
    },
    /// Sender: I live, and am busy on my side.
    Alive {
        /// With waiting for my rate limit, or counting rows that the receiver has: no rows
        /// can be expected meanwhile.
        limited: bool,
    },
    /// Either: this session is over, without success.
    Abort {
        /// Why.
        code: AbortCode,
        /// Why, for a person.
        text: String,
    },
    /// Receiver: the content is installed and durable.
    Installed {
        /// Which.
        snapshot: SnapshotId,
    },
}

/// Bytes that are no frame of this version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FrameError {
    /// The peer speaks something else.
    #[error("not a frame: the peer speaks another protocol")]
    Magic,
    /// The peer speaks another version of the protocol.
    #[error(
        "version {0} of the protocol, and only {VERSION} is spoken here: upgrade the older side"
    )]
    Version(u8),
    /// A kind that this version does not have.
    #[error("unknown kind of frame {0}")]
    Kind(u8),
    /// Above the limit.
    #[error("a frame of {0} bytes is above the limit of {BODY_BYTES_MAX}")]
    TooBig(u32),
    /// Bytes were changed on the way.
    #[error("the checksum does not match: bytes were changed on the way")]
    Checksum,
    /// It ends before its content does.
    #[error("the frame ends before its content")]
    Truncated,
    /// A value that can't be.
    #[error("invalid content: {0}")]
    Invalid(&'static str),
}
