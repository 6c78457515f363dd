//! The program itself: what it prints, how it ends, what it keeps. Each test runs the real
//! binary on a folder and on ports of its own.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that panics has failed, which is what it is for"
)]

// The demo's client and process: a second copy would drift from what readers copy.
#[path = "../../examples/demo/client.rs"]
#[allow(dead_code, reason = "some tests need a store that keeps something")]
mod client;
#[path = "../../examples/demo/process.rs"]
mod process;

mod admin;
#[cfg(all(
    target_os = "linux",
    any(feature = "fjall", feature = "rocksdb", feature = "sled")
))]
mod background;
mod bench;
#[cfg(any(feature = "fjall", feature = "rocksdb", feature = "sled"))]
mod bootstrap;
mod delete;
// What needs a disk of its own there needs it here: a second copy would drift.
#[cfg(all(
    target_os = "linux",
    any(feature = "fjall", feature = "rocksdb", feature = "sled")
))]
#[path = "../../../kv-restore/tests/it/disk.rs"]
mod disk;
#[cfg(all(
    target_os = "linux",
    any(feature = "fjall", feature = "rocksdb", feature = "sled")
))]
mod full;
mod help;
#[cfg(any(feature = "fjall", feature = "rocksdb", feature = "sled"))]
mod keep;
#[cfg(any(feature = "fjall", feature = "rocksdb", feature = "sled"))]
mod lost;
mod refuse;
#[cfg(any(feature = "fjall", feature = "rocksdb", feature = "sled"))]
mod resume;
mod settings;
mod stop;
#[cfg(any(feature = "fjall", feature = "rocksdb", feature = "sled"))]
mod transfer;
