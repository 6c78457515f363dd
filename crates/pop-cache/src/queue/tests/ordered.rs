//! Message groups: their order, and what a restart knows of them.

use super::*;

/// Reads up to `count` new messages. Even offsets are of one message group, odd ones of
/// another.
fn admit(queue: &mut LeaseQueue, count: usize, end: u64, now: u64) {
    let reserved = queue.reserve(count, until(end));
    for offset in reserved.offsets {
        queue.admit(reserved.epoch, offset, offset.get() % 2, at(now));
    }
}

fn pop_group(queue: &mut LeaseQueue, count: usize, now: u64, name: &str) -> Vec<Granted> {
    let reserved = queue.reserve_group(count, None);
    let terms = Terms {
        attempt_id: Some(name),
        ..terms(now)
    };
    queue.lease(reserved.epoch, &reserved.offsets, &terms)
}

fn places(granted: &[Granted]) -> Vec<u64> {
    let offsets = granted.iter().map(|granted| granted.identity.offset.get());
    offsets.collect()
}

/// What was staged goes on as rows, or is ready again for another attempt.
fn keep(queue: &mut LeaseQueue, disk: &mut Disk, staged: Vec<StagedLease>) {
    let keeps = staged.into_iter().map(|lease| match lease.why {
        Why::Stayed => Keep::out(*lease.checkpoint),
        Why::Due => {
            let attempt = lease.checkpoint.delivery_attempt + 1;
            Keep::ready(*lease.checkpoint, attempt)
        }
    });
    let plan = queue.plan(Vec::new(), keeps.collect());
    let plan = plan.expect("no other plan is in flight");
    disk.apply(&plan);
    queue.settled(durable(plan), Durability::Buffered);
}

fn restart(disk: &Disk, end: u64, number: u64) -> LeaseQueue {
    LeaseQueue::restore(disk.restored(true, end), run(number))
}

#[test]
fn one_batch_of_a_message_group_is_out_at_a_time() {
    held_against(&[Mutant::FifoSecondBatch], || {
        let mut queue = fresh_ordered();
        admit(&mut queue, 6, 6, 0);
        assert_eq!(places(&pop_group(&mut queue, 2, 0, "a")), [0, 2]);
        assert_eq!(places(&pop_group(&mut queue, 9, 0, "b")), [1, 3, 5]);
        assert!(pop_group(&mut queue, 9, 0, "c").is_empty());
        assert!(!queue.has_ready(offset(6)));
    });
}

#[test]
fn a_message_group_goes_on_once_all_of_its_batch_is_done() {
    let mut queue = fresh_ordered();
    admit(&mut queue, 6, 6, 0);
    let batch = pop_group(&mut queue, 2, 0, "a");
    queue.ack(&batch[1].identity);
    assert_eq!(places(&pop_group(&mut queue, 1, 0, "b")), [1]);
    assert!(pop_group(&mut queue, 9, 0, "c").is_empty());
    queue.ack(&batch[0].identity);
    assert_eq!(places(&pop_group(&mut queue, 9, 0, "c")), [4]);
}

#[test]
fn what_was_not_acknowledged_comes_again_before_what_lies_behind_it() {
    held_against(&[Mutant::FifoPassesTheHead], || {
        let mut disk = Disk::default();
        let mut queue = fresh_ordered();
        admit(&mut queue, 5, 5, 0);
        let batch = pop_group(&mut queue, 2, 0, "a");
        queue.ack(&batch[0].identity);
        let staged = queue.sweep(at(30_000), 9);
        keep(&mut queue, &mut disk, staged);
        assert_eq!(places(&pop_group(&mut queue, 9, 30_000, "b")), [1, 3]);
        let again = pop_group(&mut queue, 2, 30_000, "c");
        assert_eq!(places(&again), [2, 4]);
        assert_eq!((again[0].attempt, again[1].attempt), (2, 1));
    });
}

#[test]
fn the_gate_does_not_pass_what_waits_for_its_message_group() {
    held_against(&[Mutant::GateIgnoresHeld], || {
        let mut disk = Disk::default();
        let mut queue = fresh_ordered();
        admit(&mut queue, 3, 3, 0);
        let batch = pop_group(&mut queue, 1, 0, "a");
        let other = pop_group(&mut queue, 1, 0, "b");
        queue.ack(&batch[0].identity);
        queue.ack(&other[0].identity);
        flush(&mut queue, &mut disk);
        assert_eq!(disk.committed, offset(2));
    });
}

