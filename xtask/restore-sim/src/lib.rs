//! Sessions of `kv-restore` in a world where everything fails that can: one seed is one
//! schedule, and the same seed is the same schedule.
//!
//! The machines and the registry are those of the crate. Tasks, network, sources and target
//! are simple models that do what a driver does, in an order and with faults that the seed
//! draws; `driver` is the same with the real tasks. After each step the invariants of `check` are held against all of it; a schedule
//! ends without faults, until a request succeeds and nothing is left of any session.

#![allow(
    unreachable_pub,
    missing_docs,
    reason = "nobody uses it but its own program and test"
)]

mod check;
mod client;
pub mod driver;
mod dump;
mod net;
mod plan;
pub mod resume;
mod target;
mod task;
mod world;

pub use world::{Report, run};
