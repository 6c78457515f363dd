//! What happened in a run, in numbers.

/// What happened in a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// The number after the last step.
    pub steps: u64,
    /// Calls of clients.
    pub ops: u64,
    /// Messages handed out.
    pub deliveries: u64,
    /// Power cuts.
    pub crashes: u64,
    /// Restarts with a warning.
    pub restarts: u64,
    /// How often the store was opened anew in between.
    pub recoveries: u64,
    /// Faults injected into the store, short delays aside.
    pub faults: u64,
}

impl Counts {
    /// Adds those of another run.
    pub fn add(&mut self, other: &Self) {
        self.steps += other.steps;
        self.ops += other.ops;
        self.deliveries += other.deliveries;
        self.crashes += other.crashes;
        self.restarts += other.restarts;
        self.recoveries += other.recoveries;
        self.faults += other.faults;
    }
}