#[test]
fn a_repeated_receive_gets_its_batch_again_and_no_other_does() {
    held_against(&[Mutant::FifoForgetsTheAttemptId], || {
        let mut queue = fresh_ordered();
        admit(&mut queue, 4, 4, 0);
        let batch = pop_group(&mut queue, 2, 0, "a");
        assert!(repeat(&mut queue, "b", 1_000).is_empty());
        let again = repeat(&mut queue, "a", 1_000);
        assert_eq!(again, batch);
        // Hidden anew, from then on.
        keep_nothing_due(&mut queue, 30_999);
        queue.ack(&batch[0].identity);
        assert_eq!(places(&repeat(&mut queue, "a", 2_000)), [2]);
    });
}

/// Repeats a receive of which everything could be read.
fn repeat(queue: &mut LeaseQueue, attempt_id: &str, now: u64) -> Vec<Granted> {
    let named = queue.named(attempt_id).into_iter();
    let read = named.map(|offset| (offset, ())).collect();
    let repeated = queue.repeat(attempt_id, read, at(now), HIDDEN);
    repeated.into_iter().map(|(granted, ())| granted).collect()
}

fn keep_nothing_due(queue: &mut LeaseQueue, now: u64) {
    for lease in queue.sweep(at(now), 9) {
        assert_eq!(lease.why, Why::Stayed);
        queue.unstage(lease.checkpoint.identity.offset, at(now));
    }
}

#[test]
fn attempts_survive_a_restart() {
    held_against(&[Mutant::FifoAttemptsForgotten], || {
        let mut disk = Disk::default();
        let mut queue = fresh_ordered();
        admit(&mut queue, 1, 1, 0);
        pop_group(&mut queue, 1, 0, "a");
        let staged = queue.sweep(at(30_000), 9);
        keep(&mut queue, &mut disk, staged);
        let mut queue = restart(&disk, 1, 2);
        admit(&mut queue, 1, 1, 30_000);
        assert_eq!(pop_group(&mut queue, 1, 30_000, "b")[0].attempt, 2);
    });
}

#[test]
fn a_delivery_that_is_out_goes_on_after_a_restart() {
    let mut disk = Disk::default();
    let mut queue = fresh_ordered();
    admit(&mut queue, 3, 3, 0);
    let batch = pop_group(&mut queue, 1, 0, "a");
    let staged = queue.sweep(at(10_000), 9);
    keep(&mut queue, &mut disk, staged);
    let mut queue = restart(&disk, 3, 2);
    admit(&mut queue, 3, 3, 11_000);
    // Its group is blocked, whoever repeats the receive gets it, and its handle is good.
    assert_eq!(places(&pop_group(&mut queue, 9, 11_000, "b")), [1]);
    assert_eq!(repeat(&mut queue, "a", 12_000), batch);
    assert!(matches!(queue.ack(&batch[0].identity), Ack::Done(1)));
    assert_eq!(places(&pop_group(&mut queue, 9, 12_000, "b")), [2]);
}

#[test]
fn a_delivery_whose_time_came_while_nobody_looked_counts_as_an_attempt() {
    let mut disk = Disk::default();
    let mut queue = fresh_ordered();
    admit(&mut queue, 1, 1, 0);
    pop_group(&mut queue, 1, 0, "a");
    let staged = queue.sweep(at(10_000), 9);
    keep(&mut queue, &mut disk, staged);
    let mut queue = restart(&disk, 1, 2);
    admit(&mut queue, 1, 1, 60_000);
    // Mutant: it is ready at once, for the attempt that it already had.
    assert!(pop_group(&mut queue, 1, 60_000, "b").is_empty());
    let staged = queue.sweep(at(60_000), 9);
    assert_eq!(staged[0].why, Why::Due);
    keep(&mut queue, &mut disk, staged);
    assert_eq!(pop_group(&mut queue, 1, 60_000, "b")[0].attempt, 2);
}

