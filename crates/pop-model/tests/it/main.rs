//! The crate from the outside: every byte it stores, every name it accepts, both clocks.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "a test that panics has failed, which is what it is for"
)]

mod allocation;
mod arbitrary;
mod clocks;
mod fuzz_bodies;
mod golden;
mod handles;
mod keys;
mod names;
mod ranges;
mod samples;
mod shards;
mod sizes;
mod values;
