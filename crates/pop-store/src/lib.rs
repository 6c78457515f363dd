#![doc = include_str!("../README.md")]

// In reading order: the seam, what goes through it, what stands behind it, what stands on it.
mod store;

mod background;
mod batch;
mod durable;
mod error;
mod estimate;
mod ext;
mod guard;
mod keyspace;
mod rows;
mod scan;

pub mod merge;

pub mod backend;
pub mod table;

#[cfg(feature = "testkit")]
pub mod testkit;

#[cfg(test)]
mod golden;

#[cfg(feature = "blocking")]
pub use backend::engine::OpenOptions;
#[cfg(feature = "fjall")]
pub use backend::fjall::FjallStore;
pub use backend::memory::MemStore;
#[cfg(feature = "rocksdb")]
pub use backend::rocksdb::RocksStore;
#[cfg(feature = "sled")]
pub use backend::sled::SledStore;
pub use background::run_in_background;
pub use batch::{Precondition, WriteBatch};
pub use durable::{Durable, Unsettled};
pub use error::{Error, ErrorKind, Outcome, Result};
pub use estimate::Estimate;
pub use ext::StoreExt;
pub use guard::Guarded;
pub use keyspace::Keyspace;
pub use rows::Rows;
pub use scan::{Direction, Entry, Scan};
pub use store::{Capabilities, Durability, Resumed, Snapshot, SnapshotSupport, Staging, Store};
