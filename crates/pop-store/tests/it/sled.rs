//! The sled store keeps the contract.

use std::path::Path;

use pop_store::{
    OpenOptions, Result, SledStore,
    testkit::{KEYSPACES, StoreFactory},
};

struct Sled;

impl StoreFactory for Sled {
    type Store = SledStore;

    async fn open(&self, folder: &Path) -> Result<SledStore> {
        SledStore::open(folder, OpenOptions::new(&KEYSPACES).with_staging_kept())
    }
}

pop_store::conformance!(Sled);
