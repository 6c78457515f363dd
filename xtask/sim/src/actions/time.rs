//! Time that passes, and clocks that are set.

use pop_store::testkit::{Call, Fault, Random};

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

/// Leases end while what they are about can't be read: each is tried again later, and is
/// then what it was.
pub(super) async fn wait_while_reads_fail(sim: &mut Sim, random: &mut Random) -> Checked {
    for nth in 1..=2 + random.below(6) {
        sim.world.faults.arm(Call::Get, nth, Fault::Refuse);
    }
    let millis = match random.below(3) {
        0 => random.below(60_000),
        _ => to_a_deadline(sim, random),
    };
    sim.advance(millis);
    sim.rest(150).await;
    sim.world.faults.disarm();
    // The first delay after a failed revive.
    sim.advance(10_000 + random.below(1_000));
    sim.rest(150).await;
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
