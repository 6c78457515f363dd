//! Consumers that acknowledge, and that ask for more or less time.

use pop_store::testkit::Random;

use super::{consume, produce};
use crate::{model::Lease, model::Millis, op::Op, sim::Sim, violation::Checked};

/// How far back a consumer remembers its deliveries.
const REMEMBERED: usize = 200;

fn pick(sim: &Sim, random: &mut Random) -> Option<(usize, Lease)> {
    let out = sim.model.out();
    (!out.is_empty()).then(|| out[random.index(out.len())])
}

/// Any delivery of late, whatever became of it.
fn pick_any(sim: &Sim, random: &mut Random) -> Option<usize> {
    let count = sim.model.deliveries.len();
    let oldest = count.saturating_sub(REMEMBERED);
    (count > 0).then(|| oldest + random.index(count - oldest))
}

/// Up to four calls of clients that go on meanwhile.
pub(super) fn others(sim: &mut Sim, random: &mut Random) -> Vec<Op> {
    let mut out = sim.model.out();
    let mut ops = Vec::new();
    for _ in 0..random.index(5) {
        match random.below(4) {
            0 => ops.push(produce::any_send(sim, random)),
            1 => ops.push(consume::any_receive(sim, random)),
            _ if out.is_empty() => {}
            _ => {
                let (delivery, _) = out.swap_remove(random.index(out.len()));
                ops.push(ack(delivery, random));
            }
        }
    }
    ops
}

fn ack(delivery: usize, random: &mut Random) -> Op {
    Op::Ack {
        delivery,
        handle: random.index(8),
    }
}

/// Acknowledges up to eight deliveries at once.
pub(super) async fn acknowledge(sim: &mut Sim, random: &mut Random) -> Checked {
    let mut out = sim.model.out();
    let mut ops = Vec::new();
    for _ in 0..1 + random.index(8) {
        if out.is_empty() {
            break;
        }
        let (delivery, _) = out.swap_remove(random.index(out.len()));
        ops.push(ack(delivery, random));
    }
    sim.perform(ops).await.map(drop)
}

/// Gives deliveries up: those that are out, or that may be over.
pub(super) async fn give_up(sim: &mut Sim, random: &mut Random) -> Checked {
    let mut out = sim.model.out();
    let mut deliveries = Vec::new();
    for _ in 0..1 + random.index(3) {
        if out.is_empty() {
            break;
        }
        deliveries.push(out.swap_remove(random.index(out.len())).0);
    }
    if random.chance(1, 4)
        && let Some(any) = pick_any(sim, random)
        && !deliveries.contains(&any)
    {
        deliveries = vec![any];
    }
    let ops = deliveries.into_iter().map(|delivery| Op::GiveUp {
        delivery,
        handle: random.index(8),
    });
    let ops: Vec<Op> = ops.collect();
    sim.perform(ops.clone()).await?;
    if random.chance(1, 3) {
        // As if the answers were lost.
        sim.perform(ops).await?;
    }
    Ok(())
}

/// The time is up, and the broker may not have looked yet.
pub(super) async fn acknowledge_late(sim: &mut Sim, random: &mut Random) -> Checked {
    let Some((delivery, lease)) = pick(sim, random) else {
        return Ok(());
    };
    let late = if random.chance(1, 3) {
        0
    } else {
        random.below(1_000)
    };
    let until = lease.until_at_most + late;
    sim.advance(until.saturating_sub(sim.world.now()));
    let op = ack(delivery, random);
    sim.perform(vec![op]).await.map(drop)
}

/// Acknowledges a delivery that is over, or may be.
pub(super) async fn acknowledge_any(sim: &mut Sim, random: &mut Random) -> Checked {
    let Some(delivery) = pick_any(sim, random) else {
        return Ok(());
    };
    let op = ack(delivery, random);
    sim.perform(vec![op]).await.map(drop)
}

/// Acknowledges, and then again.
pub(super) async fn acknowledge_twice(sim: &mut Sim, random: &mut Random) -> Checked {
    let Some((delivery, _)) = pick(sim, random) else {
        return Ok(());
    };
    let op = ack(delivery, random);
    sim.perform(vec![op.clone()]).await?;
    sim.perform(vec![op]).await.map(drop)
}

fn any_change(delivery: usize, random: &mut Random) -> Op {
    Op::Change {
        delivery,
        handle: random.index(8),
        invisible_ms: match random.below(6) {
            0 => 0,
            _ => consume::invisible_ms(random),
        },
        suspend: random.chance(1, 4),
    }
}

/// Hides a delivery for longer or shorter.
pub(super) async fn change(sim: &mut Sim, random: &mut Random) -> Checked {
    let Some((delivery, _)) = pick(sim, random) else {
        return Ok(());
    };
    let op = any_change(delivery, random);
    sim.perform(vec![op]).await.map(drop)
}

/// Hides a delivery until when it is hidden anyway.
pub(super) async fn change_to_an_equal_deadline(sim: &mut Sim, random: &mut Random) -> Checked {
    let now = sim.world.now();
    let out = sim.model.out().into_iter();
    let mut out: Vec<_> = out.filter(|(_, it)| it.until_at_least > now).collect();
    let stay = sim.cast.tuning.stay_ms;
    let outlasts = |(_, lease): &(usize, Lease)| lease.until_at_least > now + stay;
    let is_stored = random.chance(2, 3) && out.iter().any(outlasts);
    if is_stored {
        out.retain(outlasts);
    }
    if out.is_empty() {
        return Ok(());
    }
    let (delivery, lease) = out.swap_remove(random.index(out.len()));
    if is_stored {
        // By then it is.
        sim.advance(stay);
        sim.rest(120).await;
    }
    let mut op = any_change(delivery, random);
    if let Op::Change { invisible_ms, .. } = &mut op {
        *invisible_ms = lease.until_at_least - sim.world.now();
    }
    sim.perform(vec![op]).await.map(drop)
}

/// Changes a delivery that is over, or may be.
pub(super) async fn change_any(sim: &mut Sim, random: &mut Random) -> Checked {
    let Some(delivery) = pick_any(sim, random) else {
        return Ok(());
    };
    let op = any_change(delivery, random);
    sim.perform(vec![op]).await.map(drop)
}

/// Sends, receives, acknowledgements, changes, and time that passes, all at once.
pub(super) async fn everything_at_once(sim: &mut Sim, random: &mut Random) -> Checked {
    let mut out = sim.model.out();
    let mut ops = Vec::new();
    for _ in 0..2 + random.index(6) {
        match random.below(6) {
            0 => ops.push(produce::any_send(sim, random)),
            1..3 => ops.push(consume::any_receive(sim, random)),
            _ if out.is_empty() => {}
            kind => {
                let (delivery, _) = out.swap_remove(random.index(out.len()));
                ops.push(if kind == 3 {
                    any_change(delivery, random)
                } else {
                    ack(delivery, random)
                });
            }
        }
    }
    let passing: Option<(Millis, Millis)> = random
        .chance(1, 2)
        .then(|| (random.below(6), random.below(15_000)));
    sim.perform_while_time_passes(ops, passing).await.map(drop)
}