// P7. Found by the simulator, seed 6109. Mutants: what is not read blocks nothing; it blocks on
// when it is over.
#[test]
fn what_is_out_and_not_read_yet_blocks_what_lies_before_it_in_its_group() {
    let mut disk = Disk::default();
    let mut queue = fresh_ordered();
    admit(&mut queue, 3, 3, 0);
    let batch = pop_group(&mut queue, 2, 0, "a");
    assert_eq!(places(&batch), [0, 2]);
    let staged = queue.sweep(at(10_000), 9);
    keep(&mut queue, &mut disk, staged);
    for is_read in [true, false] {
        let mut queue = restart(&disk, 3, 2);
        let second = &batch[1].identity;
        let changed = queue.change(second, at(31_000), HIDDEN, false);
        assert_eq!(changed, Change::Changed(at(61_000)));
        // The first of them, whose time is up.
        admit(&mut queue, 1, 3, 32_000);
        let staged = queue.sweep(at(32_000), 9);
        assert_eq!(staged_offsets(&staged), [0]);
        keep(&mut queue, &mut disk.clone(), staged);
        assert!(pop_group(&mut queue, 9, 32_000, "b").is_empty());
        if is_read {
            admit(&mut queue, 2, 3, 33_000);
            assert_eq!(places(&pop_group(&mut queue, 9, 33_000, "b")), [1]);
            assert!(pop_group(&mut queue, 9, 33_000, "c").is_empty());
        }
        assert!(matches!(queue.ack(second), Ack::Done(_)));
        assert_eq!(places(&pop_group(&mut queue, 9, 34_000, "d")), [0]);
    }
}

// P5. Mutant: what is passed unread blocks its group for ever.
#[test]
fn what_is_out_and_not_read_blocks_nothing_once_retention_took_it() {
    let mut disk = Disk::default();
    let mut queue = fresh_ordered();
    admit(&mut queue, 1, 1, 0);
    pop_group(&mut queue, 1, 0, "a");
    let staged = queue.sweep(at(10_000), 9);
    keep(&mut queue, &mut disk, staged);
    let mut queue = restart(&disk, 1, 2);
    let reserved = queue.reserve(
        9,
        LogBounds {
            start: offset(2),
            end: offset(3),
        },
    );
    assert_eq!(reserved.offsets, [offset(2)]);
    queue.admit(reserved.epoch, offset(2), 0, at(11_000));
    assert_eq!(places(&pop_group(&mut queue, 9, 11_000, "b")), [2]);
}

#[test]
fn a_delivery_is_renewed_before_its_message_is_read_again() {
    let mut disk = Disk::default();
    let mut queue = fresh_ordered();
    admit(&mut queue, 1, 1, 0);
    let popped = pop_group(&mut queue, 1, 0, "a")[0].identity;
    let staged = queue.sweep(at(10_000), 9);
    keep(&mut queue, &mut disk, staged);
    let mut queue = restart(&disk, 1, 2);
    // Mutant: nobody knows of it yet, so it is over.
    let changed = queue.change(&popped, at(29_000), HIDDEN, false);
    assert_eq!(changed, Change::Changed(at(59_000)));
    // Being read, and its group not known.
    let reserved = queue.reserve(1, until(1));
    let changed = queue.change(&popped, at(30_000), HIDDEN, false);
    assert_eq!(changed, Change::Changed(at(60_000)));
    queue.admit(reserved.epoch, offset(0), 0, at(31_000));
    keep_nothing_due(&mut queue, 59_999);
    assert_eq!(queue.sweep(at(60_000), 9)[0].why, Why::Due);
}

#[test]
fn a_handle_of_the_run_before_counts_no_more_once_its_delivery_was_over() {
    // P3: after a crash nobody knows whether the next delivery went out. Mutant: a row that
    // says that its delivery is over lends it a handle all the same.
    let mut disk = Disk::default();
    let mut queue = fresh_ordered();
    admit(&mut queue, 1, 1, 0);
    let first = pop_group(&mut queue, 1, 0, "a")[0].identity;
    let staged = queue.sweep(at(30_000), 9);
    keep(&mut queue, &mut disk, staged);
    let second = pop_group(&mut queue, 1, 30_000, "b")[0].identity;
    let mut queue = restart(&disk, 1, 2);
    assert_eq!(queue.ack(&first), Ack::Over);
    assert_eq!(queue.ack(&second), Ack::Over);
    admit(&mut queue, 1, 1, 30_000);
    assert_eq!(queue.ack(&first), Ack::Over);
    assert_eq!(pop_group(&mut queue, 1, 30_000, "c")[0].attempt, 2);
}

#[test]
fn what_was_changed_before_it_was_read_is_stored_as_it_was_changed() {
    let mut disk = Disk::default();
    let mut queue = fresh_ordered();
    admit(&mut queue, 1, 1, 0);
    let popped = pop_group(&mut queue, 1, 0, "a")[0].identity;
    let staged = queue.sweep(at(10_000), 9);
    keep(&mut queue, &mut disk, staged);
    let mut queue = restart(&disk, 1, 2);
    queue.change(&popped, at(29_000), HIDDEN, false);
    // Mutant: the change is in memory alone.
    assert!(queue.is_dirty());
    let plan = queue.plan(Vec::new(), Vec::new()).expect("one");
    queue.refused(plan, at(29_000));
    flush(&mut queue, &mut disk);
    assert!(!queue.is_dirty());
    let mut queue = restart(&disk, 1, 3);
    admit(&mut queue, 1, 1, 31_000);
    keep_nothing_due(&mut queue, 58_999);
    assert_eq!(queue.sweep(at(59_000), 9)[0].why, Why::Due);
}

