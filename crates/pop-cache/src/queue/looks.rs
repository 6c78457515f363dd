//! When to look at which receive: in buckets of 64 ms, so that an entry is four bytes.
//!
//! An entry is a hint. A receive that waits has one in the bucket of its look, or in a later
//! one if it was put off. Places of receives are used again, so that an entry may lead to
//! another receive than the one it was made for: one whose look is in a later bucket has an
//! entry there, and this one is dropped. Kept, it would be kept for ever.

use std::collections::{BTreeMap, VecDeque};

use pop_model::LeaseTime;

use super::receives::ReceiveId;

const BUCKET_SHIFT: u32 = 6;

#[derive(Debug, Default)]
pub(super) struct Looks {
    buckets: BTreeMap<u64, Bucket>,
}

#[derive(Debug)]
struct Bucket {
    earliest: LeaseTime,
    receives: VecDeque<ReceiveId>,
}

/// The entries of a bucket that was taken.
#[derive(Debug)]
pub(super) struct Taken {
    number: u64,
    bucket: Bucket,
}

impl Taken {
    pub(super) fn next(&mut self) -> Option<ReceiveId> {
        self.bucket.receives.pop_front()
    }

    /// Whether a receive that is looked at `at` has an entry in a later bucket than this.
    pub(super) fn is_before(&self, at: LeaseTime) -> bool {
        self.number < number(at)
    }
}

impl Looks {
    pub(super) fn insert(&mut self, at: LeaseTime, receive: ReceiveId) {
        let bucket = self.buckets.entry(number(at)).or_insert_with(|| Bucket {
            earliest: at,
            receives: VecDeque::new(),
        });
        bucket.earliest = bucket.earliest.min(at);
        bucket.receives.push_back(receive);
    }

    /// Puts the rest of what was taken back, before anything is inserted: as a whole, since
    /// all of a storm may lie in one bucket.
    pub(super) fn put_back(&mut self, taken: Taken) {
        if !taken.bucket.receives.is_empty() {
            self.buckets.insert(taken.number, taken.bucket);
        }
    }

    /// No look is before this.
    pub(super) fn earliest(&self) -> Option<LeaseTime> {
        let (_, bucket) = self.buckets.first_key_value()?;
        Some(bucket.earliest)
    }

    /// Takes the entries of the first bucket, if one of them may be due by `now`.
    pub(super) fn take(&mut self, now: LeaseTime) -> Option<Taken> {
        let entry = self.buckets.first_entry()?;
        let number = *entry.key();
        (entry.get().earliest <= now).then(|| Taken {
            number,
            bucket: entry.remove(),
        })
    }

    /// How many entries there are.
    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        let buckets = self.buckets.values();
        buckets.map(|bucket| bucket.receives.len()).sum()
    }
}

fn number(at: LeaseTime) -> u64 {
    at.as_millis() >> BUCKET_SHIFT
}
