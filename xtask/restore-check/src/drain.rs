//! Takes everything out of a copy, as its consumers would.

use std::{collections::BTreeSet, path::Path, time::Duration};

use anyhow::{Context, Result, ensure};
use pop_broker::{BrokerError, Delivery, ReceiveRequest, stores::Backend};
use pop_model::TopicName;

use crate::{
    broker::{Life, group, since_epoch, topic},
    fill::{ONCE, ORDERED, PAIRS},
    ledger::{Ledger, Pair, Received},
    program::Place,
};

/// While what was out still is.
const SOON: Duration = Duration::from_secs(120);
/// Long after all of it came back.
const LATER: Duration = Duration::from_secs(20 * 3_600);
/// So many looks that find nothing are the end.
const QUIET: u32 = 2;
const UNDERTAKER: &str = "undertaker";

/// Starts a broker on a copy, and receives and acknowledges until nothing comes any more.
///
/// # Errors
///
/// If the broker refuses anything, or a copy takes a handle of the original.
pub(crate) async fn drain(
    store: Backend,
    folder: &Path,
    ledger: &Ledger,
    is_copy: bool,
) -> Result<Received> {
    let life = Life::start(store, folder, SOON).await?;
    if is_copy {
        old_handle_is_refused(&life, ledger).await?;
    }
    life.advance(LATER).await;
    let mut received = Received::default();
    let mut quiet = 0;
    while quiet < QUIET {
        let before = received.first.len();
        for pair in PAIRS {
            take_all(&life, pair, topic(pair.1)?, pair.0, &mut received).await?;
        }
        let letters = TopicName::dead_letter(&group(ONCE.0)?);
        take_all(&life, ONCE, letters, UNDERTAKER, &mut received).await?;
        quiet = if received.first.len() == before {
            quiet + 1
        } else {
            0
        };
        life.advance(Duration::from_secs(3_600)).await;
    }
    let quarantined = life.broker.quarantined(0, 100).await?.len();
    ensure!(
        quarantined == ledger.quarantined,
        "{quarantined} records in quarantine, not {}",
        ledger.quarantined
    );
    life.stop().await?;
    Ok(received)
}

/// Starts a broker on the folder of one that served clients of late, as a copy if it is to
/// refuse a `foreign` handle, and takes all that it gives to the groups of these pairs.
///
/// # Errors
///
/// If the broker refuses anything, or takes the handle.
pub(crate) async fn drain_live(
    at: &Place,
    pairs: [Pair; 2],
    foreign: Option<(Pair, String)>,
) -> Result<BTreeSet<String>> {
    let life = Life::start(at.0, &at.1, since_epoch()?).await?;
    if let Some((pair, handle)) = &foreign {
        is_refused(&life, *pair, handle).await?;
    }
    let mut received = Received::default();
    for _ in 0..=QUIET {
        life.advance(LATER / 10).await;
        for pair in pairs {
            take_all(&life, pair, topic(pair.1)?, pair.0, &mut received).await?;
        }
    }
    life.stop().await?;
    Ok(received.first.into_keys().map(|(_, id)| id).collect())
}

/// Takes what `by` gets of `of`, which counts for `pair`.
async fn take_all(
    life: &Life,
    pair: Pair,
    of: TopicName,
    by: &str,
    received: &mut Received,
) -> Result<()> {
    let by = group(by)?;
    loop {
        let hidden = Duration::from_secs(60);
        let request = ReceiveRequest::new(by.clone(), of.clone(), hidden);
        let deliveries = match life.broker.receive(request).await {
            Ok(handout) => handout.take(),
            // The first dead letter makes their topic.
            Err(BrokerError::TopicNotFound(_)) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        if deliveries.is_empty() {
            return Ok(());
        }
        for delivery in deliveries {
            life.broker.ack(&by, &of, delivery.handle.as_str()).await?;
            note(pair, delivery, received);
        }
    }
}

fn note(pair: Pair, delivery: Delivery, received: &mut Received) {
    let message = delivery.message;
    let id = match message.origin {
        Some(origin) => origin.message_id,
        None => message.message_id,
    };
    if let Some(message_group) = message.message_group.filter(|_| pair.1 == ORDERED) {
        let ids = received.ordered.entry(message_group).or_default();
        ids.push(id.clone());
    }
    let first = received.first.entry((pair, id));
    first.or_insert(delivery.delivery_attempt);
}

/// A copy settles nothing of what was handed out elsewhere, also while its time is not over.
async fn old_handle_is_refused(life: &Life, ledger: &Ledger) -> Result<()> {
    let (pair, handle) = ledger.handle.as_ref().context("a handle")?;
    is_refused(life, *pair, handle).await
}

async fn is_refused(life: &Life, pair: Pair, handle: &str) -> Result<()> {
    let (by, of) = (group(pair.0)?, topic(pair.1)?);
    let taken = life.broker.ack(&by, &of, handle).await;
    ensure!(
        matches!(taken, Err(BrokerError::Handle(_))),
        "a handle of the original, given to a copy: {taken:?}"
    );
    Ok(())
}
