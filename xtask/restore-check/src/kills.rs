//! Commands and brokers are killed at random moments, and started again until all is done.
//!
//! Each round is one action and has a seed of its own, so that the one that fails can be
//! played alone. What it can't repeat is the timing of the machine.
//!
//! Mutants that were seen caught, beside those of `handover`: a draft that is gone on with
//! lacks rows that its sums have (`live-backup`); a copy keeps the handle keys of its source
//! (`copy`); an open drops a generation that is in use (`failed-restore`).

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use clap::ValueEnum;
use pop_broker::stores::Backend;
use pop_store::testkit::Random;
use tokio::time::Instant;

use crate::{action::Action, live::Worlds, offline::Sources, program::Program};

/// Kills of one round at most.
const ROUND_MAX: u32 = 4;

/// Kills `kills` times in these actions; in all of them if none is named.
///
/// # Errors
///
/// If something that was killed does not come to its end when it is started again, or what
/// it made is not what it must be.
pub(crate) async fn check(
    program: &Program,
    stores: &[Backend],
    actions: &[Action],
    kills: u32,
    seed: u64,
) -> Result<()> {
    let begun = Instant::now();
    let actions = match actions {
        [] => Action::value_variants(),
        named => named,
    };
    // Few kills are spread over all actions.
    let each = kills.div_ceil(u32::try_from(actions.len())?).min(ROUND_MAX);
    let mut sources = None;
    let mut worlds = Worlds::new(program, stores, each);
    let mut killed: BTreeMap<String, u32> = BTreeMap::new();
    let (mut count, mut round) = (0, 0);
    for action in actions.iter().copied().cycle() {
        if count >= kills {
            break;
        }
        let seed = seed.wrapping_add(round);
        let mut random = Random::new(seed);
        let more = match action {
            Action::LiveBackup | Action::Copy | Action::Handover => {
                worlds.torture(action, &mut random).await
            }
            _ => {
                if sources.is_none() {
                    sources = Some(Sources::fill(program, stores, each).await?);
                }
                let sources = sources.as_ref().context("they were filled")?;
                sources.torture(action, stores, &mut random).await
            }
        };
        let more = more.with_context(|| replay(action, stores, seed))?;
        println!("{}, seed {seed}: {more} kills", action.name());
        count += more;
        *killed.entry(action.name()).or_default() += more;
        round += 1;
    }
    if let Some(sources) = sources {
        sources.are_unchanged().await?;
    }
    worlds.judge().await.context("at the end of all rounds")?;
    let took = begun.elapsed();
    println!("{count} kills in {round} rounds, all came to their end: {killed:?}, {took:.0?}");
    Ok(())
}

/// What plays a round alone.
fn replay(action: Action, stores: &[Backend], seed: u64) -> String {
    let backends: Vec<_> = stores.iter().map(|it| format!("-b {it}")).collect();
    format!(
        "play it with: cargo xtask restore-check --kills {ROUND_MAX} --action {} --seed {seed} {}",
        action.name(),
        backends.join(" ")
    )
}
