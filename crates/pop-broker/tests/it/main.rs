//! The broker's promises, through its library API: on a store in memory, on one that
//! fails when told to, and over power cuts. P1 to P6 are those of the design.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::print_stderr,
    reason = "a test that can not set itself up has failed"
)]

mod audit;
mod model;
mod world;

mod faults;
mod handles;
mod progress;
mod quarantine;
mod random;
mod receive;
mod recovery;
mod redelivery;
mod send;
