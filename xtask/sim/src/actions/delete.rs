//! Topics and groups that are deleted, whatever is out of them, and made again.

use std::time::Duration;

use pop_broker::BrokerError;
use pop_store::testkit::{Call, Fault, Random};

use super::{consume, power, settle};
use crate::{
    op::{Answer, Op},
    sim::{Sim, WOKEN_WITHIN},
    violation::{Checked, Violation},
};

/// The most deletions of a run: each ends much that was going on.
const DELETIONS_MAX: u32 = 3;
/// So often something is tried while the store has trouble; all of that ends before.
const TRIES_MAX: u32 = 300;
/// So many receive from what is deleted in that moment, and so many give a delivery up.
const WORKERS: usize = 3;
/// How long until it is tried again.
const PAUSE_MS: u64 = 100;

/// What is deleted.
#[derive(Clone, Copy, Debug)]
enum Doomed {
    Topic(usize),
    Group { group: usize, with_letters: bool },
}

/// Deletes a topic: its neighbours lose nothing, and the next one of its name has nothing
/// of it.
pub(super) async fn delete_a_topic(sim: &mut Sim, random: &mut Random) -> Checked {
    let doomed = Doomed::Topic(random.index(sim.cast.topics.len()));
    delete(sim, random, doomed).await
}

/// Deletes a group: it begins anew where new groups do.
pub(super) async fn delete_a_group(sim: &mut Sim, random: &mut Random) -> Checked {
    let doomed = Doomed::Group {
        group: random.index(sim.cast.groups.len()),
        with_letters: random.chance(1, 2),
    };
    delete(sim, random, doomed).await
}

async fn delete(sim: &mut Sim, random: &mut Random, doomed: Doomed) -> Checked {
    if sim.deletions >= DELETIONS_MAX {
        return Ok(());
    }
    sim.deletions += 1;
    let mut ops = vec![doomed.deletion()];
    ops.extend(settle::others(sim, random));
    let is_slow = random.chance(1, 2);
    if is_slow {
        ops.extend(doomed.work(sim, random));
        slow_down(sim, random);
    }
    let answers = sim.perform(ops).await?;
    if is_slow {
        // What others still do is done in time from here on.
        sim.world.faults.disarm();
    }
    let is_whole = answers
        .iter()
        .any(|it| matches!(it, Answer::Deleted(Ok(()))));
    if doomed.stands(sim).await? {
        return Ok(());
    }
    // What was answered before it was deleted is of the old one.
    sim.perform(Vec::new()).await?;
    doomed.has_ended(sim, is_whole);
    nobody_waits(sim, doomed).await?;
    match random.below(4) {
        0 => power::crash(sim, random).await?,
        1 => sim.rest(random.below(60)).await,
        _ => {}
    }
    doomed.make_again(sim).await
}

impl Doomed {
    fn deletion(self) -> Op {
        match self {
            Self::Topic(topic) => Op::DeleteTopic { topic },
            Self::Group {
                group,
                with_letters,
            } => Op::DeleteGroup {
                group,
                with_letters,
            },
        }
    }

    /// What clients do with it meanwhile: receives, and writes that the deletion waits for.
    fn work(self, sim: &mut Sim, random: &mut Random) -> Vec<Op> {
        let mut ops = Vec::new();
        for _ in 0..WORKERS {
            let mut op = consume::any_receive(sim, random);
            if let Op::Receive { group, topic, .. } = &mut op {
                match self {
                    Self::Topic(of) => *topic = of,
                    Self::Group { group: of, .. } => *group = of,
                }
            }
            ops.push(op);
        }
        let mut out = sim.model.out();
        out.retain(|(delivery, _)| {
            let of = &sim.model.deliveries[*delivery];
            match self {
                Self::Topic(topic) => sim.model.messages[of.message].content.topic == topic,
                Self::Group { group, .. } => of.group == group,
            }
        });
        for _ in 0..WORKERS.min(out.len()) {
            let (delivery, _) = out.swap_remove(random.index(out.len()));
            ops.push(Op::GiveUp {
                delivery,
                handle: 0,
            });
        }
        ops
    }

    /// Whether it was not deleted, as the broker says once it serves.
    async fn stands(self, sim: &mut Sim) -> Checked<bool> {
        for _ in 0..TRIES_MAX {
            sim.until_serving().await?;
            let stands = match self {
                Self::Topic(topic) => sim.world.has_topic(&sim.cast, topic),
                Self::Group { group, .. } => sim.world.has_group(&sim.cast, group),
            };
            match stands {
                Ok(stands) => return Ok(stands),
                Err(error) => again(sim, &error).await?,
            }
        }
        Err(never("says whether something was deleted"))
    }

    /// Where the broker did not say that it is done, dead letters may be left.
    fn has_ended(self, sim: &mut Sim, is_whole: bool) {
        sim.note(format_args!("{self:?} is deleted"));
        match self {
            Self::Topic(topic) => sim.model.topic_deleted(topic),
            Self::Group {
                group,
                with_letters,
            } => sim.model.group_deleted(group, with_letters && is_whole),
        }
    }

    /// Makes another one of its name.
    async fn make_again(self, sim: &mut Sim) -> Checked {
        for _ in 0..TRIES_MAX {
            sim.until_serving().await?;
            let made = match self {
                Self::Topic(topic) => sim.world.make_topic(&sim.cast, topic).await,
                Self::Group { group, .. } => sim.world.make_group_of(&sim.cast, group).await,
            };
            match made {
                Ok(()) => return Ok(()),
                Err(error) => again(sim, &error).await?,
            }
        }
        Err(never("makes something again that was deleted"))
    }

    fn is_of(self, op: &Op) -> bool {
        match (op, self) {
            (Op::Receive { topic, .. }, Self::Topic(of)) => *topic == of,
            (Op::Receive { group, .. }, Self::Group { group: of, .. }) => *group == of,
            _ => false,
        }
    }
}

/// Every call of the store is a little late, so that the deletion meets others halfway.
fn slow_down(sim: &Sim, random: &mut Random) {
    for call in [Call::Write, Call::Scan, Call::MultiGet, Call::Get] {
        for nth in 1..=8 {
            let late = Duration::from_micros(random.below(5_000));
            sim.world.faults.arm(call, nth, Fault::Delay(late));
        }
    }
}

/// The deletion ends whoever waits (P5).
async fn nobody_waits(sim: &mut Sim, doomed: Doomed) -> Checked {
    if !sim.is_calm() {
        return Ok(());
    }
    sim.rest(WOKEN_WITHIN).await;
    sim.perform(Vec::new()).await?;
    if sim.has_waiting(|op| doomed.is_of(op)) {
        let what = format!("a receive still waits although {doomed:?} is deleted");
        return Err(Violation::new("P5 a deletion ends who waits", what));
    }
    Ok(())
}

async fn again(sim: &mut Sim, error: &BrokerError) -> Checked {
    match error {
        BrokerError::Recovering | BrokerError::ShuttingDown | BrokerError::Store(_) => {
            sim.note(format_args!("tried again: {error}"));
            sim.rest(PAUSE_MS).await;
            Ok(())
        }
        _ => Err(Violation::new(
            "errors are those that were asked for",
            error.to_string(),
        )),
    }
}

fn never(what: &str) -> Violation {
    Violation::new("P5 no wedge", format!("the broker never {what}"))
}
