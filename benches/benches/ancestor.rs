//! Ours beside the ancestor's layout on the same store: leases that are handed out and
//! acknowledged one a call, by sixteen at a time.

use std::{sync::Arc, time::Duration};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use pop_benches::{
    ancestor::{Ancestor, Record},
    backends,
    leases::{NoRevive, bounds, cache_on, queue, terms},
    open,
};
use pop_cache::{CachedQueue, LeaseCache, Subscribe};
use pop_model::{DeliveryIdentity, Offset, StartPosition};
use pop_store::{Durability, Store};
use tokio::runtime::Runtime;

const ACKERS: usize = 16;
/// Acknowledgements of one round, all ackers together. The peer syncs each.
const ROUND: usize = 320;

async fn ours(cache: &LeaseCache<NoRevive>) -> (Arc<CachedQueue>, Vec<DeliveryIdentity>) {
    let subscribe = Subscribe {
        queue: queue().queue(),
        bounds: bounds(u64::MAX),
        found_end: Offset::new(u64::MAX),
        start: StartPosition::Earliest,
        ordered: false,
    };
    let cached = cache.subscribe(subscribe).await.expect("the store answers");
    let mut identities = Vec::with_capacity(ROUND);
    while identities.len() < ROUND {
        let count = 32.min(ROUND - identities.len());
        let mut reserved = cache
            .reserve(&cached, count, bounds(u64::MAX))
            .expect("there is room");
        let offsets = reserved.offsets().to_vec();
        let terms = terms(Duration::from_secs(3_000));
        let granted = reserved.lease(&offsets, &terms).await;
        let granted = granted.expect("there is room");
        identities.extend(granted.iter().map(|granted| granted.identity));
    }
    (cached, identities)
}

/// Acknowledges a round by sixteen tasks, one a call.
async fn ack_ours(cache: &LeaseCache<NoRevive>, durability: Durability) {
    let (cached, identities) = ours(cache).await;
    let ackers = identities.chunks(ROUND / ACKERS).map(|mine| {
        let (cache, cached, mine) = (cache.clone(), Arc::clone(&cached), mine.to_vec());
        tokio::spawn(async move {
            for identity in mine {
                let acked = cache.ack(&cached, &identity, durability).await;
                acked.expect("it is out");
            }
        })
    });
    for acker in ackers.collect::<Vec<_>>() {
        acker.await.expect("it acknowledges");
    }
    // Whoever was answered at once waits here for the sync.
    cache.flush().await.expect("the store answers");
}

async fn ack_ancestor(ancestor: &Arc<Ancestor>) {
    let records: Vec<Record> = (0..ROUND as u64).map(Record::new).collect();
    for records in records.chunks(32) {
        ancestor.pop(records).await;
    }
    let ackers = records.chunks(ROUND / ACKERS).map(|mine| {
        let (ancestor, mine) = (Arc::clone(ancestor), mine.to_vec());
        tokio::spawn(async move {
            for record in &mine {
                ancestor.ack(record).await;
            }
        })
    });
    for acker in ackers.collect::<Vec<_>>() {
        acker.await.expect("it acknowledges");
    }
}

fn acks(criterion: &mut Criterion) {
    let runtime = Runtime::new().expect("a runtime starts");
    for backend in backends() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let store: Arc<dyn Store> = open(backend, folder.path());
        let cache = cache_on(Arc::clone(&store));
        let running = cache.clone();
        let run = runtime.spawn(async move { running.run(std::future::pending()).await });
        let ancestor = Arc::new(Ancestor::new(Arc::clone(&store)));
        let mut group = criterion.benchmark_group(format!("pop_and_ack_by_16/{backend}"));
        group.sample_size(10);
        group.throughput(Throughput::Elements(ROUND as u64));
        group.bench_function("ours, synced before the answer", |bencher| {
            bencher.iter(|| runtime.block_on(ack_ours(&cache, Durability::Synced)));
        });
        group.bench_function("ours, synced by the next flush", |bencher| {
            bencher.iter(|| runtime.block_on(ack_ours(&cache, Durability::Buffered)));
        });
        group.bench_function("the ancestor's layout", |bencher| {
            bencher.iter(|| runtime.block_on(ack_ancestor(&ancestor)));
        });
        group.finish();
        run.abort();
    }
}

criterion_group!(benches, acks);
criterion_main!(benches);
