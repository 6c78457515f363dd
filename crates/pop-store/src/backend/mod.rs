//! The backends: memory always, each engine behind a feature of its name.

pub mod memory;
