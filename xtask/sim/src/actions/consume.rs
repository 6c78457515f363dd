//! Consumers that receive.

use pop_store::testkit::Random;

use crate::{
    model::Millis,
    op::{Answer, Fate, Op},
    sim::{REVIVED_WITHIN, Sim},
    violation::{Checked, Violation},
};

pub(super) fn any_receive(sim: &mut Sim, random: &mut Random) -> Op {
    Op::Receive {
        group: random.index(sim.cast.groups.len()),
        topic: random.index(sim.cast.topics.len()),
        batch: 1 + random.index(8),
        invisible_ms: invisible_ms(random),
        wait_ms: 0,
        number: sim.next_receive(),
        fate: Fate::Taken,
    }
}

pub(super) fn invisible_ms(random: &mut Random) -> Millis {
    match random.below(6) {
        0 => 1 + random.below(200),
        1..4 => 1_000 + random.below(12_000),
        _ => 10_000 + random.below(50_000),
    }
}

/// Receives; where something is ready, it must get some.
pub(super) async fn receive(sim: &mut Sim, random: &mut Random) -> Checked {
    let op = any_receive(sim, random);
    receive_all(sim, vec![op]).await
}

/// Two receives of one group and topic at once: with enough for both, both must get some.
pub(super) async fn receive_twice(sim: &mut Sim, random: &mut Random) -> Checked {
    let first = any_receive(sim, random);
    let mut second = first.clone();
    if let Op::Receive {
        batch,
        invisible_ms: hidden,
        number,
        ..
    } = &mut second
    {
        *number = sim.next_receive();
        *batch = 1 + random.index(8);
        *hidden = invisible_ms(random);
    }
    receive_all(sim, vec![first, second]).await
}

/// Receives of one group and topic.
async fn receive_all(sim: &mut Sim, ops: Vec<Op>) -> Checked {
    let Some(Op::Receive { group, topic, .. }) = ops.first() else {
        return Ok(());
    };
    let (group, topic) = (*group, *topic);
    let wanted: usize = ops
        .iter()
        .map(|op| match op {
            Op::Receive { batch, .. } => *batch,
            _ => 0,
        })
        .sum();
    let ready = sim.ready_count(group, topic);
    let answers = sim.perform(ops).await?;
    // One gets something if anything is ready; all do if there is enough for all.
    let must_get = ready > 0 && (answers.len() == 1 || ready >= wanted);
    if !must_get || !sim.is_calm() || sim.waits(group, topic) {
        return Ok(());
    }
    for answer in answers {
        if matches!(&answer, Answer::Received(Some(Ok(deliveries))) if deliveries.is_empty()) {
            let what = format!(
                "a receive of {wanted} by group {group} came back empty although {ready} messages of topic {topic} are ready: {}",
                sim.ready_text(group, topic)
            );
            return Err(Violation::new("P5 what is ready is handed out", what));
        }
    }
    Ok(())
}

/// A receive whose consumer is gone when the messages come.
pub(super) async fn drop_receive(sim: &mut Sim, random: &mut Random) -> Checked {
    lost_receive(sim, random, Fate::Dropped).await
}

/// A receive whose consumer gives up in the middle.
pub(super) async fn abandon_receive(sim: &mut Sim, random: &mut Random) -> Checked {
    let patience = random.below(6);
    lost_receive(sim, random, Fate::Abandoned(patience)).await
}

async fn lost_receive(sim: &mut Sim, random: &mut Random, becomes: Fate) -> Checked {
    let mut op = any_receive(sim, random);
    if let Op::Receive { fate, wait_ms, .. } = &mut op {
        *fate = becomes;
        if becomes != Fate::Dropped {
            *wait_ms = random.below(20);
        }
    }
    sim.perform(vec![op]).await?;
    // What was on its way is released by itself; what was stored meanwhile, as if its time
    // was up.
    let rest = if sim.cast.tuning.leases_max < 1_000 {
        REVIVED_WITHIN
    } else {
        10
    };
    sim.rest(rest).await;
    Ok(())
}

/// A receive that waits for its first message while the run goes on.
pub(super) async fn wait_for_a_message(sim: &mut Sim, random: &mut Random) -> Checked {
    let mut op = any_receive(sim, random);
    if let Op::Receive { wait_ms, .. } = &mut op {
        *wait_ms = 20 + random.below(4_000);
    }
    sim.begin_in_background(op);
    Ok(())
}

/// A consumer in order repeats a receive, as if its answer was lost: it gets its batch.
pub(super) async fn repeat_a_receive(sim: &mut Sim, random: &mut Random) -> Checked {
    let out = sim.model.out().into_iter();
    let of_fifo: Vec<_> = out
        .filter_map(|(delivery, lease)| Some((delivery, lease.receive?)))
        .filter(|(delivery, _)| {
            let group = sim.model.deliveries[*delivery].group;
            sim.cast.groups[group].is_fifo
        })
        .collect();
    if of_fifo.is_empty() {
        return Ok(());
    }
    let (delivery, repeated) = of_fifo[random.index(of_fifo.len())];
    let handed = &sim.model.deliveries[delivery];
    let (group, message) = (handed.group, handed.message);
    let topic = sim.model.messages[message].content.topic;
    let mut op = any_receive(sim, random);
    if let Op::Receive {
        group: by,
        topic: of,
        number,
        batch,
        ..
    } = &mut op
    {
        (*by, *of, *number, *batch) = (group, topic, repeated, 32);
    }
    let now = sim.world.now();
    let must_repeat = sim.model.must_repeat(group, topic, repeated, now);
    let answers = sim.perform(vec![op]).await?;
    let is_empty = |answer: &Answer| matches!(answer, Answer::Received(Some(Ok(deliveries))) if deliveries.is_empty());
    if must_repeat && sim.is_calm() && answers.iter().all(is_empty) {
        let what = format!("receive {repeated} was repeated and got nothing of its batch");
        return Err(Violation::new("P7 a repeated receive gets its batch", what));
    }
    Ok(())
}
