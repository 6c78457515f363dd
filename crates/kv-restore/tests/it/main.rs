//! Sessions from end to end: real stores in memory, faults in every call, simulated time.
//!
//! The names begin with the scenario that they show, as the index lists it.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that can not set itself up has failed"
)]

mod backends;
mod cancel;
mod content;
mod counts;
#[cfg(all(
    target_os = "linux",
    any(feature = "fjall", feature = "rocksdb", feature = "sled")
))]
mod disk;
#[cfg(all(
    target_os = "linux",
    any(feature = "fjall", feature = "rocksdb", feature = "sled")
))]
mod full;
mod kit;
mod load;
mod memory;
mod naive;
#[cfg(feature = "openraft")]
mod raft;
mod seed;
mod shape;
mod sharing;
mod source;
mod stage;
mod steps;
mod wire;
