//! The conformance kit, and the store that misbehaves on purpose.
//!
//! The checks are written from the contract on [`Store`](crate::Store) and from nothing
//! else, so that a backend in another repository is held to the same promises. One call
//! of [`conformance!`](crate::conformance) makes one `#[test]` per check:
//!
//! ```no_run
//! use std::path::Path;
//!
//! use pop_store::{MemStore, Result, testkit::{KEYSPACES, StoreFactory}};
//!
//! struct Memory;
//!
//! impl StoreFactory for Memory {
//!     type Store = MemStore;
//!
//!     async fn open(&self, _folder: &Path) -> Result<MemStore> {
//!         Ok(MemStore::new(&KEYSPACES))
//!     }
//! }
//!
//! pop_store::conformance!(Memory, volatile);
//! ```
//!
//! A store whose content outlives the process leaves `volatile` out and gets the checks
//! of reopening, locking and crashing too. The caller needs no other dependency: the kit
//! brings its own runtime.

mod fault;
mod kit;
mod random;
mod suite;

pub mod checks;

#[cfg(test)]
mod wrong;

pub use fault::{Call, CrashableStore, Effect, Fault, FaultStore, Faults, Injected, Odds};
pub use kit::{KEYSPACES, Kit, StoreFactory, run};
pub use random::Random;
