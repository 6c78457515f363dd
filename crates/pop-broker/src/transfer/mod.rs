//! Moving a broker's content: backup, restore, migrate.

mod location;

pub use location::{Location, LocationError};
