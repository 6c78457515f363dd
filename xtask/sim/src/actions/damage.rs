//! A disk that returns other bytes than were written, and what an operator does about it.

use pop_store::testkit::Random;

use super::{operate, settle};
use crate::{op::Op, sim::Sim, violation::Checked, world::Origin};

/// The most messages of a run that are damaged.
const DAMAGED_MAX: usize = 5;

/// Makes the row of a message unreadable: it goes to quarantine and holds up no other.
pub(super) async fn damage_a_message(sim: &mut Sim, random: &mut Random) -> Checked {
    let messages = sim.model.messages.iter();
    if messages.filter(|it| it.is_damaged).count() >= DAMAGED_MAX {
        return Ok(());
    }
    // One of the latest, which is not done yet.
    let messages = sim.model.messages.iter().enumerate().rev().take(20);
    let candidates: Vec<(usize, Origin)> = messages
        .filter(|(number, sent)| {
            let is_whole = !sent.is_damaged && !sent.was_repaired;
            is_whole && !sent.is_doubtful && sim.model.is_of_this_topic(*number)
        })
        .filter_map(|(number, sent)| {
            let (queue, offset) = sent.place?;
            let topic = sent.content.topic;
            Some((
                number,
                Origin {
                    topic,
                    life: sent.life,
                    queue,
                    offset,
                },
            ))
        })
        .collect();
    if candidates.is_empty() {
        return Ok(());
    }
    let (number, at) = candidates[random.index(candidates.len())];
    if sim.world.damage(at).await? {
        sim.note(format_args!("m{number} is damaged"));
        sim.model.damaged(number);
    }
    Ok(())
}

/// Takes up a record in quarantine: most often its message is made readable first, and it
/// is put back to work; or it is given up. Messages may end by their age in between, which
/// neither what waits in quarantine nor what was put back to work may lose.
pub(super) async fn take_up_a_record(sim: &mut Sim, random: &mut Random) -> Checked {
    // While the store has trouble it can't be listed.
    let Ok(records) = sim.world.put_away().await? else {
        return Ok(());
    };
    let known = records.iter().filter_map(|it| Some((it, it.origin?)));
    let known: Vec<_> = known.collect();
    if known.is_empty() {
        return Ok(());
    }
    let (record, origin) = known[random.index(known.len())];
    let message = sim.message_at(origin)?;
    if random.chance(3, 4)
        && sim.model.messages[message].is_damaged
        && sim.world.repair(origin).await?
    {
        sim.note(format_args!("m{message} is what it was"));
        sim.model.repaired(message);
    }
    let is_slow = random.chance(1, 2);
    if is_slow {
        operate::grow_old(sim).await?;
    }
    if record.group.is_some() && !sim.model.is_clear(message) {
        return Ok(());
    }
    let mut ops = vec![Op::Quarantined {
        place: record.place,
        group: record.group,
        message,
        is_dropped: random.chance(1, 5),
    }];
    ops.extend(settle::others(sim, random));
    sim.perform(ops).await?;
    if is_slow {
        operate::grow_old(sim).await?;
    }
    Ok(())
}
