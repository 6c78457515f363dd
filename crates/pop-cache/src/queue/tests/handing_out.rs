//! From ready to leased and back.

use super::*;

#[test]
fn offsets_are_handed_out_once_and_in_order() {
    let mut queue = fresh(0);
    let first = queue.reserve(2, until(3));
    let second = queue.reserve(2, until(3));
    assert_eq!(first.offsets, offsets([0, 1]));
    assert_eq!(second.offsets, offsets([2]));
    assert!(queue.reserve(2, until(3)).offsets.is_empty());
    assert_eq!(queue.counts().reserved, 3);
    // What was handed back comes first.
    queue.release(first.epoch, first.offsets);
    assert_eq!(queue.reserve(9, until(5)).offsets, offsets([0, 1, 3, 4]));
}

#[test]
fn a_receive_over_a_page_border_is_one_receive() {
    let mut disk = Disk {
        committed: offset(4_094),
        ..Disk::default()
    };
    let mut queue = LeaseQueue::restore(disk.restored(false, 4_100), run(1));
    let popped = pop(&mut queue, 5, 4_100, 0);
    let expected: Vec<u64> = (4_094..4_099).collect();
    let staged = queue.sweep(at(30_000), 100);
    assert_eq!(staged_offsets(&staged), expected);
    settle(
        &mut queue,
        &mut disk,
        &offsets(expected),
        Durability::Synced,
    );
    assert_eq!(disk.committed, offset(4_099));
    assert_eq!(queue.ack(&popped[0]), Ack::Stored);
    assert_eq!(queue.counts(), Counts::default());
}

#[test]
fn what_a_filter_skips_is_settled() {
    held_against(&[Mutant::SkippedStaysOpen], || {
        let mut disk = Disk::default();
        let mut queue = fresh(0);
        let reserved = queue.reserve(3, until(3));
        queue.skip(reserved.epoch, offsets([0, 2]));
        flush(&mut queue, &mut disk);
        assert_eq!(disk.committed, offset(1));
        assert!(disk.is_settled(offset(2)) && !disk.is_settled(offset(1)));
    });
}

#[test]
fn a_delivery_that_reached_nobody_is_ready_and_its_number_used_up() {
    let mut queue = fresh(0);
    let first = pop(&mut queue, 1, 1, 0)[0];
    assert_eq!(queue.give_back(&first), GiveBack::Ready);
    assert_eq!(queue.give_back(&first), GiveBack::Over);
    let second = pop(&mut queue, 1, 1, 0)[0];
    assert!(second.generation > first.generation);
    // Mutant: the number is given out again; the first handle would end the second.
    assert_eq!(queue.ack(&first), Ack::Over);
    assert!(matches!(queue.ack(&second), Ack::Done(_)));
}

#[test]
fn what_retention_took_is_passed_and_a_lease_below_is_not() {
    let mut disk = Disk::default();
    let mut queue = fresh(0);
    let popped = pop(&mut queue, 2, 9_000, 0);
    queue.ack(&popped[0]);
    let bounds = LogBounds {
        start: offset(5_000),
        end: offset(9_000),
    };
    assert_eq!(queue.reserve(1, bounds).offsets, offsets([5_000]));
    flush(&mut queue, &mut disk);
    // Mutant: the gate follows the start of the log.
    assert_eq!(disk.committed, offset(1));
    assert!(disk.is_settled(offset(4_999)));
    queue.ack(&popped[1]);
    flush(&mut queue, &mut disk);
    assert_eq!(disk.committed, offset(5_000));
}

#[test]
fn a_queue_is_given_up_only_with_nothing_out() {
    held_against(&[Mutant::EvictionRacesAReceive], || {
        let mut disk = Disk::default();
        let mut queue = fresh(0);
        assert!(queue.is_idle());
        let reserved = queue.reserve(1, until(1));
        assert!(!queue.is_idle(), "one is being read");
        let leased = queue.lease(reserved.epoch, &reserved.offsets, &terms(0));
        assert!(!queue.is_idle(), "one is out");
        queue.ack(&leased[0].identity);
        assert!(!queue.is_idle(), "the store does not know that it is done");
        flush(&mut queue, &mut disk);
        assert!(queue.is_idle());
    });
}
