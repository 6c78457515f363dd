//! The gRPC service through its port: what each call answers, and what it answers to
//! everything that a client should not have sent.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test may panic"
)]

mod ack;
mod connection;
mod fifo;
mod push;
mod receive;
mod route;
mod send;
mod support;
mod telemetry;