#[test]
fn what_is_parked_waits_for_what_was_not_read_before_it() {
    // P7: after a start, of one message group. Mutant: what was reserved and given back
    // counts as read.
    let parked = RestoredParked {
        first: vec![(0, offset(6))],
        count: 1,
        ..RestoredParked::default()
    };
    let mut page = MarkPage::default();
    page.set(6);
    let restored = Restored {
        parked,
        pages: vec![(0, page)],
        ..Disk::default().restored(true, 8)
    };
    let mut queue = LeaseQueue::restore(restored, run(2));
    assert_eq!(queue.waits_for_parked(), None);
    let reserved = queue.reserve(9, until(8));
    assert_eq!(reserved.offsets, offsets([0, 1, 2, 3, 4, 5, 7]));
    queue.release(reserved.epoch, reserved.offsets);
    assert_eq!(queue.waits_for_parked(), None);
    admit(&mut queue, 9, 8, 0);
    assert_eq!(
        queue.waits_for_parked(),
        None,
        "some of its group are before it"
    );
    let batch = pop_group(&mut queue, 9, 0, "a");
    assert_eq!(places(&batch), [0, 2, 4]);
    for granted in batch {
        queue.ack(&granted.identity);
    }
    assert_eq!(queue.waits_for_parked(), Some((0, offset(6))));
    let epoch = reserved.epoch;
    queue.unpark(epoch, (0, offset(6)), &[offset(6)], 1);
    assert_eq!(places(&pop_group(&mut queue, 9, 0, "c")), [1, 3, 5, 7]);
    assert_eq!(places(&pop_group(&mut queue, 9, 0, "b")), [6]);
}

#[test]
fn what_is_out_and_can_no_longer_be_read_holds_up_its_own_message_group() {
    // P7. Mutant: what can't be read is of the group of those without one, although its row
    // says of which it is.
    let mut disk = Disk::default();
    let mut queue = fresh_ordered();
    admit(&mut queue, 1, 1, 0);
    pop_group(&mut queue, 1, 0, "a");
    let staged = queue.sweep(at(10_000), 9);
    keep(&mut queue, &mut disk, staged);
    let mut queue = restart(&disk, 3, 2);
    let reserved = queue.reserve(3, until(3));
    for (offset, group) in reserved.offsets.into_iter().zip([9, 9, 0]) {
        queue.admit(reserved.epoch, offset, group, at(10_000));
    }
    assert_eq!(places(&pop_group(&mut queue, 9, 10_000, "b")), [1]);
    assert_eq!(places(&pop_group(&mut queue, 9, 10_000, "c")), [0; 0]);
}

#[test]
fn a_handle_of_a_parked_message_that_retention_took_ends_nothing() {
    // P3: it was handed out again, and the row that said so went with the message. Mutant:
    // without a row no message was handed out since.
    let mut before = fresh_ordered();
    admit(&mut before, 1, 1, 0);
    let stale = pop_group(&mut before, 1, 0, "a")[0].identity;
    let parked = RestoredParked {
        first: vec![(0, offset(0))],
        count: 1,
        ..RestoredParked::default()
    };
    let restored = Restored {
        committed: offset(1),
        parked,
        log_start: offset(1),
        ..Disk::default().restored(true, 1)
    };
    let mut queue = LeaseQueue::restore(restored, run(2));
    queue.unpark(queue.epoch(), (0, offset(0)), &[offset(0)], 1);
    assert_eq!(queue.held(), 1);
    assert_eq!(queue.ack(&stale), Ack::Over);
    assert_eq!(queue.parked_count(), 1, "whoever reads it finds it gone");
}

#[test]
fn a_row_of_the_run_before_lends_its_identity_to_no_delivery_of_this_one() {
    let mut disk = Disk::default();
    let mut queue = fresh_ordered();
    admit(&mut queue, 1, 1, 0);
    let first = pop_group(&mut queue, 1, 0, "a")[0].identity;
    let staged = queue.sweep(at(30_000), 9);
    keep(&mut queue, &mut disk, staged);
    let mut queue = restart(&disk, 1, 2);
    admit(&mut queue, 1, 1, 30_000);
    let popped = pop_group(&mut queue, 1, 30_000, "b")[0].identity;
    // The same number as the delivery that the row is of.
    assert_eq!(popped.generation, first.generation);
    // Mutant: the row is found by the number alone.
    assert_eq!(repeat(&mut queue, "b", 31_000)[0].identity, popped);
    assert_eq!(queue.ack(&first), Ack::Over);
}

