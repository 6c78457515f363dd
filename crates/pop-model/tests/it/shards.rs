//! The shard of a queue is part of the format: it may never change, and must spread.

use pop_model::{GroupId, QueueId, ShardId, SubscriptionQueue, TopicId, shard_of};

fn shard(group: u64, topic: u64, queue: u32) -> u8 {
    shard_of(
        GroupId::new(group),
        TopicId::new(topic),
        QueueId::new(queue),
    )
    .get()
}

#[test]
fn a_queue_stays_in_its_shard() {
    // Computed apart from this crate, from the published splitmix64 finalizer.
    // Mutant: any other constant, shift, order of the ids, or bits of the result.
    for (group, topic, queue, expected) in [
        (0, 0, 0, 8),
        (1, 1, 0, 21),
        (1, 1, 1, 28),
        (1, 2, 0, 57),
        (2, 1, 0, 36),
        (1, 1, 1_023, 63),
        (7, 9, 3, 3),
        (1 << 32, 1, 0, 1),
        (1 << 63, 0, 0, 9),
        (u64::MAX, u64::MAX, u32::MAX, 8),
    ] {
        assert_eq!(
            shard(group, topic, queue),
            expected,
            "{group} {topic} {queue}"
        );
    }
}

#[test]
fn ten_thousand_queues_spread_over_all_shards() {
    let mut counts = [0_u32; ShardId::COUNT as usize];
    for group in 1..=50 {
        for topic in 1..=20 {
            for queue in 0..10 {
                counts[usize::from(shard(group, topic, queue))] += 1;
            }
        }
    }
    // The mean is 156 and one standard deviation 12.4: five of them each way.
    for (shard, count) in counts.into_iter().enumerate() {
        assert!((94..=219).contains(&count), "shard {shard} has {count}");
    }
}

#[test]
fn the_queues_of_one_topic_spread() {
    // One busy group on one wide topic must not end up in one shard. Mutant: the shard
    // is taken before the queue is mixed in.
    let queues = (0..64).map(|queue| shard(1, 1, queue));
    let distinct = queues.collect::<std::collections::BTreeSet<_>>().len();
    assert!(distinct > 32, "{distinct} shards for 64 queues");
}

#[test]
fn a_subscription_queue_knows_its_shard() {
    let queue = SubscriptionQueue {
        group: GroupId::new(7),
        topic: TopicId::new(9),
        queue: QueueId::new(3),
    };
    assert_eq!(queue.shard().get(), 3);
}

#[test]
fn there_are_64_shards_and_no_more() {
    assert_eq!(ShardId::all().count(), 64);
    assert_eq!(ShardId::new(63).map(ShardId::get), Some(63));
    assert_eq!(ShardId::new(64), None);
}
