//! Checks that are shown to be able to fail.

use pop_model::Mutant;

/// Runs a check, and where deliberate faults are compiled in, runs it with each of
/// `mutants` and wants it to fail.
#[track_caller]
pub(crate) fn held_against(mutants: &[Mutant], check: impl Fn()) {
    check();
    #[cfg(feature = "mutants")]
    for mutant in mutants {
        Mutant::switch(Some(*mutant));
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(&check));
        Mutant::switch(None);
        assert!(outcome.is_err(), "{mutant:?} is not noticed");
    }
    #[cfg(not(feature = "mutants"))]
    let _ = mutants;
}