#[test]
fn a_restored_delivery_that_is_being_written_waits_like_any_other() {
    let mut disk = Disk::default();
    let mut queue = fresh_ordered();
    admit(&mut queue, 1, 1, 0);
    let popped = pop_group(&mut queue, 1, 0, "a")[0].identity;
    let staged = queue.sweep(at(10_000), 9);
    keep(&mut queue, &mut disk, staged);
    let mut queue = restart(&disk, 1, 2);
    admit(&mut queue, 1, 1, 60_000);
    assert_eq!(queue.sweep(at(60_000), 9).len(), 1);
    // Mutant: it counts as one of the run before that nobody has handed out.
    assert_eq!(queue.ack(&popped), Ack::Wait);
}

#[test]
fn a_row_goes_with_the_mark_of_its_offset() {
    let mut disk = Disk::default();
    let mut queue = fresh_ordered();
    admit(&mut queue, 1, 1, 0);
    let popped = pop_group(&mut queue, 1, 0, "a")[0].identity;
    let staged = queue.sweep(at(10_000), 9);
    keep(&mut queue, &mut disk, staged);
    assert_eq!(disk.rows.len(), 1);
    queue.ack(&popped);
    flush(&mut queue, &mut disk);
    assert!(disk.rows.is_empty() && disk.committed == offset(1));
    assert!(queue.is_idle());
}

#[test]
fn a_row_whose_message_retention_took_goes_too() {
    let mut disk = Disk::default();
    let mut queue = fresh_ordered();
    admit(&mut queue, 1, 1, 0);
    pop_group(&mut queue, 1, 0, "a");
    let staged = queue.sweep(at(10_000), 9);
    keep(&mut queue, &mut disk, staged);
    let mut queue = restart(&disk, 5, 2);
    let bounds = LogBounds {
        start: offset(2),
        end: offset(5),
    };
    assert_eq!(queue.reserve(1, bounds).offsets, offsets([2]));
    flush(&mut queue, &mut disk);
    // Mutant: only what is acknowledged ends its row; the queue would stay in memory.
    assert!(disk.rows.is_empty());
}

#[test]
fn a_lease_that_is_stored_as_it_is_is_not_stored_again() {
    let mut disk = Disk::default();
    let mut queue = fresh_ordered();
    admit(&mut queue, 1, 1, 0);
    pop_group(&mut queue, 1, 0, "a");
    let staged = queue.stage_early(at(1_000), 9);
    assert_eq!(staged.len(), 1);
    keep(&mut queue, &mut disk, staged);
    // Mutant: it is staged each time; a close would never end.
    assert!(queue.stage_early(at(2_000), 9).is_empty());
    assert!(queue.sweep(at(29_999), 9).is_empty());
    assert_eq!(queue.sweep(at(30_000), 9)[0].why, Why::Due);
}

#[test]
fn a_delivery_that_is_put_off_is_put_off_in_memory_and_in_the_store() {
    let mut disk = Disk::default();
    let mut queue = fresh_ordered();
    admit(&mut queue, 1, 1, 0);
    let popped = pop_group(&mut queue, 1, 0, "a")[0].identity;
    let due = *queue.sweep(at(30_000), 9).remove(0).checkpoint;
    let later = Checkpoint {
        popped_at: at(30_000),
        visible_at: at(40_000),
        revive_failures: 1,
        ..due
    };
    let plan = queue.plan(Vec::new(), vec![Keep::out(later)]).expect("one");
    disk.apply(&plan);
    queue.settled(durable(plan), Durability::Buffered);
    keep_nothing_due(&mut queue, 39_999);
    let again = queue.sweep(at(40_000), 9).remove(0);
    assert_eq!(again.why, Why::Due);
    // Mutant: the number of failures is forgotten, and the delivery never given up.
    assert_eq!(again.checkpoint.revive_failures, 1);
    assert_eq!(again.checkpoint.identity, popped);
    let plan = queue.plan(offsets([0]), Vec::new()).expect("one");
    queue.settled(durable(plan), Durability::Buffered);
    assert_eq!(queue.counts(), Counts::default());
}
