//! A disk that returns other bytes than were written.

use pop_store::testkit::Random;

use crate::{sim::Sim, violation::Checked, world::Origin};

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
            !sent.is_damaged && !sent.is_doubtful && sim.model.is_of_this_topic(*number)
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
