#![doc = include_str!("../README.md")]

// In reading order: the offsets of one queue, the marks that remember them, the retry queue.
mod queue;

mod marks;
mod retry;

pub use queue::{QueueOffsets, SettlePlan};
pub use retry::{RetryEntries, RetryRemoval};
