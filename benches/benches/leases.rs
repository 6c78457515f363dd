//! What a lease in memory costs: handing out, acknowledging, moving the gate.
//!
//! `queue` is the state machine alone, `cache` is what a consumer's request goes through:
//! the same behind its lock, with the counts and schedules that follow.

use std::{hint::black_box, sync::Arc, time::Duration};

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use pop_benches::leases::{NoRevive, bounds, cache, identities, queue, terms};
use pop_cache::{LeaseCache, Subscribe};
use pop_model::{Offset, StartPosition};
use pop_store::Durability;
use tokio::runtime::Runtime;

/// Messages of one round: enough for several pages, and a fraction of the caches.
const MESSAGES: u64 = 65_536;

fn machine(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("leases/queue");
    group.throughput(Throughput::Elements(MESSAGES));
    for batch in [1, 32] {
        group.bench_function(format!("pop/{batch}"), |bencher| {
            bencher.iter_batched_ref(
                queue,
                |queue| black_box(identities(queue, MESSAGES, batch)),
                BatchSize::LargeInput,
            );
        });
    }
    let full = || {
        let mut queue = queue();
        let identities = identities(&mut queue, MESSAGES, 32);
        (queue, identities)
    };
    group.bench_function("ack", |bencher| {
        bencher.iter_batched_ref(
            full,
            |(queue, identities)| {
                for identity in identities {
                    black_box(queue.ack(identity));
                }
            },
            BatchSize::LargeInput,
        );
    });
    // The lowest one last: each acknowledgement asks for the gate, and the last one moves it
    // over everything.
    group.bench_function("ack_backwards_and_gate", |bencher| {
        bencher.iter_batched_ref(
            full,
            |(queue, identities)| {
                for identity in identities.iter().rev() {
                    black_box(queue.ack(identity));
                    black_box(queue.gate());
                }
            },
            BatchSize::LargeInput,
        );
    });
    group.finish();
}

fn whole(criterion: &mut Criterion) {
    let runtime = Runtime::new().expect("a runtime starts");
    let mut group = criterion.benchmark_group("leases/cache");
    group.throughput(Throughput::Elements(MESSAGES));
    group.bench_function("pop_32_and_ack", |bencher| {
        bencher.iter_batched(
            cache,
            |cache| runtime.block_on(pop_and_ack(&cache)),
            BatchSize::LargeInput,
        );
    });
    group.finish();
}

async fn pop_and_ack(cache: &LeaseCache<NoRevive>) {
    let subscribe = Subscribe {
        queue: queue().queue(),
        bounds: bounds(MESSAGES),
        found_end: bounds(MESSAGES).end,
        start: StartPosition::Earliest,
        ordered: false,
    };
    let cached = cache.subscribe(subscribe).await.expect("memory answers");
    loop {
        let mut reserved = cache
            .reserve(&cached, 32, bounds(MESSAGES))
            .expect("there is room");
        if reserved.is_empty() {
            break;
        }
        let offsets: Vec<Offset> = reserved.offsets().to_vec();
        let terms = terms(Duration::from_secs(30));
        let leased = reserved.lease(&offsets, &terms).await;
        for granted in leased.expect("memory has room") {
            let cached = Arc::clone(&cached);
            cache
                .ack(&cached, &granted.identity, Durability::Buffered)
                .await
                .expect("it is out");
        }
    }
}

criterion_group!(benches, machine, whole);
criterion_main!(benches);
