//! The cache with its loops, against a sink that answers in every way that it can be
//! answered, on a store that fails when told to.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test that can not set itself up has failed"
)]

mod revives;
mod world;
