//! How many deliveries of a group are out, over all of its queues, and who waits for fewer.

use std::{
    collections::BTreeSet,
    sync::atomic::{AtomicI64, Ordering},
};

use parking_lot::Mutex;
use pop_model::SubscriptionQueue;

/// The deliveries of one group that are out, stored ones included.
#[derive(Debug, Default)]
pub(crate) struct GroupCount {
    in_flight: AtomicI64,
    // Queues that had to be held back because the group had too many out.
    held_back: Mutex<BTreeSet<SubscriptionQueue>>,
}

impl GroupCount {
    pub(crate) fn in_flight(&self) -> u64 {
        let in_flight = self.in_flight.load(Ordering::Acquire);
        u64::try_from(in_flight).unwrap_or(0)
    }

    /// Adds up to `count`, as far as `max` allows. Returns how many.
    pub(crate) fn claim(&self, count: u64, max: u64) -> u64 {
        let mut claimed = 0;
        let _ = self
            .in_flight
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |before| {
                let left = max.saturating_sub(u64::try_from(before).unwrap_or(0));
                claimed = left.min(count);
                before.checked_add_unsigned(claimed)
            });
        claimed
    }

    /// Holds a queue back while `max` are out. Returns whether they still are: seen under
    /// the lock that a change below `max` takes, so that one of the two sees the other.
    pub(crate) fn hold_back(&self, queue: SubscriptionQueue, max: u64) -> bool {
        let mut held_back = self.held_back.lock();
        let is_full = self.in_flight() >= max;
        if is_full {
            held_back.insert(queue);
        }
        is_full
    }

    /// Changes the count. Returns the queues that are held back no longer.
    pub(crate) fn add(&self, by: i64, max: u64) -> BTreeSet<SubscriptionQueue> {
        let before = self.in_flight.fetch_add(by, Ordering::AcqRel);
        let is_full = |count: i64| u64::try_from(count).unwrap_or(0) >= max;
        if !is_full(before) || is_full(before.saturating_add(by)) {
            return BTreeSet::new();
        }
        std::mem::take(&mut *self.held_back.lock())
    }
}

#[cfg(test)]
mod tests {
    use pop_model::{GroupId, QueueId, TopicId};

    use super::*;

    fn queue(topic: u64) -> SubscriptionQueue {
        SubscriptionQueue {
            group: GroupId::new(1),
            topic: TopicId::new(topic),
            queue: QueueId::new(0),
        }
    }

    #[test]
    fn no_more_is_claimed_than_is_left() {
        let group = GroupCount::default();
        assert_eq!(group.claim(7, 10), 7);
        // Mutant: what is left is looked at first, and taken later.
        assert_eq!(group.claim(7, 10), 3);
        assert_eq!(group.claim(7, 10), 0);
        assert_eq!(group.in_flight(), 10);
    }

    #[test]
    fn whoever_frees_more_than_one_at_once_frees_every_queue_that_was_held_back() {
        let group = GroupCount::default();
        group.add(12, 10);
        assert!(group.hold_back(queue(1), 10));
        assert!(group.hold_back(queue(2), 10));
        // Still as many as are allowed.
        assert!(group.add(-2, 10).is_empty());
        // Mutant: only a change from exactly one too many counts.
        assert_eq!(group.add(-5, 10), BTreeSet::from([queue(1), queue(2)]));
        assert!(group.add(-1, 10).is_empty());
        assert!(!group.hold_back(queue(1), 10));
    }
}
