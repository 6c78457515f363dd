//! Operators.

use pop_store::testkit::Random;

use super::settle;
use crate::{model::Reset, op::Op, sim::Sim, violation::Checked};

/// The most resets of a run: each brings back much that was done.
const RESETS_MAX: u32 = 6;

/// Sets where a group goes on in a topic, whatever is out of it.
pub(super) async fn reset(sim: &mut Sim, random: &mut Random) -> Checked {
    if sim.resets >= RESETS_MAX {
        return Ok(());
    }
    sim.resets += 1;
    let group = random.index(sim.cast.groups.len());
    let topic = random.index(sim.cast.topics.len());
    let to = match random.below(6) {
        0 => Reset::Earliest,
        1 => Reset::Latest,
        _ => {
            let life = sim.model.life_of_topic(topic);
            let messages = sim.model.messages.iter();
            let of_topic = messages.filter(|sent| (sent.content.topic, sent.life) == (topic, life));
            let places: Vec<_> = of_topic.filter_map(|sent| sent.place).collect();
            if places.is_empty() {
                return Ok(());
            }
            let late = places.len() - 1 - random.index(places.len().min(30));
            let (queue, offset) = places[late];
            Reset::Offset(queue, offset)
        }
    };
    let op = Op::Reset { group, topic, to };
    sim.perform(vec![op]).await.map(drop)
}

/// Says how long messages are kept, which takes a restart.
pub(super) async fn keep_messages(sim: &mut Sim, random: &mut Random) -> Checked {
    let keep = [None, Some(10_000), Some(60_000), Some(600_000)][random.index(4)];
    sim.keep(keep).await
}

/// Messages grow old, and the operator says that wall time is right: what is old enough
/// ends, whatever others do meanwhile.
pub(super) async fn end_the_old(sim: &mut Sim, random: &mut Random) -> Checked {
    let Some(keep) = sim.model.keep() else {
        return Ok(());
    };
    if random.chance(1, 2) {
        sim.advance(random.below(keep + keep / 4));
    }
    let mut ops = vec![Op::ConfirmClock];
    ops.extend(settle::others(sim, random));
    sim.perform(ops).await?;
    sim.rest([0, 0, 3, 20][random.index(4)]).await;
    Ok(())
}

/// Everything that was sent grows so old that it ends.
pub(super) async fn grow_old(sim: &mut Sim) -> Checked {
    let Some(keep) = sim.model.keep() else {
        return Ok(());
    };
    sim.advance(keep + 1);
    sim.perform(vec![Op::ConfirmClock]).await?;
    sim.rest(20).await;
    Ok(())
}
