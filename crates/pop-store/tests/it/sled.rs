//! The sled store keeps the contract.

use std::path::Path;

use pop_store::{
    OpenOptions, Result, SledStore,
    testkit::{
        KEYSPACES, Kit, StoreFactory,
        checks::{model, snapshot},
        run,
    },
};

struct Sled;

/// The same without memory for snapshots, so that all that is kept for them is on disk.
struct SledWithoutMemory;

impl StoreFactory for Sled {
    type Store = SledStore;

    async fn open(&self, folder: &Path) -> Result<SledStore> {
        SledStore::open(folder, OpenOptions::new(&KEYSPACES).with_staging_kept())
    }
}

impl StoreFactory for SledWithoutMemory {
    type Store = SledStore;

    async fn open(&self, folder: &Path) -> Result<SledStore> {
        let options = OpenOptions::new(&KEYSPACES).with_snapshot_bytes(0);
        SledStore::open(folder, options.with_staging_kept())
    }
}

pop_store::conformance!(Sled);

/// Mutants: write what is kept once the group is written; read it under another key.
#[test]
fn snapshots_without_memory_keep_the_contract() {
    run(
        "snapshots_without_memory",
        SledWithoutMemory,
        async |kit: &Kit<SledWithoutMemory>| {
            snapshot::pages_of_a_snapshot_under_heavy_writes_are_of_its_moment(kit).await;
            model::random_operations_have_the_answers_of_the_store_in_memory(kit).await;
        },
    );
}
