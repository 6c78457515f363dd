//! The backends: memory always, each engine behind a feature of its name.

pub mod memory;

#[cfg(feature = "blocking")]
pub mod engine;
#[cfg(feature = "blocking")]
pub mod folder;

#[cfg(feature = "fjall")]
pub mod fjall;
#[cfg(feature = "rocksdb")]
pub mod rocksdb;
#[cfg(feature = "sled")]
pub mod sled;
