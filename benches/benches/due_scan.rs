//! What it costs to see that nothing is due, with a million deleted hints before it.
//!
//! `floor` is how the reviver scans; `from_zero` is the same scan without a floor, which
//! walks every tombstone: it stands here as the peer.

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use pop_benches::{backends, checkpoint, open};
use pop_model::{DueKey, LeaseTime};
use pop_store::{
    Durability, Scan, Store, WriteBatch,
    table::{DUE, lease},
};
use tokio::runtime::Runtime;

const LEASES: u64 = 1_000_000;
const LEASES_A_BATCH: u64 = 250;

async fn put_and_delete(store: &dyn Store) {
    for delete in [false, true] {
        for first in (0..LEASES).step_by(usize::try_from(LEASES_A_BATCH).expect("it is small")) {
            let mut batch = WriteBatch::new();
            for number in first..first + LEASES_A_BATCH {
                let checkpoint = checkpoint(number);
                if delete {
                    batch.delete(DUE, checkpoint.due_key());
                } else {
                    batch.put(DUE, checkpoint.due_key(), bytes::Bytes::new());
                }
            }
            store
                .write(batch, Durability::Buffered)
                .await
                .expect("the store takes hints");
        }
    }
    // One that is due later, so that the scan has an end to find.
    let mut batch = WriteBatch::new();
    lease::store(&mut batch, &checkpoint(2 * LEASES));
    store
        .write(batch, Durability::Synced)
        .await
        .expect("the store takes a lease");
}

fn due_scan(criterion: &mut Criterion) {
    let runtime = Runtime::new().expect("a runtime starts");
    let shard = checkpoint(0).identity.queue.shard();
    let (_, end) = DueKey::shard_range(shard);
    let floor = checkpoint(LEASES).visible_at;
    for backend in backends() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let store = open(backend, folder.path());
        let scan = |from: LeaseTime| {
            Scan::range(DueKey::start(shard, from), end.clone()).with_entries_max(512)
        };
        let mut group = criterion.benchmark_group(format!("due_scan/{backend}"));
        group.sample_size(10);
        let mut bench = |name: &str, scan: Scan| {
            group.bench_function(name, |bencher| {
                bencher.iter(|| {
                    let found = runtime.block_on(store.scan(DUE, scan.clone()));
                    black_box(found.expect("the store answers"))
                });
            });
        };
        bench("nothing_deleted", scan(floor));
        runtime.block_on(put_and_delete(store.as_ref()));
        bench("floor_after_a_million_deletes", scan(floor));
        bench("from_zero_after_a_million_deletes", scan(LeaseTime::ZERO));
        group.finish();
        runtime.block_on(store.close()).expect("the store closes");
    }
}

criterion_group!(benches, due_scan);
criterion_main!(benches);
