//! Who refers to the messages of a queue.
//!
//! A reference to a message is a lease row of its queue, a retry entry whose source it
//! is, or a record of one of these in quarantine. References move while they are looked
//! for: an expired lease becomes an entry, an entry that is delivered and expires becomes a
//! later one. None is ever nowhere between.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use bytes::Bytes;
use pop_model::{
    Checkpoint, Holder, LeaseKey, Mutant, Offset, QueueId, RetryEntry, RetryKey, StoredKey,
    StoredValue, SubscriptionEpoch, SubscriptionQueue, SubscriptionRecord,
};

use super::{LEASE, RETRY, progress, quarantine, value::corrupt};
use crate::{Error, Result, Scan, Store, StoreExt};

/// How many retry entries are read together.
const ENTRIES_AT_ONCE: usize = 1_000;

/// A group that consumes a queue.
#[derive(Clone, Copy, Debug)]
pub struct Subscriber {
    /// Which queue, and who.
    pub queue: SubscriptionQueue,
    /// The subscription as it is stored.
    pub record: SubscriptionRecord,
    /// Whether it consumes in order. Its rows then speak of messages that are still open:
    /// they are no references, and end with their message.
    pub ordered: bool,
}

/// Says of a retry queue below which sequence no entry arrives any more. Several are written
/// at a time, and those that were given a sequence first may be there last.
pub type RetryEnd<'a> = &'a (dyn Fn(SubscriptionQueue) -> Offset + Sync);

/// Who holds which message.
pub(super) type Held = BTreeMap<Offset, BTreeSet<Holder>>;

/// Who refers to the messages of one queue below an offset.
#[derive(Debug)]
pub(super) struct References {
    store: Arc<dyn Store>,
    groups: Vec<Group>,
    below: Offset,
}

/// The references of one group.
#[derive(Debug)]
struct Group {
    subscriber: Subscriber,
    // Where its retry entries are. An entry that moves on gets a higher sequence, so what
    // is found later is where it is now.
    retries: BTreeMap<Offset, u64>,
    next_sequence: u64,
}

impl References {
    /// Prepares to look for references to what lies below `below`.
    pub(super) async fn load(
        store: Arc<dyn Store>,
        subscribers: Vec<Subscriber>,
        below: Offset,
    ) -> Result<Self> {
        let mut groups = Vec::with_capacity(subscribers.len());
        for subscriber in subscribers {
            let retry_queue = SubscriptionQueue {
                queue: QueueId::RETRY,
                ..subscriber.queue
            };
            // Below it only those entries are left whose delivery is stored, and what is
            // deleted is not walked.
            let committed = progress::committed(store.as_ref(), retry_queue).await?;
            let mut group = Group {
                subscriber,
                retries: BTreeMap::new(),
                next_sequence: committed.get(),
            };
            if !Mutant::PassedEntriesForgotten.is_on() {
                group.passed(store.as_ref(), retry_queue, below).await?;
            }
            groups.push(group);
        }
        Ok(Self {
            store,
            groups,
            below,
        })
    }

    /// The offset below which they are looked for.
    pub(super) fn below(&self) -> Offset {
        self.below
    }

    /// Those who consume the queue in order.
    pub(super) fn ordered(&self) -> impl Iterator<Item = SubscriptionQueue> {
        let ordered = self.groups.iter().filter(|group| group.subscriber.ordered);
        ordered.map(|group| group.subscriber.queue)
    }

    /// All references to the messages in `from..to`.
    pub(super) async fn between(
        &mut self,
        from: Offset,
        to: Offset,
        retry_end: RetryEnd<'_>,
    ) -> Result<Held> {
        let mut held = Held::new();
        if Mutant::RetentionForgetsReferences.is_on() {
            return Ok(held);
        }
        // Before and after all else: what is put away meanwhile, or put back to work.
        self.quarantined(from, to, &mut held).await?;
        let store = self.store.as_ref();
        for group in &mut self.groups {
            group
                .between(store, (from, to), self.below, retry_end, &mut held)
                .await?;
        }
        self.quarantined(from, to, &mut held).await?;
        Ok(held)
    }

    async fn quarantined(&self, from: Offset, to: Offset, held: &mut Held) -> Result<()> {
        let Some(first) = self.groups.first() else {
            return Ok(());
        };
        let queue = first.subscriber.queue.log_queue();
        let is_there = |holder: &Holder| {
            let mut groups = self.groups.iter();
            groups.any(|group| group.subscriber.queue.group == holder.group)
        };
        for (offset, holder) in quarantine::references(self.store.as_ref(), queue).await? {
            if from <= offset && offset < to && is_there(&holder) {
                held.entry(offset).or_default().insert(holder);
            }
        }
        Ok(())
    }
}

impl Group {
    async fn between(
        &mut self,
        store: &dyn Store,
        (from, to): (Offset, Offset),
        below: Offset,
        retry_end: RetryEnd<'_>,
        held: &mut Held,
    ) -> Result<()> {
        loop {
            // Leases before retry entries, since an expired lease becomes an entry; and
            // all again where an entry is gone, since it may have become a later one.
            self.leases(store, from, to, held).await?;
            self.follow_retries(store, below, retry_end).await?;
            if self.retries(store, from, to, held).await? {
                return Ok(());
            }
        }
    }

    /// Notes a reference, unless a reset made it void.
    fn note(&self, held: &mut Held, offset: Offset, epoch: SubscriptionEpoch) {
        if epoch >= self.subscriber.record.epoch {
            let group = self.subscriber.queue.group;
            held.entry(offset)
                .or_default()
                .insert(Holder { group, epoch });
        }
    }

