//! Parking the messages of blocked message groups in the store, and bringing them back.

use std::{collections::HashMap, sync::Arc};

use pop_model::{Checkpoint, Offset, SubscriptionQueue};
use pop_store::{Store, WriteBatch, table::parked};

use crate::{
    Admitted, CachedQueue, LeaseCache, LeaseQueue, Reserved, RestoredParked, Result, RetrySink,
    ends::{End, batches},
};

/// Reads what is parked of a queue with these rows.
pub(crate) async fn load(
    store: &dyn Store,
    queue: SubscriptionQueue,
    rows: &[Checkpoint],
) -> pop_store::Result<RestoredParked> {
    // A row of what is parked is of a delivery that goes on, and holds up its group.
    let mut last_out: HashMap<u64, Offset> = HashMap::new();
    for row in rows {
        if let Some(group) = row.message_group_hash {
            let last = last_out.entry(group).or_default();
            *last = row.identity.offset.max(*last);
        }
    }
    let mut parked = RestoredParked::default();
    parked::for_each(store, queue, |(group, offset)| {
        parked.count += 1;
        if last_out.get(&group).is_some_and(|last| offset <= *last) {
            parked.out.push((group, offset));
        } else if parked.first.last().is_none_or(|(last, _)| *last != group) {
            parked.first.push((group, offset));
        }
    })
    .await?;
    Ok(parked)
}

impl<K: RetrySink> LeaseCache<K> {
    /// Brings up to `count` messages of one message group back that is not blocked and of
    /// which all that is left is parked. Returns whether there was one. Call it with the
    /// [turn to read](CachedQueue::read_turn).
    ///
    /// # Errors
    ///
    /// The store's. Nothing has changed then.
    pub async fn unpark(&self, cached: &Arc<CachedQueue>, count: usize) -> Result<bool> {
        let (epoch, waiting) = cached.look(|leases| (leases.epoch(), leases.waits_for_parked()));
        let Some(waiting) = waiting else {
            return Ok(false);
        };
        let store = self.inner.store.as_ref();
        // One more says where the rest begins.
        let wanted = count.max(1);
        let read = parked::of_message_group(store, cached.queue, waiting, wanted + 1).await?;
        self.with(cached, |leases| {
            leases.unpark(epoch, waiting, &read, wanted)
        });
        Ok(true)
    }
}

impl<K: RetrySink> Reserved<K> {
    /// The message groups of new offsets of an ordered queue, in order. Each waits for its
    /// turn from here on: in memory, or parked in the store.
    ///
    /// # Errors
    ///
    /// The store's. What it refused to park is read again.
    pub async fn admit(mut self, groups: impl IntoIterator<Item = (Offset, u64)>) -> Result<()> {
        let groups: Vec<_> = groups.into_iter().collect();
        let offsets: Vec<Offset> = groups.iter().map(|(offset, _)| *offset).collect();
        self.forget(&offsets);
        let epoch = self.epoch;
        let now = self.cache.inner.clock.lease();
        let parks: Vec<Offset> = self.cache.with(&self.cached, |leases: &mut LeaseQueue| {
            let admitted = groups.into_iter().filter(|(offset, group)| {
                leases.admit(epoch, *offset, *group, now) == Admitted::Parks
            });
            admitted.map(|(offset, _)| offset).collect()
        });
        // The plan that settles them writes their rows.
        let park = |offset| End::Written {
            offset,
            writes: WriteBatch::new(),
        };
        for batch in batches(parks.into_iter().map(park).collect(), usize::MAX, true) {
            self.cache.commit(&self.cached, epoch, batch).await?;
        }
        Ok(())
    }
}
