//! The end of a run: nothing goes wrong any more, and everything must come to its end
//! within a bound (P1, P5).

use std::collections::BTreeSet;

use pop_broker::ReceiveRequest;
use pop_model::TopicName;

use crate::{
    message::Content,
    model::{Findings, Millis},
    op::{Answer, Fate, Op},
    sim::Sim,
    violation::{Checked, Violation},
    world,
};

/// Longer than any lease of a run.
const LEASE_MAX: Millis = 61_000;
/// Longer than the longest delay after a failed revive.
const BACKOFF_MAX: Millis = 2 * 60 * 60 * 1_000 + LEASE_MAX;
/// A delivery goes to quarantine after at most eighteen failed revives.
const TRIED_UNTIL_ROUND: u32 = 24;
/// After so many rounds everything must have come to its end.
const ROUNDS_MAX: u32 = 30;
/// The group that reads dead letters.
const READER: &str = "reader";
/// How long the reader of dead letters hides them.
const READING_MS: Millis = 60 * 60 * 1_000;

/// Brings the run to its end, and holds the end against the model.
///
/// # Errors
///
/// If the end is not what was promised.
pub(crate) async fn finish(sim: &mut Sim) -> Checked {
    sim.begin_end().await?;
    let mut silent_rounds = 0;
    let mut round = 0;
    // What may be out after a doubt comes back in a while, or was done.
    while silent_rounds < 2 {
        if round == ROUNDS_MAX {
            let what = format!("something never came to its end: {}", sim.model.open_text());
            return Err(Violation::new("P5 everything comes to its end", what));
        }
        let before = sim.counts.deliveries;
        drain(sim).await?;
        let is_tried = round >= TRIED_UNTIL_ROUND || !sim.model.is_being_exhausted();
        let is_over = !sim.model.has_open() && is_tried;
        let was_silent = sim.counts.deliveries == before && is_over;
        silent_rounds = if was_silent { silent_rounds + 1 } else { 0 };
        sim.advance(if round < 3 { LEASE_MAX } else { BACKOFF_MAX });
        sim.rest(1_500).await;
        round += 1;
    }
    look_for_repeats(sim).await?;
    let findings = find(sim).await?;
    sim.model.ended(&findings)
}

/// Receives until there is nothing, and acknowledges everything.
async fn drain(sim: &mut Sim) -> Checked {
    for group in 0..sim.cast.groups.len() {
        for topic in 0..sim.cast.topics.len() {
            // Where not many may be out, acknowledgements make room for more.
            let mut before = None;
            while before != Some(sim.counts.deliveries) {
                before = Some(sim.counts.deliveries);
                receive_all(sim, group, topic).await?;
                acknowledge_all(sim).await?;
            }
        }
    }
    Ok(())
}

async fn receive_all(sim: &mut Sim, group: usize, topic: usize) -> Checked {
    loop {
        let ready = sim.ready_count(group, topic);
        let before = sim.counts.deliveries;
        receive(sim, group, topic).await?;
        if sim.counts.deliveries > before {
            continue;
        }
        if ready > 0 {
            let what = format!(
                "a receive by group {group} came back empty although {ready} messages of topic {topic} are ready: {}",
                sim.ready_text(group, topic)
            );
            return Err(Violation::new("P5 what is ready is handed out", what));
        }
        return Ok(());
    }
}

async fn acknowledge_all(sim: &mut Sim) -> Checked {
    let mut out = sim.model.maybe_out();
    // Those of a damaged message are left to be revived, which must fail.
    out.retain(|it| !sim.model.messages[sim.model.deliveries[*it].message].is_damaged);
    for some in out.chunks(16) {
        let ops = some.iter().map(|delivery| Op::Ack {
            delivery: *delivery,
            handle: 0,
        });
        sim.perform(ops.collect()).await?;
    }
    Ok(())
}

async fn receive(sim: &mut Sim, group: usize, topic: usize) -> Checked<Vec<Answer>> {
    let op = Op::Receive {
        group,
        topic,
        batch: 32,
        invisible_ms: LEASE_MAX - 1_000,
        wait_ms: 0,
        number: sim.next_receive(),
        fate: Fate::Taken,
    };
    sim.perform(vec![op]).await
}

/// Everything was acknowledged long ago, so not even a power cut brings anything back (P4).
async fn look_for_repeats(sim: &mut Sim) -> Checked {
    sim.rest(1_500).await;
    sim.is_all_durable();
    for graceful in [false, true] {
        if graceful {
            sim.restart().await?;
        } else {
            sim.crash(0).await?;
        }
        sim.rest(100).await;
        for group in 0..sim.cast.groups.len() {
            for topic in 0..sim.cast.topics.len() {
                receive(sim, group, topic).await?;
            }
        }
    }
    Ok(())
}

/// Reads the dead letters and the quarantine.
async fn find(sim: &mut Sim) -> Checked<Findings> {
    let mut findings = Findings::default();
    sim.world.make_group(READER).await?;
    for group in 0..sim.cast.groups.len() {
        let name = world::group(sim.cast.groups[group].name);
        for number in dead_letters(sim, &TopicName::dead_letter(&name)).await? {
            findings.dead_letters.push((group, number));
        }
    }
    let listed = sim.world.put_away().await?;
    for record in listed.map_err(unexpected)? {
        let Some(origin) = record.origin else {
            findings.of_unknown += 1;
            continue;
        };
        let number = sim.message_at(origin)?;
        findings.quarantined.push((record.group, number));
    }
    Ok(findings)
}

async fn dead_letters(sim: &mut Sim, topic: &TopicName) -> Checked<Vec<usize>> {
    if sim.world.broker.topic(topic).map_err(unexpected)?.is_none() {
        return Ok(Vec::new());
    }
    let reader = world::group(READER);
    let hidden = std::time::Duration::from_millis(READING_MS);
    let mut numbers = Vec::new();
    let mut places = BTreeSet::new();
    loop {
        let request = ReceiveRequest::new(reader.clone(), topic.clone(), hidden);
        let handout = sim
            .world
            .broker
            .receive(request)
            .await
            .map_err(unexpected)?;
        let letters = handout.take();
        if letters.is_empty() {
            return Ok(numbers);
        }
        for letter in letters {
            let number = Content::number_of(&letter.message.message_id)
                .filter(|number| *number < sim.model.messages.len());
            let Some(number) = number else {
                let what = format!("{} was never sent", letter.message.message_id);
                return Err(Violation::new("what is sent arrives", what));
            };
            sim.model.messages[number].content.check(&letter)?;
            if !places.insert((letter.source.queue, letter.offset)) {
                return Err(Violation::new(
                    "P3 one owner",
                    format!("the dead letter of m{number} came twice at once"),
                ));
            }
            numbers.push(number);
            let handle = letter.handle.to_string();
            let acked = sim.world.broker.ack(&reader, topic, &handle).await;
            acked.map_err(unexpected)?;
        }
    }
}

fn unexpected(error: pop_broker::BrokerError) -> Violation {
    Violation::new("nothing fails without a fault", error.to_string())
}
