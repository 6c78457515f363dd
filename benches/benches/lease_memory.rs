//! What leases weigh, and whether millions of them slow anything down. One process, real
//! CPU seconds, the allocator's own count.

use std::{collections::VecDeque, hint::black_box, time::Duration};

use pop_benches::{
    checkpoint, cpu_seconds,
    leases::{START, bounds, hand_out, queue, terms},
    now,
};
use pop_cache::LeaseQueue;
use pop_model::{DeliveryIdentity, Offset};
use tikv_jemalloc_ctl::{epoch, stats};

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

const MILLION: u64 = 1_000_000;

fn heap_bytes() -> usize {
    epoch::advance().expect("jemalloc counts");
    stats::allocated::read().expect("jemalloc counts")
}

fn row(name: &str, value: String) {
    #[expect(clippy::print_stdout, reason = "a benchmark says what it measured")]
    {
        println!("lease_memory/{name:<44} {value}");
    }
}

fn weigh(messages: u64, batch: usize) -> LeaseQueue {
    let before = heap_bytes();
    let mut queue = queue();
    hand_out(&mut queue, messages, batch, Duration::from_secs(30), |_| {});
    let bytes = heap_bytes().saturating_sub(before);
    let each = bytes as f64 / messages as f64;
    row(
        &format!("{} M leases, batches of {batch}", messages / MILLION),
        format!("{each:.1} bytes each"),
    );
    queue
}

/// Nothing is due among all of them.
fn sweep_nothing_due(queue: &mut LeaseQueue, messages: u64) {
    let begun = now();
    let staged = queue.sweep(START.saturating_add(Duration::from_secs(1)), 512);
    let took = begun.elapsed();
    assert!(black_box(staged).is_empty(), "nothing is due");
    row(
        &format!("sweep, nothing due, {} M", messages / MILLION),
        format!("{took:?}"),
    );
}

/// Messages come and go with `in_flight` of them out all the time: 90 of 100 are
/// acknowledged, the others are staged when they have stayed long enough.
fn life(in_flight: u64) {
    let messages = 4 * in_flight.max(4 * MILLION);
    let mut queue = queue();
    let mut out = VecDeque::new();
    let mut template = checkpoint(0).identity;
    let mut spilled = 0_u64;
    let cpu = cpu_seconds();
    let mut count = 0_u64;
    // Time passes so that a lease is due once `in_flight` later ones were handed out.
    let at = |count: u64| START.saturating_add(Duration::from_millis(count / 1_000));
    let visible = Duration::from_millis(in_flight / 1_000 + 64);
    while count < messages {
        let reservation = queue.reserve(32, bounds(messages));
        let now = at(count);
        let terms = pop_cache::Terms {
            now,
            ..terms(visible)
        };
        for granted in queue.lease(reservation.epoch, &reservation.offsets, &terms) {
            count += 1;
            // Little of its own, so that what is measured is the queue's.
            template = granted.identity;
            out.push_back(granted.identity.offset.get());
        }
        while out.len() as u64 > in_flight {
            let Some(offset) = out.pop_front() else { break };
            if offset % 10 != 0 {
                let identity = DeliveryIdentity {
                    offset: Offset::new(offset),
                    ..template
                };
                black_box(queue.ack(&identity));
            }
        }
        if count % 8_192 < 32 {
            for lease in queue.sweep(at(count), 512) {
                spilled += 1;
                black_box(&lease);
            }
        }
    }
    let each = (cpu_seconds() - cpu) * 1e6 / count as f64;
    row(
        &format!("life of a lease, {} M in flight", in_flight / MILLION),
        format!("{each:.3} us CPU ({spilled} spilled of {count})"),
    );
}

fn main() {
    for batch in [32, 1] {
        for messages in [MILLION, 10 * MILLION] {
            let mut queue = weigh(messages, batch);
            sweep_nothing_due(&mut queue, messages);
            assert!(queue.next_look().is_some(), "they are looked at some day");
        }
    }
    for in_flight in [MILLION, 10 * MILLION] {
        life(in_flight);
    }
}
