//! Random clients on a broker whose store fails and loses power, from a seed, held against
//! a plain model.
//!
//! One seed is one run, and the same seed is the same run. Simulated time costs nothing:
//! tokio's clock is paused, the broker's clocks stand still until a step moves them.
//! After each step the model says whether the promises P1 to P7 were kept; a run ends
//! without faults, until every message has come to its end.

#![allow(
    clippy::indexing_slicing,
    reason = "a program that tests: an index out of range is a fault of its own"
)]

pub mod actions;
pub mod cast;
pub mod chaos;
pub mod message;
pub mod model;
pub mod mutation;
pub mod op;
pub mod plan;
pub mod pool;
pub mod regressions;
pub mod run;
pub mod shrink;
pub mod sim;
pub mod steps;
pub mod violation;
pub mod world;

mod finish;
mod panics;
mod trace;
mod watch;
