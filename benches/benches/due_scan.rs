//! What it costs to see that nothing is due, after many hints were put and deleted, before
//! and after a restart.
//!
//! `look` is what the reviver does as long as nothing is due: memory knows it. `pass` reads
//! the index from the floor, which a start does once a shard; the first one begins at the
//! stored floor, a second behind. `from_zero` is the same scan without a floor, which walks
//! every tombstone: it stands here as the peer.
//!
//! `POP_BENCH_HINTS` says how many hints, a million else.

use std::{hint::black_box, path::Path, sync::Arc, time::Duration};

use criterion::{Criterion, criterion_group, criterion_main};
use pop_benches::{backends, checkpoint, leases::NoRevive, now, open};
use pop_model::{Clock, DueKey, LeaseTime, ManualClock, ShardId, WallTime};
use pop_revive::{Reviver, ReviverOptions};
use pop_store::{
    Durability, Scan, Store, WriteBatch,
    table::{DUE, DueSchedule, lease, meta},
};
use tokio::runtime::Runtime;

const HINTS_A_BATCH: u64 = 250;
/// A hint is due each millisecond, and the floor is stored once a second.
const HINTS_A_SECOND: u64 = 1_000;

fn hints() -> u64 {
    let hints = std::env::var("POP_BENCH_HINTS").ok();
    hints.map_or(1_000_000, |text| text.parse().expect("a number of hints"))
}

fn shard() -> ShardId {
    checkpoint(0).identity.queue.shard()
}

async fn put_and_delete(store: &dyn Store, hints: u64) {
    for first in (0..hints).step_by(usize::try_from(HINTS_A_BATCH).expect("it is small")) {
        for delete in [false, true] {
            let mut batch = WriteBatch::new();
            for number in first..first + HINTS_A_BATCH {
                let key = checkpoint(number).due_key();
                if delete {
                    batch.delete(DUE, key);
                } else {
                    batch.put(DUE, key, bytes::Bytes::new());
                }
            }
            let written = store.write(batch, Durability::Buffered).await;
            written.expect("the store takes hints");
        }
    }
    // One that is due later, so that the scan has an end to find.
    let mut batch = WriteBatch::new();
    lease::store(&mut batch, &checkpoint(2 * hints));
    let written = store.write(batch, Durability::Synced).await;
    written.expect("the store takes a lease");
}

/// Stores the floor as it was a second before hint `number` was due.
async fn store_floor(store: &dyn Store, number: u64) {
    let mut batch = WriteBatch::new();
    let floor = checkpoint(number.saturating_sub(HINTS_A_SECOND)).visible_at;
    meta::put_due_floor(&mut batch, shard(), floor);
    let written = store.write(batch, Durability::Synced).await;
    written.expect("the store takes a floor");
}

/// A reviver as a start makes it, when hint `number` is due.
async fn reviver(
    store: &Arc<dyn Store>,
    number: u64,
) -> (Reviver<NoRevive>, DueSchedule, LeaseTime) {
    let stored = meta::due_floor(store.as_ref(), shard()).await;
    let stored = stored.expect("the store answers");
    let schedule = DueSchedule::restore(|_| stored);
    let clock = ManualClock::new(checkpoint(number).visible_at, WallTime::default());
    let now = clock.lease();
    let reviver = Reviver::new(
        Arc::clone(store),
        Arc::new(NoRevive),
        Arc::new(clock),
        schedule.clone(),
        Arc::default(),
        ReviverOptions::default(),
    );
    (reviver, schedule, now)
}

#[expect(clippy::print_stdout, reason = "a benchmark says what it measured")]
fn first_pass(runtime: &Runtime, reviver: &Reviver<NoRevive>, name: &str) {
    let begun = now();
    let report = runtime.block_on(reviver.pass(shard()));
    report.expect("the store answers");
    println!("{name:<50} {:?}, once", begun.elapsed());
}

fn look_and_pass(
    criterion: &mut Criterion,
    runtime: &Runtime,
    store: &Arc<dyn Store>,
    name: &str,
    number: u64,
) {
    runtime.block_on(store_floor(store.as_ref(), number));
    let (reviver, schedule, now) = runtime.block_on(reviver(store, number));
    first_pass(runtime, &reviver, &format!("{name}/first pass"));
    // The other shards hold nothing: their first pass says so.
    for shard in ShardId::all() {
        let report = runtime.block_on(reviver.pass(shard));
        report.expect("the store answers");
    }
    let mut group = criterion.benchmark_group(name);
    group.sample_size(10);
    group.bench_function("look", |bencher| {
        bencher.iter(|| black_box((schedule.due_shards(now), schedule.earliest())));
    });
    assert_eq!(schedule.due_shards(now), [], "nothing is due");
    group.bench_function("pass", |bencher| {
        bencher.iter(|| runtime.block_on(reviver.pass(shard())).expect("it answers"));
    });
    group.finish();
}

fn from_zero(criterion: &mut Criterion, runtime: &Runtime, store: &dyn Store, name: &str) {
    let (start, end) = DueKey::shard_range(shard());
    let scan = Scan::range(start, end).with_entries_max(512);
    let mut group = criterion.benchmark_group(name);
    group.sample_size(10).warm_up_time(Duration::from_millis(1));
    group.bench_function("from_zero", |bencher| {
        bencher.iter(|| {
            let found = runtime.block_on(store.scan(DUE, scan.clone()));
            black_box(found.expect("the store answers"))
        });
    });
    group.finish();
}

fn backend(criterion: &mut Criterion, runtime: &Runtime, backend: &str, folder: &Path) {
    let store = open(backend, folder);
    let name = format!("due_scan/{backend}/empty");
    look_and_pass(criterion, runtime, &store, &name, 0);
    let hints = hints();
    runtime.block_on(put_and_delete(store.as_ref(), hints));
    let name = format!("due_scan/{backend}/deleted");
    look_and_pass(criterion, runtime, &store, &name, hints);
    from_zero(criterion, runtime, store.as_ref(), &name);
    runtime.block_on(store_floor(store.as_ref(), hints));
    runtime.block_on(store.close()).expect("the store closes");
    if backend == "memory" {
        return;
    }
    drop(store);
    let store = open(backend, folder);
    let name = format!("due_scan/{backend}/reopened");
    look_and_pass(criterion, runtime, &store, &name, hints);
    from_zero(criterion, runtime, store.as_ref(), &name);
    runtime.block_on(store.close()).expect("the store closes");
}

fn due_scan(criterion: &mut Criterion) {
    let runtime = Runtime::new().expect("a runtime starts");
    for name in backends() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        backend(criterion, &runtime, name, folder.path());
    }
}

criterion_group!(benches, due_scan);
criterion_main!(benches);
