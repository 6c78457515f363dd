//! The store in memory keeps the contract.

use std::path::Path;

use pop_store::{
    MemStore, Result,
    testkit::{KEYSPACES, StoreFactory},
};

struct Memory;

impl StoreFactory for Memory {
    type Store = MemStore;

    async fn open(&self, _folder: &Path) -> Result<MemStore> {
        Ok(MemStore::new(&KEYSPACES))
    }
}

pop_store::conformance!(Memory, volatile);
