//! The two ends of a session as pure state machines: what happened and when goes in, what
//! to do comes out. No clock, no I/O, no await; the driver does what they say, and so does
//! the simulator.
//!
//! Time is a [`Duration`] since some moment that never changes, on a clock that never goes
//! back. Whoever drives a machine calls it with [`Event::Tick`](receiver::Event::Tick) at its
//! `deadline`, and may call it earlier.

mod options;
mod pace;
pub mod receiver;
pub mod sender;

#[cfg(test)]
mod tests;

use std::time::Duration;

pub use options::Options;
pub use receiver::Receiver;
pub use sender::Sender;

/// A moment, on a clock that never goes back.
pub type Now = Duration;

/// Why a session is stopped from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Nobody waits for it any more.
    Cancelled,
    /// A later request took its place.
    Superseded,
    /// This side shuts down.
    Closed,
    /// The snapshot was taken back.
    Withdrawn,
}

/// The earliest of some deadlines.
fn earliest<const N: usize>(deadlines: [Option<Now>; N]) -> Option<Now> {
    deadlines.into_iter().flatten().min()
}

/// Whether a deadline is there and has come.
fn passed(deadline: Option<Now>, now: Now) -> bool {
    deadline.is_some_and(|deadline| deadline <= now)
}
