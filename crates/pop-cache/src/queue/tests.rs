//! The offsets against a model, and each way in which the gate could be wrong.

use std::collections::{BTreeMap, BTreeSet};

use pop_store::{Durability, Keyspace, MemStore, StoreExt, WriteBatch};
use proptest::prelude::*;

use super::*;

const A: Keyspace = Keyspace::new("a");

fn offset(raw: u64) -> Offset {
    Offset::new(raw)
}

/// Proves a plan by a real write: there is no other way to make the token.
fn commit(queue: &mut QueueOffsets, plan: SettlePlan) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let store = MemStore::new(&[A]);
    let settled = store.settle(plan, WriteBatch::new(), Durability::Synced);
    queue.settled(runtime.block_on(settled).unwrap());
}

fn fresh() -> QueueOffsets {
    QueueOffsets::restore(Offset::ZERO, [])
}

#[test]
fn the_gate_stays_at_an_offset_that_is_reserved_while_later_ones_settle() {
    let mut queue = fresh();
    let taken = queue.reserve(4, offset(10));
    let plan = queue.plan(taken[1..].to_vec()).unwrap();
    // Mutant: the gate ignores reserved offsets; a crash now would skip offset 0.
    assert_eq!(plan.committed(), None);
    assert_eq!(plan.pages().len(), 1);
    commit(&mut queue, plan);
    let plan = queue.plan(vec![taken[0]]).unwrap();
    assert_eq!(plan.committed(), Some(offset(4)));
    commit(&mut queue, plan);
    assert_eq!(queue.committed(), offset(4));
}

#[test]
fn the_gate_stays_at_an_offset_that_was_handed_back() {
    let mut queue = fresh();
    let taken = queue.reserve(3, offset(10));
    queue.release([taken[0]]);
    // Mutant: the gate ignores returned offsets.
    let plan = queue.plan(taken[1..].to_vec()).unwrap();
    assert_eq!(plan.committed(), None);
    commit(&mut queue, plan);
    assert_eq!(queue.reserve(2, offset(10)), [offset(0), offset(3)]);
}

#[test]
fn a_refused_plan_leaves_no_mark_and_its_offsets_are_ready_again() {
    let mut queue = fresh();
    let taken = queue.reserve(3, offset(3));
    let plan = queue.plan(vec![taken[1]]).unwrap();
    queue.refused(plan);
    let plan = queue.plan(vec![taken[2]]).unwrap();
    // Mutant: marks are set when a write is planned; offset 1 would be lost.
    let (_, page) = &plan.pages()[0];
    assert!(page.get(2) && !page.get(1));
    commit(&mut queue, plan);
    assert_eq!(queue.reserve(9, offset(3)), [offset(1)]);
}

#[test]
fn one_plan_at_a_time_so_that_no_page_leaves_out_the_marks_of_another() {
    let mut queue = fresh();
    let taken = queue.reserve(3, offset(3));
    let first = queue.plan(vec![taken[1]]).unwrap();
    assert!(queue.plan(vec![taken[2]]).is_none());
    commit(&mut queue, first);
    let second = queue.plan(vec![taken[2]]).unwrap();
    let (_, page) = &second.pages()[0];
    assert!(page.get(1) && page.get(2));
    commit(&mut queue, second);
}

#[test]
fn a_start_hands_out_what_has_no_mark_and_nothing_else() {
    let mut page = MarkPage::default();
    page.set(1);
    page.set(3);
    let mut queue = QueueOffsets::restore(offset(0), [(0, page)]);
    assert_eq!(
        queue.reserve(9, offset(5)),
        [offset(0), offset(2), offset(4)]
    );
    let plan = queue.plan(vec![offset(0)]).unwrap();
    assert_eq!(plan.committed(), Some(offset(2)));
    commit(&mut queue, plan);
}

