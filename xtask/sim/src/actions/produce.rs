//! Producers.

use pop_store::testkit::{Call, Fault, Random};

use crate::{
    message::Content,
    op::{Fate, Op},
    sim::Sim,
    violation::Checked,
};

/// Larger than what is stored inside a message.
const LARGE_BYTES: usize = 300 << 10;

/// Sends one to three messages.
pub(super) async fn send(sim: &mut Sim, random: &mut Random) -> Checked {
    let op = any_send(sim, random);
    sim.perform(vec![op]).await.map(drop)
}

/// Sends to a store that refuses every write, receives what is there, and starts again: the
/// places of the messages that were refused must be given to nobody.
pub(super) async fn send_to_a_full_disk(sim: &mut Sim, random: &mut Random) -> Checked {
    let op = any_send(sim, random);
    for nth in 1..=8 {
        sim.world.faults.arm(Call::Write, nth, Fault::Refuse);
    }
    let Op::Send { topic, .. } = &op else {
        return Ok(());
    };
    let topic = *topic;
    sim.perform(vec![op]).await?;
    sim.world.faults.disarm();
    for group in 0..sim.cast.groups.len() {
        let op = Op::Receive {
            group,
            topic,
            batch: 8,
            invisible_ms: 5_000,
            wait_ms: 0,
            number: sim.next_receive(),
            fate: Fate::Taken,
        };
        sim.perform(vec![op]).await?;
    }
    sim.rest(200).await;
    sim.crash(usize::MAX).await?;
    let mut op = any_send(sim, random);
    if let Op::Send {
        topic: to,
        contents,
    } = &mut op
    {
        *to = topic;
        for content in contents {
            content.topic = topic;
            content.message_group = None;
        }
    }
    sim.perform(vec![op]).await.map(drop)
}

pub(super) fn any_send(sim: &Sim, random: &mut Random) -> Op {
    let topic = random.index(sim.cast.topics.len());
    let has_message_groups = sim.cast.topics[topic].has_message_groups;
    let contents = (0..1 + random.index(4)).map(|_| Content {
        message_group: has_message_groups.then(|| u8::try_from(random.below(3)).unwrap_or(0)),
        number: 0,
        topic,
        has_tag: random.chance(1, 2),
        bytes: if random.chance(1, 150) {
            LARGE_BYTES
        } else {
            random.index(200)
        },
    });
    Op::Send {
        topic,
        contents: contents.collect(),
    }
}
