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
pub const REGRESSIONS: &[Regression] = &[Regression {
    name: "a batch that is read in part after a restart",
    found: "a message whose time was up was handed out again, while a later one of its group was \
            out by a row that was not read yet",
    seed: 6109,
    steps: &[
        ("acknowledge", "230"),
        ("acknowledge twice at once", "348"),
        ("change", "358"),
        ("receive", "306,331,339-340,368-369,376"),
        ("receive twice at once", "224,372"),
        ("restart", "323,344"),
        ("send", "112,152,202-203,225,228,309"),
        ("send to a full disk", "254"),
        ("set how long messages are kept", "150"),
        ("wait", "322,353"),
    ],
    faultless: "26,31,49,54,56,58-59,64-65,68,71-74,77,84-85,88-89,93-94,98,100-102,107,112,120-121,126,134-137,150,152-153,155,159-160,192,199,201-203,205,208,212,216-217,220-222,224-226,228,230,237,239,241-243,250,254,261-263,268,276,281-282,304,306,309,316,322-331,333-334,339-340,342,344,348,353,358,368-369,372,376",
}];

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
