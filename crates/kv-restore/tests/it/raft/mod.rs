//! Three nodes of a Raft group, and everything that can happen to a snapshot between them.
//! The nodes are those of the example `three_nodes`.

mod group;
mod install;
mod leaders;
mod transfer;
mod way;

#[path = "../../../examples/three_nodes/log.rs"]
mod log;
#[path = "../../../examples/three_nodes/machine.rs"]
mod machine;
#[path = "../../../examples/three_nodes/network.rs"]
mod network;
