//! How fast a content is moved where there is a limit.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use pop_broker::{
    space::{KEYSPACES, SEALS},
    transfer::{CopyOptions, Source, Whose, copy},
};
use pop_store::{Durability, MemStore, Store, WriteBatch, table::BODY};
use tokio::time::{Instant, timeout};

const MIB: u64 = 1 << 20;
const CONTENT_BYTES: u64 = 16 * MIB;
const ROW_BYTES: usize = 32 << 10;
/// A second moves a sixteenth.
const RATE: u64 = MIB;

// Mutant: the target has the limit, so that what a source only counts is read as fast as it
// can be.
#[tokio::test(start_paused = true)]
async fn what_an_earlier_command_moved_is_counted_no_faster_than_the_rate() {
    let from: Arc<dyn Store> = Arc::new(MemStore::new(&KEYSPACES));
    for row in 0..CONTENT_BYTES / ROW_BYTES as u64 {
        let mut batch = WriteBatch::new();
        let key = row.to_be_bytes().to_vec();
        batch.put(BODY, key.into(), vec![7; ROW_BYTES].into());
        from.write(batch, Durability::Synced).await.unwrap();
    }
    let source = Source::of_store(&from, 0, None, Whose::Owner).await;
    let source = source.unwrap();
    let to: Arc<dyn Store> = Arc::new(MemStore::new(&KEYSPACES));
    let target = kv_restore::Target::new(to).with_seals(SEALS);
    let numbers = AtomicU64::new(1);
    let chance = Arc::new(move || numbers.fetch_add(1, Ordering::Relaxed));
    let options = CopyOptions::new(chance).with_rate(RATE);

    let cut = copy(&source, target.clone(), &options, |_| {});
    let cut = timeout(Duration::from_secs(13), cut).await;
    assert!(cut.is_err(), "it takes 16 seconds");
    tokio::time::sleep(Duration::from_secs(1)).await;

    let begun = Instant::now();
    let mut before = 0;
    let copied = copy(&source, target, &options, |it| before = it.bytes_before).await;
    copied.unwrap();
    assert!(before >= 8 * MIB, "it goes on behind {before}");
    let seconds = begun.elapsed().as_secs_f64();
    // A part that is counted and a chunk need not be paid for.
    assert!((13.0..17.0).contains(&seconds), "{seconds}");
}
