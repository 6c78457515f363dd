//! The simulator is the same each time, and clean.

use kv_restore_sim::{driver, resume, run};

#[test]
fn a_seed_is_the_same_schedule_each_time() {
    for seed in 0..20 {
        let (first, second) = (run(seed, true), run(seed, true));
        assert_eq!(first.trace, second.trace);
    }
}

#[test]
fn a_source_refuses_to_go_on_behind_rows_that_it_does_not_have() {
    assert_eq!(resume::on_other_rows(), None);
}

#[test]
fn some_hundred_schedules_keep_every_invariant() {
    for seed in 0..300 {
        let report = run(seed, false);
        assert_eq!(report.violation, None, "seed {seed}");
    }
}

#[test]
fn some_hundred_schedules_of_the_real_tasks_keep_every_invariant() {
    for seed in 0..100 {
        let (first, second) = (driver::run(seed), driver::run(seed));
        assert_eq!(first.violation, None, "seed {seed}");
        assert_eq!(first.trace, second.trace);
    }
}
