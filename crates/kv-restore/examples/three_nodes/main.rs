//! Three nodes of a Raft group in one process: one lags behind the log of the others, gets a
//! snapshot, and ends with the same content.
//!
//! `cargo run -p kv-restore --features openraft --example three_nodes`

#![allow(clippy::print_stdout, reason = "an example shows what it does")]

mod log;
mod machine;
mod network;

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use kv_restore::{
    Admission, Dumper, Limiter, Options, PeerId, RestorerOptions, digest, transport::LocalTransport,
};
use openraft::{BasicNode, Config, Raft, SnapshotPolicy, async_runtime::WatchReceiver};
use pop_store::{MemStore, Store};

use crate::{
    log::Log,
    machine::{APPLIED, Machine, ROWS, SEALS},
    network::{Network, Node},
};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

const LONG_ENOUGH: Option<Duration> = Some(Duration::from_secs(30));

#[tokio::main]
async fn main() -> Result<()> {
    let network = Network::default();
    // Rows go their own way. Here it leads through memory; `transport::framed` makes it of
    // any stream between machines.
    let rows = LocalTransport::new(PeerId::new("a node"));
    let mut nodes = Vec::new();
    for id in 1..=3 {
        nodes.push(start(id, &network, &rows).await?);
    }
    let [(leader, _), _, (lagging, _)] = nodes.as_slice() else {
        unreachable!("three were started");
    };
    let members = (1..=3).map(|id| (id, BasicNode::default()));
    leader
        .initialize(members.collect::<BTreeMap<_, _>>())
        .await?;
    leader
        .wait(LONG_ENOUGH)
        .current_leader(1, "elected")
        .await?;
    leader.client_write("city=Paris".to_owned()).await?;

    network.cut(3);
    for number in 0..2_000 {
        let entry = format!("key {number}=value {number}");
        leader.client_write(entry).await?;
    }
    println!("node 3 was cut off for 2000 entries, most of which no log has any more.");

    network.heal(3);
    let last = leader
        .metrics()
        .borrow_watched()
        .last_applied
        .map(|it| it.index());
    for (raft, _) in &nodes {
        let wait = raft.wait(LONG_ENOUGH);
        wait.applied_index_at_least(last, "equal").await?;
    }
    let snapshot = lagging.metrics().borrow_watched().snapshot;
    let snapshot = snapshot.ok_or("node 3 got no snapshot")?;
    println!("node 3 got a snapshot up to entry {}.", snapshot.index());
    for (id, (raft, store)) in (1..).zip(&nodes) {
        let view = store.snapshot().await?;
        println!("node {id}: {}", digest(view.as_ref(), &[ROWS]).await?);
        raft.shutdown().await?;
    }
    Ok(())
}

/// Starts a node with an empty store in memory. Any other store will do.
async fn start(
    id: u64,
    network: &Network,
    rows: &LocalTransport,
) -> Result<(Raft<machine::Types, Machine>, MemStore)> {
    let store = MemStore::new(&[ROWS, SEALS, APPLIED]);
    let name = PeerId::new(format!("node {id}"));
    let dumper = Dumper::new(Options::default(), Admission::new(4), Limiter::none());
    rows.add(name.clone(), dumper.clone());
    // Numbers that don't come twice; a server draws them at random.
    let next = AtomicU64::new(id << 32);
    let chance = Arc::new(move || next.fetch_add(1, Ordering::Relaxed));
    let machine = Machine::new(
        Arc::new(store.clone()),
        name,
        dumper,
        Arc::new(rows.clone()),
        RestorerOptions::new(chance),
    );
    let snapshots = machine.snapshots();
    let config = Config {
        // The shorter the log, the sooner a node that was away needs a snapshot.
        snapshot_policy: SnapshotPolicy::LogsSinceLast(500),
        max_in_snapshot_log_to_keep: 100,
        ..Config::default()
    };
    let config = Arc::new(config.validate()?);
    let raft = Raft::new(id, config, network.of(id), Log::default(), machine).await?;
    let node = Node {
        raft: raft.clone(),
        snapshots,
    };
    network.add(id, node);
    Ok((raft, store))
}
