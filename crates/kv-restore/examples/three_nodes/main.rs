//! Three nodes of a Raft group in one process. The third lags behind the log of the others
//! again and again, needs a snapshot each time, and each time something else goes wrong with
//! it. It ends with an error if a node is stuck or its content differs.
//!
//! `cargo run -p kv-restore --features openraft --example three_nodes`

#![allow(clippy::print_stdout, reason = "an example shows what it does")]

pub(crate) mod log;
pub(crate) mod machine;
pub(crate) mod network;

mod group;

use kv_restore::Digest;
use pop_store::testkit::{Call, Effect, Fault};

use self::group::Group;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

#[tokio::main]
async fn main() -> Result<()> {
    run().await?;
    Ok(())
}

/// Goes through all of it.
///
/// # Errors
///
/// If a node is stuck or has another content than the others.
pub(crate) async fn run() -> Result<Digest> {
    let mut group = Group::start().await?;
    start_fails(&mut group).await?;
    crash_in_the_switch(&mut group).await?;
    leader_dies(&mut group).await?;
    let digest = equal(&group).await?;
    println!("all three nodes have the same rows: {digest}");
    Ok(digest)
}

/// The store of node 3 refuses to make room for the snapshot.
async fn start_fails(group: &mut Group) -> Result<()> {
    println!("1. Node 3 lags, and the start of its restore fails at once.");
    fall_behind(group).await?;
    let faults = group.of(3)?.faults.clone();
    faults.arm(Call::BeginReplace, 1, Fault::Refuse);
    group.network.heal(3);
    group.agree(&[1, 2, 3]).await?;
    let tries = faults.call_count(Call::BeginReplace);
    println!("   It began {tries} times and installed the snapshot.");
    happened(faults.injected_count() == 1 && tries > 1)
}

/// The power of node 3 fails while it switches to the snapshot.
async fn crash_in_the_switch(group: &mut Group) -> Result<()> {
    println!("2. Node 3 lags, and its power fails in the switch to the snapshot.");
    fall_behind(group).await?;
    let had = group.of(3)?.content().await?.rows();
    let (effect, keep) = (Effect::DidNotHappen, 0);
    let faults = group.of(3)?.faults.clone();
    faults.arm(Call::Publish, 1, Fault::Crash { effect, keep });
    let injected = faults.injected_count();
    group.network.heal(3);
    let died = group
        .of(3)?
        .is("node 3 dies", |it| it.running_state.is_err());
    died.await?;
    let left = group.kill(3).await?;
    group.restart(3, left).await?;
    group.agree(&[1, 2, 3]).await?;
    let has = group.of(3)?.content().await?.rows();
    println!("   It had {had} rows, and {has} a while after it was started again.");
    happened(faults.injected_count() == injected + 1)
}

/// The leader dies while node 3 has some of its rows, and the next leader has less than these.
async fn leader_dies(group: &mut Group) -> Result<()> {
    println!("3. Node 3 lags, and the leader dies in the middle of the transfer.");
    fall_behind(group).await?;
    // Node 2 gets these entries, and does not hear that they are agreed on.
    let less = group.of(2)?.metrics().last_applied;
    group.network.tell_up_to(2, less);
    group.write(200).await?;
    group.agree(&[1]).await?;
    group.compact(1).await?;
    let more = group.of(1)?.metrics().last_applied;
    let faults = group.of(3)?.faults.clone();
    let published = faults.call_count(Call::Publish);
    faults.arm(Call::Load, 2, Fault::Hang(Effect::Happened));
    group.network.heal(3);
    faults.until_hung(1).await;
    let left = group.kill(1).await?;
    let index = |it: Option<openraft::LogId<_>>| it.map_or(0, |it| it.index());
    group.network.tell_all(2);
    group.elect(2).await?;
    group.agree(&[2, 3]).await?;
    println!(
        "   It was fetching the snapshot up to entry {}, and got the one up to {} of the next leader.",
        index(more),
        index(less)
    );
    group.restart(1, left).await?;
    group.write(10).await?;
    group.agree(&[1, 2, 3]).await?;
    println!("   The old leader came back and follows.");
    happened(more > less && faults.call_count(Call::Publish) == published + 1)
}

/// Cuts node 3 off, and lets the others throw away the entries that it lacks.
async fn fall_behind(group: &mut Group) -> Result<()> {
    group.network.cut(3);
    group.write(500).await?;
    group.agree(&[1, 2]).await?;
    group.compact(1).await?;
    group.compact(2).await
}

/// What was to go wrong must have gone wrong: else this shows nothing.
fn happened(as_told: bool) -> Result<()> {
    as_told
        .then_some(())
        .ok_or_else(|| "the fault did not come where it was put".into())
}

/// The digest of all nodes.
async fn equal(group: &Group) -> Result<Digest> {
    let digest = group.of(1)?.content().await?;
    for id in [2, 3] {
        let other = group.of(id)?.content().await?;
        if other != digest {
            return Err(format!("node 1 has {digest}, and node {id} has {other}").into());
        }
    }
    Ok(digest)
}
