//! What a lease costs from its receive to its end where nine of ten are acknowledged in memory
//! and the tenth stays until it is stored: everything that a broker does for it, the store's
//! threads included.
//!
//! Whole processes, one a backend and number of leases in flight: CPU seconds don't forget.
//! `POP_BENCH_MILLIONS` says how many millions are in flight, `1,10` if nothing does.

use std::{collections::VecDeque, process::Command, sync::Arc, time::Duration};

use pop_benches::{
    backends, cpu_seconds,
    leases::{NoRevive, bounds, cache_at, clock, queue, terms},
    now, open,
};
use pop_cache::{CacheOptions, CachedQueue, LeaseCache, Subscribe, Terms};
use pop_model::{Clock, DeliveryIdentity, Offset, StartPosition};
use pop_store::Durability;
use tokio::runtime::Runtime;

/// That of the broker.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const MILLION: u64 = 1_000_000;
/// Messages a millisecond, by the clock that the leases go by.
const RATE: u64 = 1_000;
/// One of so many is not acknowledged.
const FORGOTTEN: u64 = 10;

fn options(in_flight: u64) -> CacheOptions {
    let mut options = CacheOptions::default();
    // What is acknowledged is acknowledged a little before.
    options.stay = Duration::from_millis(in_flight / RATE + 512);
    options.leases_max = 100_000_000;
    options.in_flight_per_queue_max = u64::MAX;
    options.in_flight_per_group_max = u64::MAX;
    options.idle_max = Duration::from_millis(5);
    options
}

/// What is out, oldest first: little of its own, so that what is measured is the cache's.
#[derive(Default)]
struct Out {
    offsets: VecDeque<Offset>,
    last: Option<DeliveryIdentity>,
}

impl Out {
    fn push(&mut self, identity: DeliveryIdentity) {
        self.offsets.push_back(identity.offset);
        self.last = Some(identity);
    }

    /// Acknowledges the oldest ones, or forgets them, until `kept` are left. Returns how many
    /// were acknowledged.
    async fn ack(
        &mut self,
        cache: &LeaseCache<NoRevive>,
        cached: &Arc<CachedQueue>,
        kept: u64,
    ) -> u64 {
        let mut acked = 0;
        while self.offsets.len() as u64 > kept
            && let (Some(offset), Some(last)) = (self.offsets.pop_front(), self.last)
        {
            if offset.get() % FORGOTTEN == 0 {
                continue;
            }
            // They are all of one run, and of the first delivery.
            let identity = DeliveryIdentity { offset, ..last };
            let done = cache.ack(cached, &identity, Durability::Buffered).await;
            done.expect("it is out");
            acked += 1;
        }
        acked
    }
}

async fn life(backend: &str, in_flight: u64) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let store = open(backend, folder.path());
    let clock = clock();
    let cache = cache_at(Arc::clone(&store), &clock, options(in_flight));
    let running = cache.clone();
    let run = tokio::spawn(async move { running.run(std::future::pending()).await });
    let messages = in_flight + 4 * MILLION;
    let subscribe = Subscribe {
        queue: queue().queue(),
        bounds: bounds(messages),
        found_end: Offset::new(messages),
        start: StartPosition::Earliest,
        ordered: false,
    };
    let cached = cache.subscribe(subscribe).await.expect("the store answers");
    let mut out = Out::default();
    let (mut count, mut acked) = (0, 0);
    let (begun, cpu) = (now(), cpu_seconds());
    while count < messages {
        let reserved = cache.reserve(&cached, 32, bounds(messages));
        let mut reserved = reserved.expect("there is room");
        let offsets = reserved.offsets().to_vec();
        let terms = Terms {
            now: clock.lease(),
            ..terms(Duration::from_secs(3_600))
        };
        let leased = reserved.lease(&offsets, &terms).await;
        for granted in leased.expect("there is room") {
            count += 1;
            out.push(granted.identity);
        }
        if count % RATE < 32 {
            clock.advance(Duration::from_millis(1));
        }
        acked += out.ack(&cache, &cached, in_flight).await;
    }
    acked += out.ack(&cache, &cached, 0).await;
    // All that is left has stayed for long enough.
    clock.advance(options(in_flight).stay);
    while cached.look(|leases| leases.counts().in_memory()) > 0 {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    cache.flush().await.expect("the store answers");
    let each = |seconds: f64| seconds * 1e6 / count as f64;
    row(
        backend,
        in_flight,
        format!(
            "{:.3} us CPU, {:.3} us ({acked} acknowledged, {} stored)",
            each(cpu_seconds() - cpu),
            each(begun.elapsed().as_secs_f64()),
            count - acked
        ),
    );
    run.abort();
}

#[expect(clippy::print_stdout, reason = "a benchmark says what it measured")]
fn row(backend: &str, in_flight: u64, value: String) {
    println!(
        "lease_life/{backend:<8} {:>3} M in flight  {value}",
        in_flight / MILLION
    );
}

fn main() {
    let asked = std::env::var("POP_BENCH_BACKEND").ok();
    let millions = std::env::var("POP_BENCH_MILLIONS").unwrap_or_else(|_| "1,10".into());
    let millions = millions
        .split(',')
        .map(|it| it.parse::<u64>().expect("a number"));
    if let Some(backend) = asked {
        let backend = backends().into_iter().find(|it| *it == backend);
        let backend = backend.expect("a backend of this build");
        let runtime = Runtime::new().expect("a runtime starts");
        for in_flight in millions {
            runtime.block_on(life(backend, in_flight * MILLION));
        }
        return;
    }
    let program = std::env::current_exe().expect("it runs");
    for in_flight in millions {
        for backend in backends() {
            let child = Command::new(&program)
                .env("POP_BENCH_BACKEND", backend)
                .env("POP_BENCH_MILLIONS", in_flight.to_string())
                .status()
                .expect("a process starts");
            assert!(child.success(), "{in_flight} million on {backend}");
        }
    }
}
