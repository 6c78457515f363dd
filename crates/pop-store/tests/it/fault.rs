//! A store in which no fault is armed keeps the contract of the store below it.

use std::path::Path;

use pop_store::{
    MemStore, Result,
    testkit::{FaultStore, Faults, KEYSPACES, StoreFactory},
};

struct FaultyMemory;

impl StoreFactory for FaultyMemory {
    type Store = FaultStore<MemStore>;

    async fn open(&self, _folder: &Path) -> Result<Self::Store> {
        Ok(FaultStore::crashable(
            MemStore::new(&KEYSPACES),
            Faults::none(),
        ))
    }
}

pop_store::conformance!(FaultyMemory, volatile);
