//! Checks that are shown to be able to fail.

use pop_model::Mutant;

/// Runs a check, and where deliberate faults are compiled in, runs it with each of
/// `mutants` and wants it to fail.
#[track_caller]
pub(crate) fn held_against<F: Future<Output = ()>>(mutants: &[Mutant], check: impl Fn() -> F) {
    run(&check);
    #[cfg(feature = "mutants")]
    for mutant in mutants {
        Mutant::switch(Some(*mutant));
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| run(&check)));
        Mutant::switch(None);
        assert!(outcome.is_err(), "{mutant:?} is not noticed");
    }
    #[cfg(not(feature = "mutants"))]
    let _ = mutants;
}

/// On one thread, and on a clock that moves when everybody waits.
fn run<F: Future<Output = ()>>(check: impl Fn() -> F) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build();
    runtime.expect("a runtime starts").block_on(check());
}
