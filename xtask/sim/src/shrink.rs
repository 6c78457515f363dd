//! Makes a run that fails shorter, while it fails in the same way.

use std::{collections::BTreeSet, time::Duration};

use crate::{
    plan::Plan,
    run::{Report, run},
    watch::Stopwatch,
};

/// Shrinks a plan that breaks `promise`, for a bounded time. Returns the shortest that was
/// found.
pub fn shrink(plan: &Plan, promise: &str, within: Duration) -> Plan {
    let mut shrinking = Shrinking {
        best: plan.clone(),
        promise,
        watch: Stopwatch::start(),
        within,
    };
    if !shrinking.name_the_steps() {
        return shrinking.best;
    }
    shrinking.drop_steps();
    shrinking.drop_faults();
    // Without the faults, more steps may turn out to be needless.
    shrinking.drop_steps();
    shrinking.best
}

struct Shrinking<'a> {
    best: Plan,
    promise: &'a str,
    watch: Stopwatch,
    within: Duration,
}

impl Shrinking<'_> {
    fn steps(&self) -> Vec<u64> {
        self.best.only.iter().flatten().copied().collect()
    }

    fn is_late(&self) -> bool {
        self.watch.elapsed() > self.within
    }

    /// Takes a plan over if it fails in the same way.
    fn take(&mut self, plan: Plan) -> bool {
        let Report { violation, .. } = run(&plan, false);
        let fails = violation.is_some_and(|violation| violation.promise == self.promise);
        if fails {
            self.best = plan;
        }
        fails
    }

    fn take_only(&mut self, steps: &[u64]) -> bool {
        let mut plan = self.best.clone();
        plan.only = Some(steps.iter().copied().collect());
        self.take(plan)
    }

    /// Names the steps that came before the failure.
    fn name_the_steps(&mut self) -> bool {
        let steps: Vec<u64> = (0..run(&self.best, false).counts.steps).collect();
        self.take_only(&steps)
    }

    /// Leaves out ever smaller runs of steps.
    fn drop_steps(&mut self) {
        let mut size = self.steps().len().div_ceil(2);
        while size > 0 {
            let mut at = 0;
            while at < self.steps().len() {
                if self.is_late() {
                    return;
                }
                let mut steps = self.steps();
                steps.drain(at..(at + size).min(steps.len()));
                if !self.take_only(&steps) {
                    at += size;
                }
            }
            size /= 2;
        }
    }

    /// Leaves out the faults of one step after another, or of all at once.
    fn drop_faults(&mut self) {
        let steps: BTreeSet<u64> = self.steps().into_iter().collect();
        let mut plan = self.best.clone();
        plan.faultless = steps.clone();
        if self.take(plan) {
            return;
        }
        for step in steps {
            if self.is_late() {
                return;
            }
            let mut plan = self.best.clone();
            plan.faultless.insert(step);
            self.take(plan);
        }
    }
}
