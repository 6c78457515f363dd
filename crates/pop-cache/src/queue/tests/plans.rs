//! What is written, and what its outcome changes.

use super::*;

#[test]
fn the_gate_passes_nothing_that_is_open() {
    let mutants = [
        Mutant::GateIgnoresReserved,
        Mutant::GateIgnoresBuffered,
        Mutant::GateIgnoresStaged,
    ];
    for (state, mutant) in mutants.into_iter().enumerate() {
        held_against(&[mutant], || {
            let mut disk = Disk::default();
            let mut queue = fresh(0);
            let reserved = queue.reserve(1, until(2));
            if state > 0 {
                queue.lease(reserved.epoch, &reserved.offsets, &terms(0));
            }
            if state > 1 {
                queue.sweep(at(30_000), 1);
            }
            let last = pop(&mut queue, 1, 2, 30_000)[0];
            queue.ack(&last);
            flush(&mut queue, &mut disk);
            assert_eq!(disk.committed, offset(0));
            assert!(disk.is_settled(offset(1)));
        });
    }
}

#[test]
fn the_mark_of_what_is_settled_is_in_the_same_batch() {
    held_against(&[Mutant::MarkLeftOut], || {
        let mut disk = Disk::default();
        let mut queue = fresh(0);
        pop(&mut queue, 2, 2, 0);
        queue.sweep(at(30_000), 10);
        settle(&mut queue, &mut disk, &offsets([1]), Durability::Buffered);
        assert!(disk.is_settled(offset(1)), "the gate did not move");
    });
}

#[test]
fn one_plan_is_in_flight_at_a_time() {
    held_against(&[Mutant::SecondWriteWhileInDoubt], || {
        let mut queue = fresh(0);
        pop(&mut queue, 2, 2, 0);
        queue.sweep(at(30_000), 10);
        let plan = queue.plan(offsets([0]), Vec::new());
        assert!(plan.is_some() && queue.is_planning());
        assert!(queue.plan(offsets([1]), Vec::new()).is_none());
    });
}

#[test]
fn a_refused_plan_leaves_everything_to_the_next_one() {
    held_against(&[Mutant::RefusedPlanKeepsOffsets], || {
        let mut disk = Disk::default();
        let mut queue = fresh(0);
        let popped = pop(&mut queue, 2, 3, 0);
        queue.ack(&popped[1]);
        queue.sweep(at(30_000), 10);
        let reserved = queue.reserve(1, until(3));
        let settles = [offsets([0]), reserved.offsets].concat();
        let plan = queue.plan(settles, Vec::new()).expect("it is the only one");
        queue.refused(plan, at(30_500));
        assert_eq!(queue.counts().buffered, 1);
        assert_eq!(queue.reserve(1, until(3)).offsets, offsets([2]));
        assert!(queue.sweep(at(30_499), 10).is_empty());
        assert_eq!(staged_offsets(&queue.sweep(at(30_500), 10)), [0]);
        // The mark of the acknowledged one goes with the next plan.
        flush(&mut queue, &mut disk);
        assert!(disk.is_settled(offset(1)));
    });
}

#[test]
fn an_acknowledgement_is_durable_only_once_it_is_synced() {
    let mut disk = Disk::default();
    let mut queue = fresh(0);
    let popped = pop(&mut queue, 2, 2, 0);
    queue.sweep(at(10_000), 1);
    queue.unstage(offset(1), at(10_000));
    queue.ack(&popped[1]);
    // A write that takes the mark along and is not synced.
    settle(&mut queue, &mut disk, &offsets([0]), Durability::Buffered);
    assert!(disk.is_settled(offset(1)));
    // Mutant: a committed plan counts as a synced one.
    assert_eq!(queue.acks_durable(), 0);
    assert!(queue.is_dirty(), "it is to be synced yet");
    flush(&mut queue, &mut disk);
    assert_eq!(queue.acks_durable(), 1);
    assert!(!queue.is_dirty());
}

#[test]
fn a_plan_names_no_more_keys_than_it_says() {
    let pages = 300;
    let mut disk = Disk::default();
    let mut queue = fresh(0);
    let first = pop(&mut queue, 1, pages * 4_096, 0)[0];
    // Every page has marks in the store, and the first offset holds the gate.
    loop {
        let popped = pop(&mut queue, 4_096, pages * 4_096, 0);
        if popped.is_empty() {
            break;
        }
        for identity in &popped {
            queue.ack(identity);
        }
        flush(&mut queue, &mut disk);
    }
    let stored = disk.pages.len();
    assert!(stored as u64 >= pages - 1);
    queue.ack(&first);
    let mut plans = 0;
    while queue.is_dirty() {
        let plan = queue
            .plan(Vec::new(), Vec::new())
            .expect("it is the only one");
        let keys = plan.pages().len() + plan.dropped_pages().len() + plan.rows_ended().count() + 1;
        // Mutant: all pages that the gate passed are deleted at once; no store takes it.
        assert!(keys <= SettlePlan::KEYS_MAX, "{keys} keys");
        disk.apply(&plan);
        queue.settled(durable(plan), Durability::Synced);
        plans += 1;
    }
    assert!(plans > 1);
    assert_eq!(disk.committed, offset(pages * 4_096));
    assert!(disk.pages.is_empty(), "nothing is left behind");
}

#[test]
fn rows_that_did_not_fit_go_with_the_next_plan_and_so_do_their_marks() {
    let retry = SubscriptionQueue {
        queue: QueueId::RETRY,
        ..queue_id()
    };
    let restored = Restored {
        queue: retry,
        ..Disk::default().restored(false, 0)
    };
    let mut disk = Disk::default();
    let mut queue = LeaseQueue::restore(restored, run(1));
    for identity in pop(&mut queue, 600, 600, 0) {
        queue.ack(&identity);
    }
    let mut ended = Vec::new();
    while queue.is_dirty() {
        let plan = queue
            .plan(Vec::new(), Vec::new())
            .expect("it is the only one");
        ended.extend(plan.rows_ended());
        disk.apply(&plan);
        // Mutant: the committed offset passes an entry whose row is still there.
        assert_eq!(disk.committed.get(), ended.len() as u64);
        for later in ended.len()..600 {
            assert!(!disk.is_settled(offset(later as u64)));
        }
        let is_last = ended.len() == 600;
        queue.settled(durable(plan), Durability::Synced);
        assert_eq!(queue.acks_durable() == 600, is_last);
    }
    assert_eq!(ended, offsets(0..600));
}
