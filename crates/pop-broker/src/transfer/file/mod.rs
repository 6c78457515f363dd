//! A backup: one file with the content of a broker.
//!
//! It is written under the name of a [`Draft`] and gets its own name once it is whole, synced
//! and read again. `docs/FORMAT.md` has its bytes.

mod bytes;
mod draft;
mod error;
mod reader;
mod record;
mod snapshot;

#[cfg(test)]
mod golden;

pub use draft::{Begun, Draft, PARTIAL, Written};
pub use error::BackupError;
pub use reader::{BackupFile, Totals};