#[test]
fn the_gate_passes_offsets_that_an_earlier_run_settled() {
    let mut page = MarkPage::default();
    page.set(1);
    let mut queue = QueueOffsets::restore(offset(0), [(0, page)]);
    let taken = queue.reserve(1, offset(2));
    let plan = queue.plan(taken).unwrap();
    assert_eq!(plan.committed(), Some(offset(2)));
    commit(&mut queue, plan);
    assert!(!queue.has_ready(offset(2)));
}

#[test]
fn pages_below_the_gate_are_dropped_with_the_write_that_passes_them() {
    let mut queue = fresh();
    let taken = queue.reserve(5_000, offset(5_000));
    let plan = queue.plan(taken[1..].to_vec()).unwrap();
    assert_eq!(plan.pages().len(), 2);
    commit(&mut queue, plan);
    let plan = queue.plan(vec![taken[0]]).unwrap();
    assert_eq!(
        (plan.committed(), plan.dropped_pages()),
        (Some(offset(5_000)), &[0][..])
    );
    commit(&mut queue, plan);
}

#[test]
#[should_panic(expected = "only reserved offsets can be settled")]
fn an_offset_that_nobody_reserved_can_not_be_settled() {
    let _plan = fresh().plan(vec![offset(0)]);
}

#[derive(Clone, Debug)]
enum Step {
    Reserve(usize),
    Release(usize),
    Settle(usize),
    Refuse(usize),
    Restart,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        (1..8_usize).prop_map(Step::Reserve),
        (1..8_usize).prop_map(Step::Release),
        (1..8_usize).prop_map(Step::Settle),
        (1..8_usize).prop_map(Step::Refuse),
        Just(Step::Restart),
    ];
    proptest::collection::vec(step, 1..60)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    // P2 and P3 against a model that only knows what was written. Mutants: the gate
    // ignoring any state, marks set too early, a page not written, a dropped page that
    // still has open offsets.
    #[test]
    fn whatever_happens_the_store_never_says_settled_of_what_is_not(steps in steps()) {
        let end = offset(64);
        let mut queue = fresh();
        let mut out: BTreeSet<Offset> = BTreeSet::new();
        let mut settled: BTreeSet<Offset> = BTreeSet::new();
        let mut stored_committed = Offset::ZERO;
        let mut stored_pages: BTreeMap<u64, MarkPage> = BTreeMap::new();
        for step in steps {
            match step {
                Step::Reserve(count) => {
                    for taken in queue.reserve(count, end) {
                        prop_assert!(!settled.contains(&taken), "handed out after it was settled");
                        prop_assert!(out.insert(taken), "handed out twice");
                    }
                }
                Step::Release(count) => {
                    let released: Vec<_> = out.iter().copied().take(count).collect();
                    for offset in &released {
                        out.remove(offset);
                    }
                    queue.release(released);
                }
                Step::Settle(count) => {
                    let chosen: Vec<_> = out.iter().copied().rev().take(count).collect();
                    let plan = queue.plan(chosen.clone()).unwrap();
                    stored_committed = plan.committed().unwrap_or(stored_committed);
                    for (page, marks) in plan.pages() {
                        stored_pages.insert(*page, marks.clone());
                    }
                    for page in plan.dropped_pages() {
                        stored_pages.remove(page);
                    }
                    commit(&mut queue, plan);
                    for offset in chosen {
                        out.remove(&offset);
                        settled.insert(offset);
                    }
                }
                Step::Refuse(count) => {
                    let chosen: Vec<_> = out.iter().copied().take(count).collect();
                    let plan = queue.plan(chosen.clone()).unwrap();
                    queue.refused(plan);
                    for offset in chosen {
                        out.remove(&offset);
                    }
                }
                Step::Restart => {
                    queue = QueueOffsets::restore(stored_committed, stored_pages.clone());
                    out.clear();
                }
            }
            for raw in 0..end.get() {
                let (page, place) = MarkPage::locate(offset(raw));
                let marked = stored_pages.get(&page).is_some_and(|marks| marks.get(place));
                let says_settled = offset(raw) < stored_committed || marked;
                prop_assert_eq!(says_settled, settled.contains(&offset(raw)), "offset {}", raw);
            }
        }
    }
}
