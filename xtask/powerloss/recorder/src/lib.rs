//! A library for `LD_PRELOAD` that records every change that a process makes in one folder.
//!
//! It stands in front of the C library: each call that changes a file or a name is made
//! and recorded under one lock, so that the record has the order in which the changes
//! happened. Only a sync runs outside of it; its begin and its end are recorded, because
//! it promises what was written before it began, once it has returned.
//!
//! What it can't see: writes through a shared mapping and calls that bypass the C library.
//! A shared mapping is recorded as a blind spot; the rest shows when a replay of the whole
//! record is not the folder. `syncfs` and `sync` count for nothing.

#![allow(
    unsafe_code,
    reason = "it takes the place of C functions, whose callers hand it raw pointers"
)]
#![allow(
    clippy::cast_lossless,
    reason = "the arguments of a system call are registers, whatever their type was"
)]

mod copy;
mod descriptors;
mod names;
mod open;
mod record;
mod sync;
mod system;
mod write;
