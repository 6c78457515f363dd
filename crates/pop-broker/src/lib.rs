#![doc = include_str!("../README.md")]

// In reading order: the handle, one operation each, what they stand on.
mod broker;

mod deletion;
mod operate;
mod progress;
mod receive;
mod redrive;
mod release;
mod send;
mod settle;

mod catalog;
mod consumption;
mod core;
mod counters;
mod error;
mod filter;
mod look;
mod owner;
mod retention;
mod revive;
mod seldom;

#[cfg(test)]
mod heard;

// What it stands on and what it is reached through.
pub mod bootstrap;
pub mod data;
pub mod handover;
pub mod listener;
pub mod rpc;
pub mod space;
pub mod stores;
pub mod transfer;

pub use broker::{Broker, Health, OpenStore};
pub use catalog::{Catalog, CatalogOptions, GroupSpec, Topic, TopicSpec};
pub use core::{BrokerOptions, Entropy};
pub use counters::Counts;
pub use deletion::{DeadLetters, DeletedGroup};
pub use error::{BrokerError, MessageError};
pub use filter::Filter;
pub use owner::{NotOwner, Retired};
pub use progress::{QueueProgress, ResetTo};
pub use receive::{Delivery, Handout, ReceiveRequest};
pub use retention::{ClockJump, RetentionStatus};
pub use send::{NewMessage, SendReceipt, single_topic};