    async fn leases(
        &self,
        store: &dyn Store,
        from: Offset,
        to: Offset,
        held: &mut Held,
    ) -> Result<()> {
        let queue = self.subscriber.queue;
        let key = |offset| LeaseKey { queue, offset }.encode();
        let visit = |entries: Vec<crate::Entry>| {
            for entry in entries {
                let at = LeaseKey::decode(entry.key.clone());
                let at = at.map_err(|error| corrupt(store, LEASE, &entry.key, error))?;
                match Checkpoint::decode(entry.value) {
                    Ok(lease) => self.note(held, at.offset, lease.identity.epoch),
                    // It goes to quarantine when it is due; until then nothing is lost.
                    Err(_) => self.note(held, at.offset, self.subscriber.record.epoch),
                }
            }
            Ok::<_, Error>(true)
        };
        let scan = Scan::range(key(from), key(to));
        store.for_each_page(LEASE, scan, visit).await
    }

    /// Notes the retry entries that the committed offset of their queue has passed: a
    /// delivery of each is stored, or in quarantine.
    async fn passed(
        &mut self,
        store: &dyn Store,
        retry_queue: SubscriptionQueue,
        below: Offset,
    ) -> Result<()> {
        let mut sequences = BTreeSet::new();
        // Before and after the rows: what is put away meanwhile, or put back to work.
        sequences.extend(quarantine::deliveries(store, retry_queue).await?);
        let key = |offset| LeaseKey {
            queue: retry_queue,
            offset,
        };
        let end = key(Offset::new(self.next_sequence)).encode();
        let scan = Scan::range(key(Offset::ZERO).encode(), end);
        let visit = |entries: Vec<crate::Entry>| {
            for entry in entries {
                let at = LeaseKey::decode(entry.key.clone());
                let at = at.map_err(|error| corrupt(store, LEASE, &entry.key, error))?;
                sequences.insert(at.offset);
            }
            Ok::<_, Error>(true)
        };
        store.for_each_page(LEASE, scan, visit).await?;
        sequences.extend(quarantine::deliveries(store, retry_queue).await?);
        let sequences: Vec<Offset> = sequences.into_iter().collect();
        for some in sequences.chunks(ENTRIES_AT_ONCE) {
            let key = |sequence: &Offset| RetryKey {
                group: retry_queue.group,
                topic: retry_queue.topic,
                sequence: sequence.get(),
            };
            let keys: Vec<_> = some.iter().map(|it| key(it).encode()).collect();
            let rows = store.multi_get(RETRY, &keys).await?;
            // What is gone was settled, or is a later entry.
            for (sequence, row) in some.iter().zip(rows) {
                if let Some(row) = row {
                    self.found(sequence.get(), row, below);
                }
            }
        }
        Ok(())
    }

    /// Notes a retry entry, if it refers to a message that is looked for.
    fn found(&mut self, sequence: u64, row: Bytes, below: Offset) {
        let queue = self.subscriber.queue;
        match RetryEntry::decode(row) {
            Ok(entry) if entry.source == queue.log_queue() && entry.offset < below => {
                self.retries.insert(entry.offset, sequence);
            }
            Ok(_) => {}
            // Nobody can say what it refers to; it goes to quarantine when taken.
            Err(error) => {
                tracing::error!(%queue, sequence, %error, "nothing is kept for a retry entry that can't be read");
            }
        }
    }

    /// Notes the retry entries that came since the last look.
    async fn follow_retries(
        &mut self,
        store: &dyn Store,
        below: Offset,
        retry_end: RetryEnd<'_>,
    ) -> Result<()> {
        let queue = self.subscriber.queue;
        // Asked before the look, which so sees all that is below.
        let end = retry_end(queue).get();
        let mut next = self.next_sequence;
        let (start, stop) = RetryKey::range_from(queue.group, queue.topic, self.next_sequence);
        let visit = |entries: Vec<crate::Entry>| {
            for entry in entries {
                let key = RetryKey::decode(entry.key.clone());
                let key = key.map_err(|error| corrupt(store, RETRY, &entry.key, error))?;
                next = key.sequence.saturating_add(1);
                self.found(key.sequence, entry.value, below);
            }
            Ok::<_, Error>(true)
        };
        store
            .for_each_page(RETRY, Scan::range(start, stop), visit)
            .await?;
        // What is above it is looked for again.
        self.next_sequence = self.next_sequence.max(next.min(end));
        Ok(())
    }

    /// Notes the entries as they are now. Returns whether all that were known are there.
    async fn retries(
        &mut self,
        store: &dyn Store,
        from: Offset,
        to: Offset,
        held: &mut Held,
    ) -> Result<bool> {
        let known: Vec<_> = self.retries.range(from..to).collect();
        let key = |(_, sequence): &(&Offset, &u64)| {
            let key = RetryKey {
                group: self.subscriber.queue.group,
                topic: self.subscriber.queue.topic,
                sequence: **sequence,
            };
            key.encode()
        };
        let keys: Vec<_> = known.iter().map(key).collect();
        let mut gone = Vec::new();
        let rows = store.multi_get(RETRY, &keys).await?;
        for (((offset, _), key), row) in known.into_iter().zip(keys).zip(rows) {
            let Some(row) = row else {
                gone.push(*offset);
                continue;
            };
            let entry = RetryEntry::decode(row);
            let entry = entry.map_err(|error| corrupt(store, RETRY, &key, error))?;
            self.note(held, *offset, entry.epoch);
        }
        for offset in &gone {
            self.retries.remove(offset);
        }
        Ok(gone.is_empty())
    }
}
