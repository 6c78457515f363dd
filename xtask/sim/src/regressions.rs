//! Runs that once found a fault. They run first.
//!
//! A run is recorded: its steps, each with its action. It stays the same run when there are
//! more actions or they happen more or less often, and only what is changed about the actions
//! that it has can make it another one. The fault itself has a test of its own beside the
//! code that it was in.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
};

use crate::{plan::Plan, run::Report, steps};

/// A run that once failed.
#[derive(Clone, Copy, Debug)]
pub struct Regression {
    /// What it is about.
    pub name: &'static str,
    /// What was wrong.
    pub found: &'static str,
    /// Its seed.
    pub seed: u64,
    /// Its steps, by their action.
    pub steps: &'static [(&'static str, &'static str)],
    /// Nothing goes wrong in the store in these.
    pub faultless: &'static str,
}

/// All of them, oldest first.
pub const REGRESSIONS: &[Regression] = &[];

impl Regression {
    /// Its steps.
    ///
    /// # Errors
    ///
    /// If they can't be read, or an action of theirs is gone.
    pub fn plan(&self) -> Result<Plan, String> {
        Plan::recorded(self.seed, self.steps, self.faultless)
    }
}

/// The steps of a run, by their action.
pub fn steps_of(report: &Report) -> BTreeMap<&'static str, String> {
    let mut by_action: BTreeMap<&str, BTreeSet<u64>> = BTreeMap::new();
    for (step, action) in &report.taken {
        by_action.entry(action).or_default().insert(*step);
    }
    let written = by_action.into_iter();
    written
        .map(|(action, numbers)| (action, steps::write(&numbers)))
        .collect()
}

/// A run as [`REGRESSIONS`] have it.
pub fn record(plan: &Plan, report: &Report) -> String {
    let mut text = format!("seed: {},\nsteps: &[\n", plan.seed);
    for (action, numbers) in steps_of(report) {
        // Writing to a string can't fail.
        let _ = writeln!(text, "    ({action:?}, {numbers:?}),");
    }
    text += &format!("],\nfaultless: {:?},", steps::write(&plan.faultless));
    text
}
