//! Moving a broker's content: backup, restore, migrate.
//!
//! A source is whatever gives out snapshots, a target whatever takes one whole or not at
//! all; [`copy`] moves the one into the other, and knows of neither what it is.

mod location;

mod disk;
pub mod file;
mod manifest;

mod copy;
pub mod place;
mod source;

pub use copy::{Copied, CopyOptions, copy};
pub use location::{Location, LocationError};
pub use manifest::{KeyspaceManifest, Manifest, moment};
pub use source::{Source, SourceError, Whose, installed};
