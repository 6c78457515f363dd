//! The machine alone: by name what it must do, and against a naive model at random.

mod disk;
mod handing_out;
mod identity;
mod model;
mod ordered;
mod plans;
mod random;
mod receives;
mod restarts;
mod sweeping;
mod world;
mod writes;

use std::time::Duration;

use pop_model::{
    DeliveryIdentity, GroupId, Incarnation, LeaseTime, LogBounds, Mutant, Offset, QueueId,
    SubscriptionEpoch, SubscriptionQueue, TopicId,
};
use pop_store::Durability;

use super::*;
use crate::mutants::held_against;
use disk::{Disk, durable};

const STAY: Duration = Duration::from_secs(10);
const HIDDEN: Duration = Duration::from_secs(30);

fn queue_id() -> SubscriptionQueue {
    SubscriptionQueue {
        group: GroupId::new(1),
        topic: TopicId::new(2),
        queue: QueueId::new(3),
    }
}

/// The `number`th run on a store.
fn run(number: u64) -> Run {
    Run {
        incarnation: Incarnation::new(number),
        previous: number.checked_sub(1).map(Incarnation::new),
        stay: STAY,
        held_max: usize::MAX,
    }
}

fn at(millis: u64) -> LeaseTime {
    LeaseTime::from_millis(millis)
}

fn offset(offset: u64) -> Offset {
    Offset::new(offset)
}

fn offsets(offsets: impl IntoIterator<Item = u64>) -> Vec<Offset> {
    offsets.into_iter().map(Offset::new).collect()
}

fn until(end: u64) -> LogBounds {
    LogBounds {
        start: Offset::ZERO,
        end: offset(end),
    }
}

fn terms(now: u64) -> Terms<'static> {
    Terms {
        now: at(now),
        invisible_for: HIDDEN,
        attempt: 1,
        attempt_id: None,
        auto_renew: false,
    }
}

/// A queue that was never consumed before its log ended at `found_end`.
fn fresh(found_end: u64) -> LeaseQueue {
    LeaseQueue::restore(Disk::default().restored(false, found_end), run(1))
}

fn fresh_ordered() -> LeaseQueue {
    LeaseQueue::restore(Disk::default().restored(true, 0), run(1))
}

/// Hands out the next `count` offsets of a log that ends at `end`.
fn pop(queue: &mut LeaseQueue, count: usize, end: u64, now: u64) -> Vec<DeliveryIdentity> {
    let reserved = queue.reserve(count, until(end));
    let leased = queue.lease(reserved.epoch, &reserved.offsets, &terms(now));
    leased.into_iter().map(|granted| granted.identity).collect()
}

/// Plans the settling of `settles`, commits it, and says what was written.
fn settle(queue: &mut LeaseQueue, disk: &mut Disk, settles: &[Offset], durability: Durability) {
    let plan = queue.plan(settles.to_vec(), Vec::new());
    let plan = plan.expect("no other plan is in flight");
    disk.apply(&plan);
    queue.settled(durable(plan), durability);
}

fn flush(queue: &mut LeaseQueue, disk: &mut Disk) {
    settle(queue, disk, &[], Durability::Synced);
}

fn staged_offsets(staged: &[StagedLease]) -> Vec<u64> {
    let offsets = staged
        .iter()
        .map(|lease| lease.checkpoint.identity.offset.get());
    offsets.collect()
}
