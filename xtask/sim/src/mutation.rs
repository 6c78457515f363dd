//! The mutation check: each deliberate fault must be noticed within so many seeds.

use pop_model::Mutant;

use crate::pool::{Batch, Total, run_all};

/// A fault that is rarer than this is searched for longer.
pub const SEEDS_MAX: u64 = 200;

/// The faults that need more seeds, and how many.
const RARE: &[(&str, u64)] = &[
    ("ExhaustedIsDropped", 1_000),
    ("FloorPassesPending", 2_000),
    ("ParkedCountsAsGivenUp", 1_000),
    ("RetentionMissesNewGroups", 3_000),
    ("SecondWriteWhileInDoubt", 3_000),
    ("SpillRestartsTheDeadline", 1_000),
    ("StagedClearedWhateverTheOutcome", 1_000),
];

/// Within how many seeds a fault must be noticed.
pub fn seeds_max(mutant: Mutant) -> u64 {
    let rare = RARE.iter().find(|(name, _)| *name == mutant.name());
    rare.map_or(SEEDS_MAX, |(_, seeds)| *seeds)
}

/// Switches a fault on and runs seeds until it is noticed.
pub fn search(mutant: Mutant, seeds_max: u64, threads: usize) -> Total {
    run_all(&Batch {
        from: 0,
        count: seeds_max,
        within: None,
        threads,
        mutant: Some(mutant),
    })
}

/// What the search for one fault came to, for people: the seed, and how it was noticed.
pub fn row(mutant: Mutant, seeds_max: u64, noticed: Option<(u64, &str)>) -> String {
    let name = mutant.name();
    match noticed {
        Some((seed, how)) => format!("{name:32} at seed {seed:>4} of {seeds_max}: {how}"),
        None => format!("{name:32} NOT NOTICED within {seeds_max} seeds"),
    }
}

/// Whether faults can be switched on in this build.
pub const IS_BUILT_IN: bool = cfg!(feature = "mutants");

/// Switches a fault on in this thread.
#[cfg(feature = "mutants")]
pub fn switch(mutant: Mutant) {
    Mutant::switch(Some(mutant));
}

/// Switches a fault on in this thread.
#[cfg(not(feature = "mutants"))]
pub fn switch(_: Mutant) {}
