//! The workload that knows the store alone: numbered batches over several keyspaces.
//!
//! Each lane writes its batches one after the other; the lanes run side by side, so that
//! the store has groups to make. What a lane has after its n-th batch follows from n, so
//! what a power cut left of it is judged whole: every row of it, and none besides.

mod judge;

use std::{
    collections::{BTreeMap, HashMap},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use anyhow::Result;
use bytes::Bytes;
pub(crate) use judge::{judge, survivors};
use pop_store::{
    Durability, ErrorKind, Keyspace, Store, WriteBatch,
    table::{LEASE, LOG, META, RETRY},
    testkit::Random,
};

use crate::marks::{Mark, Marks, RawMark};

/// How many lanes write.
pub(crate) const LANES: u64 = 6;
// How many batches of a lane have their rows: what is older is deleted.
const WINDOW: u64 = 24;
// How often the deletes of that many batches are one range.
const RANGE_EVERY: u64 = 8;
const ROWS: [Keyspace; 2] = [LOG, RETRY];
const LATEST: [Keyspace; 2] = [META, LEASE];
const PREFIX: &str = "lane/";
// The prefix with its last byte raised.
const PREFIX_END: &str = "lane0";

type Rows = BTreeMap<(Keyspace, Bytes), Bytes>;

/// Writes batches until it is told to stop; `numbers` has the last number of each lane.
///
/// # Errors
///
/// The store's: nothing fails on a healthy disk.
pub(crate) async fn work(
    store: &Arc<dyn Store>,
    marks: &Arc<Marks>,
    numbers: &mut HashMap<u64, u64>,
    stop: &Arc<AtomicBool>,
) -> Result<()> {
    let lanes = (0..LANES).map(|lane| {
        let (store, marks, stop) = (Arc::clone(store), Arc::clone(marks), Arc::clone(stop));
        let last = numbers.get(&lane).copied().unwrap_or(0);
        tokio::spawn(
            async move { write_lane(&*store, &marks, lane, last, &stop, Duration::ZERO).await },
        )
    });
    for (lane, last) in (0..).zip(futures::future::join_all(lanes).await) {
        numbers.insert(lane, last??);
    }
    Ok(())
}

/// Writes the batches of one lane after its batch `last`, with a pause between them, and
/// says which was the last one.
pub(crate) async fn write_lane(
    store: &dyn Store,
    marks: &Marks,
    lane: u64,
    mut last: u64,
    stop: &AtomicBool,
    pause: Duration,
) -> Result<u64> {
    while !stop.load(Ordering::Relaxed) {
        let number = last + 1;
        let synced = Random::new(lane << 32 | number).chance(1, 4);
        let durability = if synced {
            Durability::Synced
        } else {
            Durability::Buffered
        };
        marks.add(&Mark::Raw(RawMark::Begin { lane, number }))?;
        match store.write(batch(lane, number), durability).await {
            // The engine is too busy, and changed nothing.
            Err(error) if error.kind() == ErrorKind::Unavailable => {
                tokio::time::sleep(Duration::from_millis(5)).await;
                continue;
            }
            written => written?,
        }
        marks.add(&Mark::Raw(RawMark::Done {
            lane,
            number,
            synced,
        }))?;
        last = number;
        if !pause.is_zero() {
            tokio::time::sleep(pause).await;
        }
    }
    Ok(last)
}

fn batch(lane: u64, number: u64) -> WriteBatch {
    let mut batch = WriteBatch::new();
    for keyspace in ROWS {
        batch.put(
            keyspace,
            row_key(lane, number),
            value(lane, number, keyspace),
        );
        match number.checked_sub(WINDOW) {
            Some(old) if number.is_multiple_of(RANGE_EVERY) => {
                batch.delete_range(keyspace, row_key(lane, 0), row_key(lane, old + 1));
            }
            Some(old) => {
                batch.delete(keyspace, row_key(lane, old));
            }
            None => {}
        }
    }
    for keyspace in LATEST {
        batch.put(keyspace, latest_key(lane), number.to_string().into());
    }
    batch
}

fn row_key(lane: u64, number: u64) -> Bytes {
    format!("{PREFIX}{lane}/{number:012}").into()
}

fn latest_key(lane: u64) -> Bytes {
    format!("{PREFIX}{lane}/latest").into()
}

/// Mostly small, sometimes far above what engines keep beside its key.
fn value(lane: u64, number: u64, keyspace: Keyspace) -> Bytes {
    let name: u64 = keyspace.name().bytes().map(u64::from).sum();
    let mut random = Random::new(name << 48 | lane << 40 | number);
    let length = match random.below(200) {
        0 => 200_000 + random.index(200_000),
        1..10 => 10_000 + random.index(50_000),
        _ => random.index(3_000),
    };
    let mut value = vec![0; length];
    random.fill(&mut value);
    value.into()
}

/// What a lane has after its batch `number`.
fn rows(lane: u64, number: u64) -> Rows {
    let mut rows = Rows::new();
    if number == 0 {
        return rows;
    }
    for old in number.saturating_sub(WINDOW) + 1..=number {
        for keyspace in ROWS {
            rows.insert((keyspace, row_key(lane, old)), value(lane, old, keyspace));
        }
    }
    for keyspace in LATEST {
        rows.insert((keyspace, latest_key(lane)), number.to_string().into());
    }
    rows
}
