#![doc = include_str!("../README.md")]

// In reading order: one pass as a pure step, and the loop.
mod pass;
mod worker;

pub use pass::{Classified, Due, classify};
pub use worker::{PassReport, Reviver, ReviverOptions};
