//! The kit over every backend, and over stores that are wrong on purpose.

mod fault;
mod guard;
mod memory;
mod wrong_durable;

#[cfg(feature = "fjall")]
mod fjall;
#[cfg(feature = "rocksdb")]
mod rocksdb;
#[cfg(feature = "sled")]
mod sled;
