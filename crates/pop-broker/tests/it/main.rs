//! The broker's promises, through its library API: on a store in memory, on one that
//! fails when told to, and over power cuts. P1 to P7 are those of the design.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::print_stderr,
    reason = "a test that can not set itself up has failed"
)]

mod audit;
mod owned;
mod world;

mod backup;
mod bounds;
mod dead_letters;
mod deletion;
mod faults;
mod fifo;
mod handles;
mod leases;
mod parking;
mod progress;
mod quarantine;
mod rate;
mod receive;
mod recovery;
mod redelivery;
mod redrive;
mod reset;
mod retention;
mod revives;
mod send;
