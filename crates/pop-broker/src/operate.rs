//! What an operator asks a broker, beside what clients do.

use pop_model::QuarantineRecord;
use pop_store::table::quarantine;

use crate::{Broker, BrokerError};

impl Broker {
    /// How many leases are in memory.
    ///
    /// # Errors
    ///
    /// While the store is not open nobody knows.
    pub fn lease_count(&self) -> Result<u64, BrokerError> {
        Ok(self.core()?.cache.lease_count())
    }

    /// Records that could not be worked on, with the place of each: up to `count` of them
    /// in order, from the place `from` on.
    ///
    /// # Errors
    ///
    /// The store's.
    pub async fn quarantined(
        &self,
        from: u64,
        count: usize,
    ) -> Result<Vec<(u64, QuarantineRecord)>, BrokerError> {
        self.run(move |core| async move {
            Ok(quarantine::list(core.store.as_ref(), from, count).await?)
        })
        .await
    }
}
