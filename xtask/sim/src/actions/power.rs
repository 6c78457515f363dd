//! Restarts, with and without warning.

use pop_store::testkit::Random;

use crate::{
    message::Content,
    op::{Fate, Op},
    sim::Sim,
    violation::Checked,
};

/// Shuts the broker down and starts it again: nothing may be lost, nothing repeated.
pub(super) async fn restart(sim: &mut Sim, _: &mut Random) -> Checked {
    sim.restart().await
}

/// A group that starts at the end of its queues receives for the first time, and the power
/// goes: where it starts must be durable.
pub(super) async fn subscribe_and_crash(sim: &mut Sim, random: &mut Random) -> Checked {
    let groups = 0..sim.cast.groups.len();
    let pairs = groups.flat_map(|group| (0..sim.cast.topics.len()).map(move |it| (group, it)));
    let begins = |(group, topic): &(usize, usize)| {
        sim.cast.groups[*group].starts_at_the_end && !sim.model.is_subscribed(*group, *topic)
    };
    let pairs: Vec<_> = pairs.filter(begins).collect();
    if pairs.is_empty() {
        return Ok(());
    }
    let (group, topic) = pairs[random.index(pairs.len())];
    let op = Op::Receive {
        group,
        topic,
        batch: 1,
        invisible_ms: 1_000,
        wait_ms: 0,
        number: sim.next_receive(),
        fate: Fate::Taken,
    };
    sim.perform(vec![op]).await?;
    sim.crash(0).await?;
    let op = Op::Send {
        topic,
        contents: vec![Content {
            number: 0,
            topic,
            has_tag: true,
            bytes: 0,
            message_group: None,
        }],
    };
    sim.perform(vec![op]).await.map(drop)
}

/// Cuts the power, and keeps some of what was not synced.
pub(super) async fn crash(sim: &mut Sim, random: &mut Random) -> Checked {
    let unsynced = sim.world.unsynced_count();
    let keep = match random.below(3) {
        0 => usize::MAX,
        1 => 0,
        _ => random.index(unsynced + 1),
    };
    sim.crash(keep).await
}
