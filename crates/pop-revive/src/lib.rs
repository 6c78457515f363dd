#![doc = include_str!("../README.md")]

// In reading order: what becomes of a due delivery, when it is due, one pass, the loop.
mod sink;

mod cursor;
mod pass;
mod schedule;
mod worker;

pub use cursor::DueCursor;
pub use pass::{Classified, Due, classify};
pub use schedule::{DueSchedule, DueTicket};
pub use sink::{RetrySink, Revival, RevivalKind, SinkError};
pub use worker::{PassReport, Reviver, ReviverOptions};
