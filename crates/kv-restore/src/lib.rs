#![doc = include_str!("../README.md")]

// In reading order: the copy, what it compares, how it fails.
mod copy;

mod digest;
mod error;

pub use copy::{CopyOptions, copy};
pub use digest::{Digest, digest};
pub use error::{CopyError, Phase};
