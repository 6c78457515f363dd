//! Every bound of the data port, and how they hang together.

use std::time::Duration;

/// From the connection to a whole hello, TLS included.
pub(super) const HELLO_TIME_MAX: Duration = Duration::from_secs(10);
/// Until a peer has taken an answer.
pub(super) const REPLY_TIME_MAX: Duration = Duration::from_secs(10);
/// What a peer may say before it is known who it is.
pub(super) const HELLO_BYTES_MAX: u32 = 4 << 10;
/// What the port answers: a reference to a snapshot, with room to spare.
pub(super) const REPLY_BYTES_MAX: u32 = 256 << 10;
/// What a peer that was refused may have said meanwhile, and is read so that it hears why.
pub(super) const REFUSED_BYTES_MAX: u64 = 64 << 10;
/// Connections at once, those in their hello included.
pub(super) const CONNECTIONS_MAX: usize = 64;
/// How often the holder of a snapshot says that it is there.
pub(super) const ALIVE_EVERY: Duration = Duration::from_secs(5);
/// A holder that was not heard of for so long is gone.
pub(super) const SILENCE_MAX: Duration = Duration::from_secs(30);
/// How long a snapshot is kept for a holder that is gone and fetches nothing: long enough to
/// come back on another connection.
pub(super) const GRACE: Duration = Duration::from_secs(60);
/// Until a snapshot whose holder is gone has given way to another one, or who asked is told
/// that all are held.
pub(super) const GIVE_WAY_TIME_MAX: Duration = Duration::from_secs(2);
/// How often it is asked for meanwhile.
pub(super) const GIVE_WAY_LOOK_EVERY: Duration = Duration::from_millis(50);

const _: () = assert!(ALIVE_EVERY.as_secs() * 3 <= SILENCE_MAX.as_secs());
