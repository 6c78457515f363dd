#![doc = include_str!("../README.md")]

// In reading order: the handle, one operation each, what they stand on.
mod broker;

mod operate;
mod receive;
mod send;
mod settle;

mod catalog;
mod consumption;
mod core;
mod counters;
mod error;
mod filter;
mod revive;

// What it stands on and what it is reached through.
pub mod listener;
pub mod rpc;
pub mod stores;

pub use broker::{Broker, Health, OpenStore};
pub use catalog::{Catalog, CatalogOptions, GroupSpec, Topic, TopicSpec};
pub use core::{BrokerOptions, Entropy};
pub use counters::Counts;
pub use error::{BrokerError, MessageError};
pub use filter::Filter;
pub use receive::{Delivery, Handout, ReceiveRequest};
pub use send::{NewMessage, SendReceipt, single_topic};
