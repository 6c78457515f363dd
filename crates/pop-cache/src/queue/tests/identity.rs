//! Which handle does what.

use super::*;

#[test]
fn a_handle_ends_its_own_delivery_and_no_other() {
    held_against(&[Mutant::AckByOffsetAlone], || {
        let mut queue = fresh(0);
        let first = pop(&mut queue, 1, 1, 0)[0];
        queue.give_back(&first);
        let second = pop(&mut queue, 1, 1, 0)[0];
        assert_eq!(queue.ack(&first), Ack::Over);
        assert_eq!(queue.change(&first, at(1), HIDDEN, false), Change::Over);
        assert_eq!(queue.counts().buffered, 1);
        let other_epoch = DeliveryIdentity {
            epoch: SubscriptionEpoch::new(1),
            ..second
        };
        assert_eq!(queue.ack(&other_epoch), Ack::Over);
        assert!(matches!(queue.ack(&second), Ack::Done(1)));
        assert_eq!(queue.ack(&second), Ack::Stored);
    });
}

#[test]
fn a_late_acknowledgement_counts_until_the_message_is_handed_out_again() {
    let mut queue = fresh(0);
    let popped = pop(&mut queue, 1, 1, 0)[0];
    queue.sweep(at(30_000), 10);
    queue.unstage(offset(0), at(30_500));
    // Mutant: the deadline refuses it.
    assert!(matches!(queue.ack(&popped), Ack::Done(1)));
}

#[test]
fn an_acknowledgement_of_what_is_being_written_waits() {
    held_against(&[Mutant::AckMissesStaged], || {
        let mut queue = fresh(0);
        let popped = pop(&mut queue, 1, 1, 0)[0];
        queue.sweep(at(30_000), 10);
        assert_eq!(queue.ack(&popped), Ack::Wait);
        assert_eq!(
            queue.change(&popped, at(30_000), HIDDEN, false),
            Change::Wait
        );
        assert_eq!(queue.give_back(&popped), GiveBack::Wait);
    });
}

#[test]
fn a_handle_of_the_run_before_ends_only_what_was_not_handed_out_since() {
    held_against(&[Mutant::OldIncarnationSettles], || {
        let before = pop(&mut fresh(0), 3, 3, 0);
        let disk = Disk::default();
        let mut queue = LeaseQueue::restore(disk.restored(false, 3), run(2));
        let again = pop(&mut queue, 1, 3, 0)[0];
        assert_eq!(queue.ack(&before[0]), Ack::Over);
        // Not read yet, and being read.
        assert!(matches!(queue.ack(&before[2]), Ack::Done(1)));
        let reserved = queue.reserve(1, until(3));
        assert!(matches!(queue.ack(&before[1]), Ack::Done(2)));
        let leased = queue.lease(reserved.epoch, &reserved.offsets, &terms(0));
        assert!(leased.is_empty(), "it was acknowledged meanwhile");
        assert!(matches!(queue.ack(&again), Ack::Done(3)));
        assert_eq!(queue.gate(), offset(3));
    });
}

#[test]
fn a_handle_from_two_runs_before_ends_nothing() {
    let before = pop(&mut fresh(0), 1, 1, 0)[0];
    let mut queue = LeaseQueue::restore(Disk::default().restored(false, 1), run(3));
    // Mutant: any earlier run will do; the one between may have handed it out.
    assert_eq!(queue.ack(&before), Ack::Over);
}

#[test]
fn a_handle_of_a_message_that_a_crash_took_does_not_end_the_one_in_its_place() {
    let before = pop(&mut fresh(0), 1, 1, 0)[0];
    // The log lost its only message, and another one got its offset before anybody looked.
    let restored = Restored {
        log_end: offset(1),
        found_end: offset(0),
        ..Disk::default().restored(false, 0)
    };
    let mut queue = LeaseQueue::restore(restored, run(2));
    // Mutant: the end of the log as it is now counts.
    assert_eq!(queue.ack(&before), Ack::Over);
    assert_eq!(pop(&mut queue, 1, 1, 0).len(), 1);
}

#[test]
fn a_change_moves_the_deadline_and_keeps_the_handle() {
    held_against(&[Mutant::RenewalForgotten], || {
        let mut queue = fresh(0);
        let reserved = queue.reserve(1, until(1));
        let terms = Terms {
            invisible_for: Duration::from_secs(5),
            ..terms(0)
        };
        let popped = queue.lease(reserved.epoch, &reserved.offsets, &terms)[0].identity;
        let changed = queue.change(&popped, at(4_000), Duration::from_secs(20), false);
        assert_eq!(changed, Change::Changed(at(24_000)));
        assert!(queue.sweep(at(9_999), 10).is_empty());
        let staged = queue.sweep(at(10_000), 10);
        // It has stayed long enough and is stored; it is not due.
        assert_eq!(staged[0].why, Why::Stayed);
        assert_eq!(staged[0].checkpoint.visible_at, at(24_000));
        queue.unstage(offset(0), at(10_000));
        assert!(matches!(queue.ack(&popped), Ack::Done(1)));
    });
}

#[test]
fn what_was_out_before_a_reset_is_void() {
    let mut queue = fresh(0);
    let popped = pop(&mut queue, 3, 9, 0);
    let reserved = queue.reserve(2, until(9));
    queue.sweep(at(30_000), 1);
    queue.reset(SubscriptionEpoch::new(1), offset(1));
    assert_eq!(queue.counts(), Counts::default());
    assert_eq!((queue.gate(), queue.next()), (offset(1), offset(1)));
    assert_eq!(queue.ack(&popped[1]), Ack::Over);
    queue.release(reserved.epoch, reserved.offsets.clone());
    queue.skip(reserved.epoch, reserved.offsets.clone());
    let leased = queue.lease(reserved.epoch, &reserved.offsets, &terms(0));
    assert!(leased.is_empty());
    assert_eq!(queue.reserve(2, until(9)).offsets, offsets([1, 2]));
}

#[test]
fn nobody_waits_for_an_acknowledgement_that_a_reset_made_void() {
    let mut queue = fresh(0);
    let popped = pop(&mut queue, 1, 1, 0)[0];
    let Ack::Done(number) = queue.ack(&popped) else {
        panic!("it is out")
    };
    queue.reset(SubscriptionEpoch::new(1), offset(0));
    // Mutant: acknowledgements are counted anew after a reset.
    assert!(queue.acks_durable() >= number);
}
