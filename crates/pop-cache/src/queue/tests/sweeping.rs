//! What is due, and what has stayed too long.

use super::*;

#[test]
fn a_lease_is_due_at_its_deadline_and_not_before() {
    held_against(&[Mutant::DueOnlyAfter], || {
        let mut queue = fresh(0);
        let reserved = queue.reserve(1, until(1));
        let terms = Terms {
            invisible_for: Duration::from_millis(5_001),
            ..terms(0)
        };
        queue.lease(reserved.epoch, &reserved.offsets, &terms);
        assert_eq!(queue.next_look(), Some(at(5_001)));
        assert!(queue.sweep(at(5_000), 10).is_empty());
        let staged = queue.sweep(at(5_001), 10);
        assert_eq!(staged[0].why, Why::Due);
        assert_eq!(queue.counts().staged, 1);
    });
}

#[test]
fn a_lease_that_stays_is_stored_as_it_is() {
    let mut queue = fresh(0);
    let popped = pop(&mut queue, 1, 1, 0)[0];
    let staged = queue.sweep(at(10_000), 10);
    assert_eq!(staged[0].why, Why::Stayed);
    assert_eq!(staged[0].checkpoint.identity, popped);
    assert_eq!(staged[0].checkpoint.visible_at, at(30_000));
}

#[test]
fn a_lease_whose_store_was_refused_early_is_still_looked_at_in_time() {
    let mut queue = fresh(0);
    pop(&mut queue, 1, 1, 0);
    let staged = queue.stage_early(at(1_000), 10);
    assert_eq!(staged.len(), 1);
    queue.unstage(offset(0), at(1_500));
    // Nothing is due earlier for it, and it is not forgotten.
    assert!(queue.sweep(at(9_999), 10).is_empty());
    assert_eq!(queue.sweep(at(10_000), 10).len(), 1);
}

#[test]
fn what_is_staged_early_is_what_has_been_there_longest() {
    let mut queue = fresh(0);
    for now in [0, 1_000, 2_000] {
        pop(&mut queue, 2, 6, now);
    }
    assert_eq!(
        staged_offsets(&queue.stage_early(at(3_000), 3)),
        [0, 1, 2, 3]
    );
    assert_eq!(staged_offsets(&queue.stage_early(at(3_000), 9)), [4, 5]);
    assert!(queue.stage_early(at(3_000), 9).is_empty());
}

#[test]
fn looks_of_receives_that_are_over_do_not_pile_up() {
    let mut queue = fresh(0);
    // One long lease keeps the table; each of the others takes the place of the one before.
    pop(&mut queue, 1, u64::MAX, 0);
    let mut most = 0;
    for now in (0..100_000).step_by(10) {
        let popped = pop(&mut queue, 1, u64::MAX, now);
        for lease in queue.sweep(at(now), 100) {
            queue.unstage(lease.checkpoint.identity.offset, at(now + 30_000));
        }
        queue.ack(&popped[0]);
        most = most.max(queue.looks.count());
    }
    // Mutant: an entry that leads to another receive is kept; there would be 10,000.
    assert!(most < 1_200, "{most} entries for one lease");
}

#[test]
fn one_delivery_is_staged_again_for_another_end() {
    let mut queue = fresh(0);
    let popped = pop(&mut queue, 2, 2, 0);
    assert!(queue.stage_one(&popped[0]).is_some());
    assert!(queue.stage_one(&popped[0]).is_none(), "it is staged");
    queue.ack(&popped[1]);
    assert!(queue.stage_one(&popped[1]).is_none(), "it is over");
    assert_eq!(queue.counts().staged, 1);
}

#[test]
fn what_is_on_its_way_is_known_until_it_has_arrived() {
    let mut queue = fresh(0);
    let mut disk = Disk::default();
    pop(&mut queue, 1, 2, 0);
    assert!(!queue.is_moving_below(offset(2)));
    let reserved = queue.reserve(1, until(2));
    // Mutant: only what is staged counts; a hand-over is overtaken by retention.
    assert!(queue.is_moving_below(offset(2)));
    assert!(!queue.is_moving_below(offset(1)));
    queue.release(reserved.epoch, reserved.offsets);
    let staged = queue.stage_early(at(0), 10);
    assert_eq!(staged.len(), 1);
    // Mutant: nobody waits for an outcome that is being written.
    assert!(queue.is_moving_below(offset(1)));
    settle(&mut queue, &mut disk, &[offset(0)], Durability::Buffered);
    assert!(!queue.is_moving_below(offset(2)));
}
