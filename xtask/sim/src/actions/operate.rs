//! Operators.

use pop_store::testkit::Random;

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
            let messages = sim.model.messages.iter();
            let of_topic = messages.filter(|sent| sent.content.topic == topic);
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
