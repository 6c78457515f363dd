//! Random operations on the machine and on the model, which must agree after each.

use proptest::{collection::vec, prelude::*};

use super::world::World;

/// One operation. Numbers choose among what there is.
#[derive(Clone, Debug)]
pub(super) enum Op {
    Append(u64),
    Reserve(usize),
    ReserveGroup(usize),
    Release(usize),
    Skip(usize),
    Lease(usize, u64),
    Ack(usize),
    Change(usize, u64),
    GiveBack(usize),
    Sleep(u64),
    Sweep(usize),
    StageEarly(usize),
    StageOne(usize),
    Unstage(usize),
    Plan { reserved: bool, staged: usize },
    Settled { synced: bool },
    Refused,
    Reset(u64),
    Retain(u64),
    Crash(usize),
}

/// Whole ones, so that a deadline is often exactly now.
fn seconds(below: u64) -> impl Strategy<Value = u64> {
    (0..below).prop_map(|seconds| seconds * 1_000)
}

fn ops() -> impl Strategy<Value = Op> {
    prop_oneof![
        3 => (1..12_u64).prop_map(Op::Append),
        6 => (1..6_usize).prop_map(Op::Reserve),
        6 => (1..4_usize).prop_map(Op::ReserveGroup),
        2 => any::<usize>().prop_map(Op::Release),
        1 => any::<usize>().prop_map(Op::Skip),
        8 => (any::<usize>(), seconds(20)).prop_map(|(which, hide)| Op::Lease(which, hide)),
        8 => any::<usize>().prop_map(Op::Ack),
        3 => (any::<usize>(), seconds(20)).prop_map(|(which, hide)| Op::Change(which, hide)),
        2 => any::<usize>().prop_map(Op::GiveBack),
        4 => seconds(9).prop_map(Op::Sleep),
        5 => (1..6_usize).prop_map(Op::Sweep),
        2 => (1..6_usize).prop_map(Op::StageEarly),
        1 => any::<usize>().prop_map(Op::StageOne),
        1 => any::<usize>().prop_map(Op::Unstage),
        8 => (any::<bool>(), 0..6_usize)
            .prop_map(|(reserved, staged)| Op::Plan { reserved, staged }),
        8 => any::<bool>().prop_map(|synced| Op::Settled { synced }),
        2 => Just(Op::Refused),
        1 => any::<u64>().prop_map(Op::Reset),
        1 => (1..6_u64).prop_map(Op::Retain),
        2 => any::<usize>().prop_map(Op::Crash),
    ]
}

fn check(start: u64, ordered: bool, ops: Vec<Op>) {
    let mut world = World::new(start, ordered);
    world.check();
    for op in ops {
        world.apply(op);
        world.check();
    }
    world.finish();
}

/// Near the borders of pages, and away from them.
fn starts() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0_u64), 4_085..4_097_u64, Just(8_190), Just(12_288)]
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 256,
        // What is found becomes a test with a name.
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn it_does_what_the_model_does(start in starts(), ops in vec(ops(), 1..120)) {
        check(start, false, ops);
    }

    #[test]
    fn it_does_what_the_model_does_in_order(start in starts(), ops in vec(ops(), 1..120)) {
        check(start, true, ops);
    }
}

/// The model notices what the machine does wrong.
#[cfg(feature = "mutants")]
#[test]
fn each_fault_of_the_machine_is_noticed() {
    use pop_model::Mutant;
    use proptest::{strategy::ValueTree, test_runner::TestRunner};

    let both = [
        Mutant::AckByOffsetAlone,
        Mutant::DueOnlyAfter,
        Mutant::GateIgnoresBuffered,
        Mutant::GateIgnoresReserved,
        Mutant::GateIgnoresStaged,
        Mutant::MarkLeftOut,
        Mutant::OldIncarnationSettles,
        Mutant::RefusedPlanKeepsOffsets,
        Mutant::SecondWriteWhileInDoubt,
        Mutant::SkippedStaysOpen,
    ];
    let ordered = [
        Mutant::FifoAttemptsForgotten,
        Mutant::FifoPassesTheHead,
        Mutant::FifoSecondBatch,
        Mutant::GateIgnoresHeld,
    ];
    let both = both.into_iter().map(|mutant| (mutant, false));
    for (mutant, ordered) in both.chain(ordered.map(|mutant| (mutant, true))) {
        let mut runner = TestRunner::deterministic();
        let noticed = (0..500).any(|_| {
            let tree = (starts(), vec(ops(), 120)).new_tree(&mut runner);
            let (start, ops) = tree.expect("nothing is rejected").current();
            Mutant::switch(Some(mutant));
            let outcome = std::panic::catch_unwind(|| check(start, ordered, ops));
            Mutant::switch(None);
            outcome.is_err()
        });
        assert!(noticed, "{mutant:?} is not noticed in 500 runs");
    }
}
