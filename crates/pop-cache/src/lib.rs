#![doc = include_str!("../README.md")]

// In reading order: the states of one queue, pure; where expired leases go; all queues.
mod queue;

mod sink;

mod cache;
mod cached;
mod closing;
mod count;
mod dead_letter;
mod ends;
mod error;
mod flush;
mod full;
mod group;
mod hand_out;
mod load;
mod options;
mod parking;
mod repeat;
mod reset;
mod run;
mod settle;
mod sweep;
mod task;

pub use cache::{Foundation, LeaseCache, Subscribe};
pub use cached::CachedQueue;
pub use error::{CacheError, Result};
pub use hand_out::Reserved;
pub use options::CacheOptions;
pub use queue::{
    Ack, Admitted, Change, Counts, GiveBack, Granted, Keep, LeaseQueue, Reservation, Restored,
    RestoredParked, Run, SettlePlan, StagedLease, Taken, Terms, Why,
};
pub use repeat::Reread;
pub use sink::{Decision, Failure, RetrySink, Revival, RevivalKind, SinkError, decide};

#[cfg(test)]
mod mutants;
