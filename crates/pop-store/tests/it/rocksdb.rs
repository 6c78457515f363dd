//! The RocksDB store keeps the contract.

use std::path::Path;

use pop_store::{
    OpenOptions, Result, RocksStore,
    testkit::{KEYSPACES, StoreFactory},
};

struct Rocks;

impl StoreFactory for Rocks {
    type Store = RocksStore;

    async fn open(&self, folder: &Path) -> Result<RocksStore> {
        RocksStore::open(folder, OpenOptions::new(&KEYSPACES).with_staging_kept())
    }
}

pop_store::conformance!(Rocks);
