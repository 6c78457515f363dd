//! What a crash leaves, and what it does not.

use super::*;

#[test]
fn an_open_offset_behind_settled_ones_is_handed_out() {
    let mut disk = Disk::default();
    let mut queue = fresh(0);
    let popped = pop(&mut queue, 4, 4, 0);
    for identity in &popped[1..3] {
        queue.ack(identity);
    }
    flush(&mut queue, &mut disk);
    let mut queue = LeaseQueue::restore(disk.restored(false, 4), run(2));
    // Mutant: slots are given to open offsets only; the last would get none.
    let again = pop(&mut queue, 9, 4, 0);
    let again: Vec<u64> = again.iter().map(|it| it.offset.get()).collect();
    assert_eq!(again, [0, 3]);
}

#[test]
fn a_mark_above_the_end_of_the_log_is_of_a_message_that_is_lost() {
    let mut disk = Disk::default();
    let mut queue = fresh(0);
    for identity in pop(&mut queue, 5_000, 5_000, 0) {
        if identity.offset != offset(10) {
            queue.ack(&identity);
        }
    }
    flush(&mut queue, &mut disk);
    // The log came back with 20 messages.
    let mut queue = LeaseQueue::restore(disk.restored(false, 20), run(2));
    let popped = pop(&mut queue, 9_000, 5_000, 0);
    // Mutant: the marks are taken as they are; 4,980 messages would be passed.
    assert_eq!(popped.len(), 1 + 4_980);
    // What was passed wrongly is written anew.
    flush(&mut queue, &mut disk);
    assert!(!disk.is_settled(offset(20)) && !disk.is_settled(offset(4_500)));
    assert!(disk.is_settled(offset(9)) && disk.is_settled(offset(19)));
}

#[test]
fn pages_below_the_committed_offset_are_cleared_up_without_traffic() {
    let mut disk = Disk {
        committed: offset(9_000),
        pages: [(0, MarkPage::default()), (1, MarkPage::default())].into(),
        ..Disk::default()
    };
    let mut queue = LeaseQueue::restore(disk.restored(false, 9_000), run(1));
    assert!(queue.is_dirty());
    flush(&mut queue, &mut disk);
    assert!(disk.pages.is_empty() && !queue.is_dirty());
    assert_eq!(disk.committed, offset(9_000));
}
