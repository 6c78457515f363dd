//! Three nodes of a Raft group, and everything that can happen to a snapshot between them.
//! The nodes are those of the example `three_nodes`.

mod group;
mod install;
mod leaders;
mod transfer;
mod way;

#[path = "../../../examples/three_nodes/main.rs"]
#[allow(dead_code, reason = "it begins in a test here")]
mod example;

use example::{log, machine, network};

// Mutants: whoever asks while another's rows are moved is refused; a session that fails is an
// answer to the leader; `Load::commit` leaves the seal out.
#[tokio::test(start_paused = true)]
async fn the_example_goes_through_all_its_faults_and_ends_with_equal_nodes() {
    example::run().await.unwrap();
}
