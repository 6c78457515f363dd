//! Every bound on bytes and time of a session.

use std::time::Duration;

/// How much is under way, and how long anything may take.
///
/// There is no limit on the whole of a transfer: what goes on may go on.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// How many bytes of rows may be received and not yet loaded, beside one chunk; at a
    /// source, sent and not acknowledged, whatever credit it is given: a receiver that takes
    /// none of them must not have it read the whole snapshot into memory.
    pub window_bytes: u64,
    /// About how many bytes of rows a chunk has: the smaller of what both sides say. A large
    /// one is fast, and a small one lets others have their turn sooner.
    pub chunk_bytes: u32,
    /// Until the target has made room, or the source has found the snapshot.
    pub open_within: Duration,
    /// Until the source is connected.
    pub connect_within: Duration,
    /// From the connection to the first frame.
    pub first_frame_within: Duration,
    /// Between two signs of life, while the peer is the one who is waited for.
    pub idle: Duration,
    /// Until a receiver that only says that it lives has taken something more of what it was
    /// sent, or asked for more; a wait for its own rate limit does not count. Longer than the
    /// most patient receiver's `load_within`, whose clock is the finer one.
    pub taken_within: Duration,
    /// Until a receiver that has all rows has said the outcome. Longer than the most patient
    /// one's `hold_within` and `commit_within`: it costs the source a task and a channel.
    pub outcome_within: Duration,
    /// Until one chunk is read or loaded.
    pub load_within: Duration,
    /// Until who asked for a staged snapshot has decided about it.
    pub hold_within: Duration,
    /// Until waiters are told that the switch hangs. It is waited for nevertheless.
    pub commit_within: Duration,
    /// How often a side says what the other may have missed.
    pub repeat_every: Duration,
    /// The fewest bytes a second, taken over `rate_span` of waiting; 0 for no such bound.
    pub rate_min: u64,
    /// See `rate_min`.
    pub rate_span: Duration,
    /// Whether a source goes by its rate limit also where it only counts, before a resumed
    /// start, what the receiver has. Off: who comes back is to go on soon.
    pub limit_counting: bool,
    /// After how many bytes of rows the target makes a point from which a later session goes
    /// on, where its store can.
    pub checkpoint_bytes: u64,
    /// How long the last word is repeated to a peer that may have missed it.
    pub tombstone: Duration,
    /// How often in turn a broken transfer is resumed, beside once at each further source:
    /// counted from the last rows that the target took, so that a long transfer may break
    /// any number of times as long as it goes on in between.
    pub reconnects: u32,
    /// The pause before a source is asked again, doubled each time up to 64 of it; rows that
    /// the target took make it short again.
    pub reconnect_after: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            window_bytes: 8 << 20,
            chunk_bytes: 512 << 10,
            open_within: Duration::from_secs(60),
            connect_within: Duration::from_secs(10),
            first_frame_within: Duration::from_secs(10),
            idle: Duration::from_secs(30),
            taken_within: Duration::from_secs(900),
            outcome_within: Duration::from_secs(2 * 60 * 60),
            load_within: Duration::from_secs(60),
            hold_within: Duration::from_secs(300),
            commit_within: Duration::from_secs(300),
            repeat_every: Duration::from_secs(1),
            rate_min: 64 << 10,
            rate_span: Duration::from_secs(300),
            limit_counting: false,
            checkpoint_bytes: 64 << 20,
            tombstone: Duration::from_secs(60),
            reconnects: 0,
            reconnect_after: Duration::from_millis(100),
        }
    }
}

impl Options {
    /// The largest `chunk_bytes`: a row more must still fit into a frame.
    pub const CHUNK_BYTES_MAX: u32 = 2 << 20;

    /// Sets how many bytes may be received and not yet loaded.
    #[must_use]
    pub fn with_window_bytes(mut self, window_bytes: u64) -> Self {
        self.window_bytes = window_bytes;
        self
    }

    /// Sets about how many bytes a chunk has, up to [`CHUNK_BYTES_MAX`](Self::CHUNK_BYTES_MAX).
    #[must_use]
    pub fn with_chunk_bytes(mut self, chunk_bytes: u32) -> Self {
        self.chunk_bytes = chunk_bytes.clamp(1, Self::CHUNK_BYTES_MAX);
        self
    }

    /// Sets after how many bytes a target makes a point to go on from.
    #[must_use]
    pub fn with_checkpoint_bytes(mut self, checkpoint_bytes: u64) -> Self {
        self.checkpoint_bytes = checkpoint_bytes;
        self
    }

    /// Sets how often in turn a broken transfer is resumed without a row in between.
    #[must_use]
    pub fn with_reconnects(mut self, reconnects: u32) -> Self {
        self.reconnects = reconnects;
        self
    }
}
