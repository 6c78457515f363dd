//! What goes wrong in the store during a step, drawn from the seed.

use std::time::Duration;

use pop_store::testkit::{Call, Effect, Fault, Faults, Random};

/// Late by less than this, a call only lets others overtake it.
const OVERTAKEN_MAX: Duration = Duration::from_millis(6);
/// The longest delay that a fault makes.
pub const DELAY_MAX: Duration = Duration::from_millis(1_200);

/// How much goes wrong in a run.
#[derive(Clone, Copy, Debug)]
pub struct Odds {
    /// The steps of a hundred that have a fault.
    pub faults: u64,
    /// The steps of a hundred in which calls overtake each other.
    pub overtaking: u64,
    /// A fault may cut the power.
    pub cuts: bool,
}

impl Odds {
    /// Some runs have no faults at all, so that what is promised without them is seen.
    pub fn draw(random: &mut Random) -> Self {
        let faults = [0, 4, 10, 25];
        let overtaking = [0, 20, 60];
        Self {
            faults: faults[random.index(faults.len())],
            overtaking: overtaking[random.index(overtaking.len())],
            cuts: random.chance(1, 2),
        }
    }

    /// Draws and arms what goes wrong in one step.
    pub fn arm(self, random: &mut Random, faults: &Faults) -> Vec<(Call, u64, Fault)> {
        let mut armed = Vec::new();
        if random.chance(self.overtaking, 100) {
            for call in [Call::Write, Call::Scan, Call::MultiGet, Call::Get] {
                for nth in 1..=6 {
                    if random.chance(1, 3) {
                        let late = Duration::from_micros(random.below(5_000));
                        armed.push((call, nth, Fault::Delay(late)));
                    }
                }
            }
        }
        if random.chance(self.faults, 100) {
            armed.push(self.fault(random));
            match random.below(6) {
                0 => armed.push(self.fault(random)),
                // Disk full: nothing is written for a while.
                1 => {
                    let writes = 2 + random.below(6);
                    armed.extend((1..=writes).map(|nth| (Call::Write, nth, Fault::Refuse)));
                }
                _ => {}
            }
        }
        for (call, nth, fault) in &armed {
            faults.arm(*call, *nth, *fault);
        }
        armed
    }

    fn fault(self, random: &mut Random) -> (Call, u64, Fault) {
        let effect = if random.chance(1, 2) {
            Effect::Happened
        } else {
            Effect::DidNotHappen
        };
        let kind = random.below(20);
        let late = Duration::from_micros(
            random.below(u64::try_from(DELAY_MAX.as_micros()).unwrap_or(u64::MAX)),
        );
        let keep = random.index(16);
        let reads = [Call::Get, Call::MultiGet, Call::Scan];
        let read = reads[random.index(reads.len())];
        let is_write = random.chance(2, 3);
        let call = if is_write { Call::Write } else { read };
        let fault = match kind {
            0..9 => Fault::Refuse,
            9..12 if is_write => Fault::InDoubt(effect),
            12..14 if is_write && self.cuts => Fault::Crash { effect, keep },
            14 => Fault::Hang(effect),
            15 => Fault::Panic(effect),
            _ => Fault::Delay(late),
        };
        (call, 1 + random.below(5), fault)
    }
}

/// Whether a fault is more than a short delay.
pub fn is_trouble(fault: Fault) -> bool {
    !matches!(fault, Fault::Delay(late) if late < OVERTAKEN_MAX)
}
