//! The fjall store keeps the contract.

use std::path::Path;

use pop_store::{
    FjallStore, OpenOptions, Result,
    testkit::{KEYSPACES, StoreFactory},
};

struct Fjall;

impl StoreFactory for Fjall {
    type Store = FjallStore;

    async fn open(&self, folder: &Path) -> Result<FjallStore> {
        FjallStore::open(folder, OpenOptions::new(&KEYSPACES).with_staging_kept())
    }
}

pop_store::conformance!(Fjall);
