//! The kit over every backend, and over stores that are wrong on purpose.

#![allow(
    clippy::unwrap_used,
    reason = "a test that can not set itself up has failed"
)]

mod samples;

mod erase;
mod fault;
mod guard;
mod memory;
mod retention;
mod wrong_durable;

#[cfg(feature = "fjall")]
mod fjall;
#[cfg(feature = "rocksdb")]
mod rocksdb;
#[cfg(feature = "sled")]
mod sled;
