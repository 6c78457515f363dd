//! The simulator itself: a seed is a run, and the model notices what it must.

use std::collections::BTreeSet;

use pop_sim::{
    plan::Plan,
    regressions::{REGRESSIONS, steps_of},
    run::run,
};

// Mutant: a step draws from a source of chance that the seed does not own.
#[test]
fn one_seed_is_one_run() {
    for seed in [1, 2, 7] {
        let (first, second) = (run(&Plan::new(seed), false), run(&Plan::new(seed), true));
        assert_eq!(first.violation, None, "seed {seed}");
        assert_eq!(first.hash, second.hash, "seed {seed}");
        assert_eq!(first.counts, second.counts, "seed {seed}");
    }
    assert_ne!(
        run(&Plan::new(1), false).hash,
        run(&Plan::new(2), false).hash
    );
}

#[test]
fn a_run_has_a_thousand_calls_and_two_power_cuts() {
    for seed in 10..20 {
        let counts = run(&Plan::new(seed), false).counts;
        assert!(counts.ops >= 1_000, "seed {seed}: {counts:?}");
        assert!(counts.crashes >= 2, "seed {seed}: {counts:?}");
    }
}

#[test]
fn steps_that_are_left_out_leave_the_others_what_they_are() {
    let only: BTreeSet<u64> = (0..40).step_by(2).collect();
    let mut plan = Plan::new(3);
    plan.only = Some(only.clone());
    let report = run(&plan, true);
    assert_eq!(report.violation, None);
    let all = run(&Plan::new(3), true);
    let steps = |lines: &[String]| -> Vec<String> {
        let steps = lines.iter().filter(|line| line.starts_with("--- step"));
        steps.cloned().collect()
    };
    let (some, all) = (steps(&report.lines), steps(&all.lines));
    assert_eq!(some.len(), only.len());
    assert!(some.iter().all(|step| all.contains(step)), "{some:?}");
}

/// Mutant: a step of a recorded run takes what the seed has in store for it.
#[test]
fn a_run_that_is_recorded_is_the_same_run() {
    let mut plan = Plan::new(3);
    plan.only = Some((40..90).collect());
    plan.faultless = (60..70).collect();
    let report = run(&plan, false);
    let steps = steps_of(&report);
    let steps: Vec<_> = steps.iter().map(|(of, at)| (*of, at.as_str())).collect();
    let recorded = Plan::recorded(3, &steps, "60-69").unwrap();
    assert_eq!(run(&recorded, false).hash, report.hash);
}

/// Mutant: the same.
#[test]
fn a_recorded_run_has_the_actions_that_it_was_recorded_with() {
    let recorded = [("send", "5,7-9"), ("receive", "6,10"), ("crash", "11")];
    for seed in [3, 4] {
        let report = run(&Plan::recorded(seed, &recorded, "5-11").unwrap(), false);
        assert_eq!(report.violation, None);
        let steps = steps_of(&report);
        assert_eq!(steps.len(), recorded.len());
        for (action, numbers) in recorded {
            assert_eq!(steps.get(action).map(String::as_str), Some(numbers));
        }
    }
    assert!(Plan::recorded(3, &[("no action", "5")], "").is_err());
}

#[test]
fn every_regression_can_be_read() {
    for regression in REGRESSIONS {
        regression.plan().unwrap();
    }
}
