//! Which steps a run has. All chance of a step comes from the seed and its own number, so
//! that steps can be left out and the others stay what they are.

use std::collections::{BTreeMap, BTreeSet};

use pop_store::testkit::Random;

use crate::{
    actions::{self, Action},
    steps,
};

/// The steps of a run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The seed.
    pub seed: u64,
    /// Only these, if any are named.
    pub only: Option<BTreeSet<u64>>,
    /// Nothing goes wrong in the store in these.
    pub faultless: BTreeSet<u64>,
    /// What happens in these, whatever the seed has in store for them.
    recorded: BTreeMap<u64, &'static Action>,
    /// The trace is printed as it grows, between what the broker logs.
    pub echo: bool,
    // The steps in which the power goes, whatever else.
    cuts: [u64; 2],
}

impl Plan {
    /// A run goes on for at least so many steps ...
    const STEPS_MIN: u64 = 300;
    /// ... and until its clients have made so many calls.
    const CALLS_MIN: u64 = 1_000;
    /// But no longer than this.
    const STEPS_MAX: u64 = 3_000;

    /// All steps of a seed.
    pub fn new(seed: u64) -> Self {
        let mut random = Random::new(seed ^ 0x5EED_0FC0);
        let third = Self::STEPS_MIN / 3;
        Self {
            seed,
            only: None,
            faultless: BTreeSet::new(),
            recorded: BTreeMap::new(),
            echo: false,
            cuts: [
                third / 2 + random.below(third),
                2 * third + random.below(third),
            ],
        }
    }

    /// The steps of a run that was recorded: each with its action, so that it is the same run
    /// whatever other actions there are.
    ///
    /// # Errors
    ///
    /// If a step can't be read, or its action is none.
    pub fn recorded(seed: u64, recorded: &[(&str, &str)], faultless: &str) -> Result<Self, String> {
        let mut plan = Self::new(seed);
        for (name, numbers) in recorded {
            let action = actions::named(name).ok_or_else(|| format!("{name:?} is no action"))?;
            let numbers = steps::read(numbers)?.into_iter();
            plan.recorded.extend(numbers.map(|number| (number, action)));
        }
        plan.only = Some(plan.recorded.keys().copied().collect());
        plan.faultless = steps::read(faultless)?;
        Ok(plan)
    }

    /// What happens in a step, if that is not for chance to say.
    pub fn action_at(&self, step: u64) -> Option<&'static Action> {
        let cut = || actions::named("crash").filter(|_| self.cuts.contains(&step));
        self.recorded.get(&step).copied().or_else(cut)
    }

    /// Chance for what concerns the whole run.
    pub fn random(&self) -> Random {
        Random::new(self.seed)
    }

    /// Chance for how often a run has which action. Apart from all other, which so does not
    /// depend on how many actions there are.
    pub fn random_of_actions(&self) -> Random {
        Random::new(self.seed ^ 0xAC71_0225)
    }

    /// Chance for one step.
    pub fn random_of(&self, step: u64) -> Random {
        let mut seed = Random::new(
            self.seed
                .wrapping_add(step.wrapping_mul(0xA24B_AED4_963E_E407)),
        );
        Random::new(seed.next_u64())
    }

    /// The step after `step`, or the first, if clients have made so many calls.
    pub fn next(&self, step: Option<u64>, calls: u64) -> Option<u64> {
        match &self.only {
            Some(only) => only
                .range(step.map_or(0, |step| step + 1)..)
                .next()
                .copied(),
            None => {
                let next = step.map_or(0, |step| step + 1);
                let goes_on = next < Self::STEPS_MIN || calls < Self::CALLS_MIN;
                (goes_on && next < Self::STEPS_MAX).then_some(next)
            }
        }
    }

    /// Whether something may go wrong in this step.
    pub fn has_faults_at(&self, step: u64) -> bool {
        !self.faultless.contains(&step)
    }
}
