//! What a committed write costs: alone and in a crowd, synced and not.

use std::{hint::black_box, sync::Arc, time::Duration};

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use pop_benches::{CpuMeter, backends, checkpoint, now, open};
use pop_store::{Durability, Store, WriteBatch, table::lease};
use tokio::runtime::Runtime;

/// One lease: a row, a hint, and the condition that it is new.
fn lease_batch(number: u64) -> WriteBatch {
    let mut batch = WriteBatch::new();
    lease::store(&mut batch, &checkpoint(number));
    batch
}

/// Writes `count` leases by `writers` tasks and returns how long that took.
fn write(
    runtime: &Runtime,
    store: &Arc<dyn Store>,
    first: u64,
    count: u64,
    writers: u64,
    durability: Durability,
) -> Duration {
    let started = now();
    runtime.block_on(async {
        let mut tasks = Vec::new();
        for writer in 0..writers {
            let store = Arc::clone(store);
            tasks.push(tokio::spawn(async move {
                let mut number = first + writer;
                while number < first + count {
                    let written = store.write(lease_batch(number), durability).await;
                    written.expect("the store takes leases");
                    number += writers;
                }
            }));
        }
        for task in tasks {
            task.await.expect("writers don't panic");
        }
    });
    started.elapsed()
}

fn store_write(criterion: &mut Criterion) {
    let runtime = Runtime::new().expect("a runtime starts");
    for backend in backends() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let store = open(backend, folder.path());
        let mut next = 0;
        let mut group = criterion.benchmark_group(format!("store_write/{backend}"));
        group.sample_size(10).throughput(Throughput::Elements(1));
        for (durability, name) in [
            (Durability::Synced, "synced"),
            (Durability::Buffered, "buffered"),
        ] {
            for writers in [1, 64] {
                let cpu = CpuMeter::start();
                group.bench_function(BenchmarkId::new(name, writers), |bencher| {
                    bencher.iter_custom(|count| {
                        cpu.count(count);
                        let first = next;
                        next += count;
                        write(&runtime, &store, first, count, writers, durability)
                    });
                });
                cpu.tell(&format!("store_write/{backend}/{name}/{writers}"));
            }
        }
        group.bench_function("get", |bencher| {
            let key = checkpoint(0).lease_key();
            bencher.iter(|| {
                let row = runtime.block_on(store.get(pop_store::table::LEASE, &key));
                black_box(row.expect("the store answers"))
            });
        });
        group.finish();
        runtime.block_on(store.close()).expect("the store closes");
    }
}

criterion_group!(benches, store_write);
criterion_main!(benches);
