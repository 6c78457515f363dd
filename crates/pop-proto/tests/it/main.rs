//! What is on the wire, compared with numbers written down by hand.
//!
//! The official clients were compiled with these numbers. A round trip through our own
//! types can't notice a wrong one, so these tests read and write raw protobuf.

mod numbers;
mod presence;
