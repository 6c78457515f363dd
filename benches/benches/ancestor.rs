//! Ours beside the ancestor's layout on the same store: leases that are handed out and then
//! acknowledged, changed or revived one a call, by sixteen at a time.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use pop_benches::{
    CpuMeter,
    ancestor::{Ancestor, Record},
    backends, body,
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

/// What sixteen tasks do to the messages of a round, one a call.
#[derive(Clone, Copy)]
enum Act {
    Ack,
    ChangeAndAck,
    Revive,
}

const HIDDEN: Duration = Duration::from_secs(2_000);

async fn act_ours(cache: &LeaseCache<NoRevive>, act: Act, durability: Durability) {
    let (cached, identities) = ours(cache).await;
    let tasks = identities.chunks(ROUND / ACKERS).map(|mine| {
        let (cache, cached, mine) = (cache.clone(), Arc::clone(&cached), mine.to_vec());
        tokio::spawn(async move {
            for identity in mine {
                if let Act::ChangeAndAck = act {
                    let changed = cache.change(&cached, &identity, HIDDEN, false, durability);
                    changed.await.expect("it is out");
                }
                let acked = cache.ack(&cached, &identity, durability).await;
                acked.expect("it is out");
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.expect("it comes to its end");
    }
    // Whoever was answered at once waits here for the sync.
    cache.flush().await.expect("the store answers");
}

async fn act_ancestor(ancestor: &Arc<Ancestor>, act: Act, body: &Bytes) {
    let records: Vec<Record> = (0..ROUND as u64).map(Record::new).collect();
    for records in records.chunks(32) {
        ancestor.pop(records).await;
    }
    let tasks = records.chunks(ROUND / ACKERS).map(|mine| {
        let (ancestor, mine, body) = (Arc::clone(ancestor), mine.to_vec(), body.clone());
        tokio::spawn(async move {
            for record in &mine {
                match act {
                    Act::Ack => ancestor.ack(record).await,
                    Act::ChangeAndAck => {
                        let changed = ancestor.change(record, HIDDEN).await;
                        ancestor.ack(&changed).await;
                    }
                    Act::Revive => ancestor.revive(record, &body).await,
                }
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.expect("it comes to its end");
    }
}

fn by_16(criterion: &mut Criterion) {
    let runtime = Runtime::new().expect("a runtime starts");
    let body = body(1_024);
    for backend in backends() {
        for (act, name) in [
            (Act::Ack, "pop_and_ack"),
            (Act::ChangeAndAck, "pop_change_and_ack"),
            // Ours is `storm`: nobody calls for it, and all that is due goes at once.
            (Act::Revive, "pop_and_revive"),
        ] {
            let folder = tempfile::tempdir().expect("a temporary folder");
            let store: Arc<dyn Store> = open(backend, folder.path());
            let cache = cache_on(Arc::clone(&store));
            let running = cache.clone();
            let run = runtime.spawn(async move { running.run(std::future::pending()).await });
            let ancestor = Arc::new(Ancestor::new(Arc::clone(&store)));
            let name = format!("{name}_by_16/{backend}");
            let mut group = criterion.benchmark_group(&name);
            group.sample_size(10);
            group.throughput(Throughput::Elements(ROUND as u64));
            for (how, durability) in [
                ("ours, synced before the answer", Durability::Synced),
                ("ours, synced by the next flush", Durability::Buffered),
            ] {
                if let Act::Revive = act {
                    continue;
                }
                let cpu = CpuMeter::start();
                group.bench_function(how, |bencher| {
                    bencher.iter(|| {
                        cpu.count(ROUND as u64);
                        runtime.block_on(act_ours(&cache, act, durability));
                    });
                });
                cpu.tell(&format!("{name}/{how}"));
            }
            let cpu = CpuMeter::start();
            group.bench_function("the ancestor's layout", |bencher| {
                bencher.iter(|| {
                    cpu.count(ROUND as u64);
                    runtime.block_on(act_ancestor(&ancestor, act, &body));
                });
            });
            cpu.tell(&format!("{name}/the ancestor's layout"));
            group.finish();
            run.abort();
        }
    }
}

criterion_group!(benches, by_16);
criterion_main!(benches);
