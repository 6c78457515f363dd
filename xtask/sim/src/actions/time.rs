//! Time that passes, and clocks that are set.

use pop_store::testkit::Random;

use crate::{sim::Sim, violation::Checked};

/// Time passes: leases end.
pub(super) async fn wait(sim: &mut Sim, random: &mut Random) -> Checked {
    let millis = match random.below(6) {
        0 => random.below(100),
        2 | 3 => to_a_deadline(sim, random),
        1 => 30_000 + random.below(60_000),
        _ => random.below(20_000),
    };
    sim.advance(millis);
    let rest = [0, 10, 120, 1_500][random.index(4)];
    sim.rest(rest).await;
    Ok(())
}

/// Exactly until the time of a delivery is up.
fn to_a_deadline(sim: &Sim, random: &mut Random) -> u64 {
    let now = sim.world.now();
    let out = sim.model.out().into_iter();
    let deadlines: Vec<u64> = out
        .map(|(_, lease)| lease.until_at_most)
        .filter(|until| *until > now)
        .collect();
    if deadlines.is_empty() {
        return 0;
    }
    deadlines[random.index(deadlines.len())] - now
}

/// Somebody sets the wall clock, by up to three days.
pub(super) async fn shift_the_wall_clock(sim: &mut Sim, random: &mut Random) -> Checked {
    const THREE_DAYS: i64 = 3 * 24 * 60 * 60 * 1_000;
    let shift = i64::try_from(random.below(2 * 3 * 24 * 60 * 60 * 1_000)).unwrap_or(0) - THREE_DAYS;
    sim.note(format_args!("the wall clock is set by {shift} ms"));
    sim.world.shift_wall(shift);
    sim.read_the_clocks();
    Ok(())
}
