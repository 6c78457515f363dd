//! The revive loop against a sink that answers in every way that it can be answered.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test that can not set itself up has failed"
)]

mod foreign;
mod outcomes;
mod scan;
mod world;
