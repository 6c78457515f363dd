//! The settings of a server, and where they come from.
//!
//! A setting has one name: `--ack-durability`, `POP_ACK_DURABILITY`, and `ack-durability` in
//! the file are the same thing. So there is one struct of choices, filled by flags and
//! environment and filled by the file; the first that has a choice wins, and what nobody
//! chose has a default.

mod age;
mod choices;
mod data_port;
mod file;
mod settings;

pub(crate) use choices::Choices;
pub(crate) use settings::{LogFormat, Settings, log_filter};
